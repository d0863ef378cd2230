"""A user's own files as pairs: TSV (source, tab, target on each line) or two parallel files, line by line.

Text is taken exactly as written, but for a byte-order mark and the line ends. Nothing is skipped: a line that
is not a pair is an error that names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from regard.data.corpus import Corpus, Pair, Split, require_index
from regard.errors import ConfigError, FileError, choose

FORMATS = ("auto", "parallel", "tsv")


@dataclass(frozen=True)
class PairList(Corpus):
    """A corpus of given pairs: every split is finite and holds exactly what it was given."""

    name: ClassVar[str] = "pairs"

    train: Sequence[Pair]
    valid: Sequence[Pair] = ()
    test: Sequence[Pair] = ()

    def size(self, split: Split) -> int | None:
        """How many pairs were given."""
        return len(self._pairs(split))

    def example(self, split: Split, index: int) -> Pair:
        """The pair at this place of the list."""
        pairs = self._pairs(split)
        require_index(split, index, len(pairs))
        return pairs[index]

    def _pairs(self, split: Split) -> Sequence[Pair]:
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


def read_pairs(paths: Path | tuple[Path, Path], format: str = "auto") -> list[Pair]:
    """The pairs of one TSV file or of two parallel files; `auto` goes by how many paths there are."""
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown", choose(format, FORMATS))
    if isinstance(paths, Path):
        if format == "parallel":
            raise ConfigError(
                f"format 'parallel' takes two files, but only {paths} is given",
                "give [SOURCE, TARGET], or use 'tsv'",
            )
        return _read_tsv(paths)
    if format == "tsv":
        raise ConfigError(
            f"format 'tsv' takes one file, but {paths[0]} and {paths[1]} are given",
            "give one path, or use 'parallel'",
        )
    return _read_parallel(*paths)


def _read_tsv(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(_read_lines(path), start=1):
        sides = line.split("\t")
        if len(sides) != 2:
            raise FileError(
                f"{path}, line {number} has {len(sides) - 1} tabs, not one",
                "write source, one tab, target on each line",
            )
        for side, text in zip(("source", "target"), sides, strict=True):
            _require_text(path, number, side, text)
        pairs.append(Pair(*sides))
    return pairs


def _read_parallel(source_path: Path, target_path: Path) -> list[Pair]:
    sources, targets = _read_lines(source_path), _read_lines(target_path)
    if len(sources) != len(targets):
        raise FileError(
            f"{source_path} has {len(sources)} lines and {target_path} has {len(targets)}",
            "make line N of one file the translation of line N of the other",
        )
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        _require_text(source_path, number, "source", source)
        _require_text(target_path, number, "target", target)
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True)]


def _require_text(path: Path, number: int, side: str, text: str) -> None:
    if not text.strip():
        raise FileError(f"{path}, line {number}: the {side} is empty", "fill it in, or remove the pair")


def _read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file, ended by LF or CRLF and by nothing else (U+2028 and the like are text)."""
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file", "give the path of a text file")
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist", "check the path") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})", "check the path and its permissions") from error
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"{path}, line {line} is not UTF-8 (byte 0x{raw[error.start]:02x})",
            "save the file as UTF-8, for instance with iconv -t UTF-8",
        ) from error
    if not text.strip():
        raise FileError(f"{path} is empty", "give a file with at least one pair")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]

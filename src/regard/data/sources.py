r"""A user's own files as pairs or as documents.

    parallel   two files: line N of the one becomes line N of the other
    tsv        source, tab, target on each line
    csv        a header, then rows; columns by name
    jsonl      {"source": …, "target": …} on each line, or {"text": …} for documents; other keys may stand beside them
    text       documents for a language model: blank lines separate them, one may have many lines
    parquet    the same in columns, through pyarrow; arrow likewise
    whole      one document: all the file holds, line ends too

`auto` goes by a file's name and by what it holds (see `tables.py`). Text is taken exactly as written (see `reading.py`;
any file may be packed with gzip). Nothing is skipped or dropped as a duplicate: a line that is not what the format says
is an error that names it.
"""

import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from regard.data import spooled
from regard.data.corpus import Corpus, Pair, Split, require_index
from regard.data.reading import each_line, read_lines
from regard.data.spooled import Spooled
from regard.data.tables import TABLES, Layout, look, read_columns
from regard.errors import ConfigError, FileError, choose
from regard.text.counting import read_texts

FORMATS = ("auto", "parallel", *TABLES, "text", "whole")
PAIR = ("source", "target")
PIECE = 2**17
"""Bytes of a text that is read in pieces."""


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


def read_pairs(
    paths: Path | tuple[Path, Path],
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    parts: tuple[str, str] = PAIR,
) -> list[Pair]:
    """The pairs of one file or of two parallel ones; `parts` is what their sides are called."""
    _require_known(format)
    if format in ("text", "whole"):
        raise ConfigError(f"format {format!r} has documents and no pairs", "use parallel, tsv, csv or jsonl")
    if isinstance(paths, Path):
        if format == "parallel":
            raise ConfigError(
                f"format 'parallel' takes two files, but only {paths} is given",
                "give [SOURCE, TARGET], or use tsv, csv or jsonl",
            )
        found = look(paths, parts, format, columns)
        layout = Layout("tsv", {}) if found.format == "text" else found  # which names the line without a tab
        return [Pair(*texts) for _, texts in read_columns(paths, parts, layout)]
    if format not in ("auto", "parallel") or columns:
        what = "a table with columns" if columns else f"format {format!r}"
        raise ConfigError(
            f"{what} takes one file, but {paths[0]} and {paths[1]} are given",
            "give one path, or use 'parallel'",
        )
    return _read_parallel(*paths)


def read_documents(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> list[str] | Spooled:
    """The documents of a text file, or of a table with a text in each row; of a large file they stay on the disk."""
    texts = _documents(path, format, columns)
    if os.path.isfile(path) and os.path.getsize(path) >= spooled.LARGE:
        return Spooled.of(texts, joined=format == "whole")
    return ["".join(texts)] if format == "whole" else list(texts)


def _documents(path: Path, format: str, columns: Mapping[str, str] | None) -> Iterator[str]:
    """The same one by one; what is one document, in pieces."""
    _require_known(format)
    if format == "parallel" or (format == "tsv" and not columns):
        raise ConfigError(f"format {format!r} has pairs and no documents", "use text, whole, csv or jsonl")
    if format == "whole":
        return read_texts([path], PIECE)
    layout = look(path, ("text",), format, columns)
    if layout.format != "text":
        return (text for _, (text,) in read_columns(path, ("text",), layout))
    blocks = groupby(each_line(path), key=lambda line: bool(line.strip()))
    return ("\n".join(lines) for filled, lines in blocks if filled)


def _require_known(format: str) -> None:
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown", choose(format, FORMATS))


def _read_parallel(source_path: Path, target_path: Path) -> list[Pair]:
    sources, targets = read_lines(source_path), read_lines(target_path)
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
        raise FileError(f"{path}, line {number}: the {side} is empty", "fill it in, or remove the line and its pair")

r"""A user's own files as pairs or as documents.

    parallel   two files: line N of the one becomes line N of the other
    tsv        source, tab, target on each line
    jsonl      {"source": …, "target": …} on each line, or {"text": …} for documents; other keys may stand beside them
    text       documents for a language model: blank lines separate them, one may have many lines
    whole      one document: all the file holds, line ends too

Text is taken exactly as written (see `reading.py`; any file may be packed with gzip). Nothing is skipped, dropped as a
duplicate or guessed: a line that is not what the format says is an error that names it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from regard.data.corpus import Corpus, Pair, Split, require_index
from regard.data.reading import read_lines, whole_text
from regard.errors import ConfigError, FileError, choose
from regard.text.counting import read_texts

FORMATS = ("auto", "parallel", "tsv", "jsonl", "text", "whole")
JSON_NAMES = (".jsonl", ".ndjson", ".json")


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
    """The pairs of one file or of two parallel ones; `auto` is parallel, or JSONL by its name, or TSV."""
    _require_known(format)
    if format in ("text", "whole"):
        raise ConfigError(f"format {format!r} has documents and no pairs", "use parallel, tsv or jsonl")
    if isinstance(paths, Path):
        if format == "parallel":
            raise ConfigError(
                f"format 'parallel' takes two files, but only {paths} is given",
                "give [SOURCE, TARGET], or use tsv or jsonl",
            )
        return _read_json_pairs(paths) if format == "jsonl" or _is_json(paths, format) else _read_tsv(paths)
    if format in ("tsv", "jsonl"):
        raise ConfigError(
            f"format {format!r} takes one file, but {paths[0]} and {paths[1]} are given",
            "give one path, or use 'parallel'",
        )
    return _read_parallel(*paths)


def read_documents(path: Path, format: str = "auto") -> list[str]:
    """The documents of a text file, or of JSONL with a "text" on each line; `auto` goes by the name."""
    _require_known(format)
    if format in ("parallel", "tsv"):
        raise ConfigError(f"format {format!r} has pairs and no documents", "use text, whole or jsonl")
    if format == "whole":
        return ["".join(read_texts([path]))]
    if format == "jsonl" or _is_json(path, format):
        return [_field(path, number, record, "text") for number, record in _records(path, ("text",))]
    blocks = groupby(read_lines(path), key=lambda line: bool(line.strip()))
    return ["\n".join(lines) for filled, lines in blocks if filled]


def _require_known(format: str) -> None:
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is unknown", choose(format, FORMATS))


def _is_json(path: Path, format: str) -> bool:
    return format == "auto" and path.name.lower().removesuffix(".gz").endswith(JSON_NAMES)


def _read_tsv(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        sides = line.split("\t")
        if len(sides) != 2:
            more = ", for instance with cut -f1,2" if len(sides) > 2 else ""
            raise FileError(
                f"{path}, line {number} has {len(sides) - 1} tabs, not one",
                f"write source, one tab, target on each line{more}",
            )
        for side, text in zip(("source", "target"), sides, strict=True):
            _require_text(path, number, side, text)
        pairs.append(Pair(*sides))
    return pairs


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


def _read_json_pairs(path: Path) -> list[Pair]:
    return [Pair(source, target) for source, target in read_records(path, ("source", "target"))]


def read_records(path: Path, keys: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The texts that these keys have on each line of a JSONL file."""
    return [tuple(_field(path, number, record, key) for key in keys) for number, record in _records(path, keys)]


def _records(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object on each line, with the line's number; it has these keys."""
    remedy = f"write one object on each line, such as {json.dumps(dict.fromkeys(keys, '…'), ensure_ascii=False)}"
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line, object_pairs_hook=_once_each)
        except json.JSONDecodeError as error:
            problem = f"is not JSON ({error.msg} at character {error.colno})" if line.strip() else "is empty"
            raise FileError(f"{path}, line {number} {problem}", remedy) from error
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path}, line {number} cannot be read ({error})", remedy) from error
        if not isinstance(record, dict):
            raise FileError(f"{path}, line {number} is JSON but not an object", remedy)
        missing = [key for key in keys if key not in record]
        if missing:
            found = ", ".join(json.dumps(key) for key in record) or "no keys"
            raise FileError(f"{path}, line {number} has no {json.dumps(missing[0])} but {found}", remedy)
        yield number, record


def _once_each(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key comes twice."""
    record = dict(items)
    if len(record) < len(items):
        raise ValueError("a key comes twice in one object")
    return record


def _field(path: Path, number: int, record: dict[str, Any], key: str) -> str:
    """A text of one record: a string, not blank, of whole characters."""
    return whole_text(f"{path}, line {number}", key, record[key])


def _require_text(path: Path, number: int, side: str, text: str) -> None:
    if not text.strip():
        raise FileError(f"{path}, line {number}: the {side} is empty", "fill it in, or remove the line and its pair")

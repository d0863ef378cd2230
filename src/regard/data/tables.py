r"""Tables of a user's own: which of a file's columns is what, and the rows in them.

    tsv      fields between tabs, taken as they stand; a header only where columns are named
    csv      fields as RFC 4180 has them, between commas, semicolons, tabs or bars; the first line is the header
    jsonl    an object on each line; its keys are the columns

A column is a name, or a number from 1 where the file has no header. What a recipe leaves open is found by `look`: by
well-known names, and where there are none by what the columns hold. It says what it found, and refuses what is unclear.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.data.columnar import COLUMNAR, column_names, columnar_format, read_texts_of_rows
from regard.data.reading import each_line, read_beginning, whole_text
from regard.errors import ConfigError, FileError, changing

TABLES = ("tsv", "csv", "jsonl", *COLUMNAR)
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".tsv": "tsv", ".csv": "csv"}
ENDINGS |= {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
NAMES = {
    "source": ("source", "src", "input"),
    "target": ("target", "tgt", "trg", "output"),
    "text": ("text", "sentence", "review", "content", "document", "comment", "message", "tweet", "article", "body"),
    "label": ("label", "class", "category", "sentiment", "target", "intent", "topic", "labels"),
    "question": ("question", "query"),
    "context": ("context", "passage", "paragraph"),
    "answer": ("answer", "answers"),
    "messages": ("messages", "conversations", "dialogue"),
    "conversation": ("conversation", "conversation_id", "dialogue_id"),
    "role": ("role", "speaker"),
    "content": ("content", "text", "utterance"),
    "summary": ("summary", "highlights", "abstract", "headline", "title"),
}
"""What columns are called, the likeliest name first."""

LONGEST_FIELD = 2**20
"""Characters of a CSV's field: more is a quote that was never closed."""
LONGEST_LABEL = 64
DELIMITERS = (",", ";", "\t", "|")
HEADER = re.compile(r"\w[\w -]{0,39}")
"""How the name of a column looks: a few words without punctuation."""


@dataclass(frozen=True)
class Layout:
    """What a file holds: its format, for each part of an example its column, and what was found out, for people."""

    format: str
    columns: Mapping[str, str]
    said: str = ""


Row = tuple[int, list[str]]
"""The line a row begins at, and its fields."""


def ending(path: Path | str) -> str:
    """The end of a name that says what a file holds; nothing where it does not."""
    plain = Path(path).name.lower().removesuffix(".gz")
    return next((known for known in ENDINGS if plain.endswith(known)), "")


def look(path: Path, parts: tuple[str, ...], format: str = "auto", columns: Mapping[str, str] | None = None) -> Layout:
    """What this file holds, as far as it is not said: one that is no table has format `text`."""
    given = dict(columns or {})
    if kind := columnar_format(path, format):
        return _of_columns(path, kind, parts, given)
    beginning = read_beginning(path)
    open_format = format == "auto"
    if open_format:
        format = ENDINGS.get(ending(path)) or _format_of(beginning, parts)
    if format not in TABLES:
        if given:
            raise ConfigError(f"[data] columns have no meaning for {path}, which is no table", "leave them out")
        return Layout(format, {})
    missing = [part for part in parts if part not in given]
    if not missing or not beginning or (format == "tsv" and not open_format and not given):
        return Layout(format, given)
    if format == "jsonl":
        return _of_objects(path, beginning, parts, given)
    rows = _sample(beginning, format)
    return _of_rows(path, rows, parts, given, format) if rows else Layout(format, given)


def _format_of(beginning: Sequence[str], parts: tuple[str, ...]) -> str:
    """By what the first lines hold: objects, or a tab in each where an example has several parts."""
    lines = [line for line in beginning if line.strip()]
    if lines and all(line.lstrip().startswith("{") for line in lines) and first_object(lines[0]) is not None:
        return "jsonl"
    return "tsv" if lines and len(parts) > 1 and all("\t" in line for line in lines) else "text"


def first_object(line: str) -> dict[str, Any] | None:
    """The object that a line is, if it is one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _of_columns(path: Path, kind: str, parts: tuple[str, ...], given: dict[str, str]) -> Layout:
    names = column_names(path, kind)
    found = _by_name(path, names, parts, given)
    if not all(part in found for part in parts):
        raise _unclear(path, names, parts, "csv")
    return Layout(kind, found, _told(path, found, parts))


def _of_objects(path: Path, beginning: Sequence[str], parts: tuple[str, ...], given: dict[str, str]) -> Layout:
    keys = list(first_object(beginning[0]) or {})
    found = _by_name(path, keys, parts, given)
    columns = found if all(part in found for part in parts) else {part: part for part in parts} | given
    plain = all(part == name for part, name in columns.items())
    return Layout("jsonl", {} if plain else columns, "" if plain else _told(path, columns, parts))


def _of_rows(path: Path, rows: list[list[str]], parts: tuple[str, ...], given: dict[str, str], format: str) -> Layout:
    names = [name.strip() for name in rows[0]]
    if not any(_is_number(column) for column in given.values()):
        found = _by_name(path, names, parts, given)
        if all(part in found for part in parts):
            _refuse_twice(path, names)
            return Layout(format, found, _told(path, found, parts))
    if format == "tsv" and parts == ("text",) and not given:
        return Layout("text", {})  # running text that happens to have tabs
    if given or len(names) != len(parts) or len(parts) > 2:
        raise _unclear(path, names, parts, format)
    body = rows[1:]
    order = list(parts)
    if parts == ("text", "label") and _label_first(rows):
        order.reverse()
    named = format == "csv" and all(HEADER.fullmatch(name) and not name.isdecimal() for name in names)
    if named and "label" in parts:  # a header is none of the labels
        named = names[order.index("label")] not in {row[order.index("label")].strip() for row in body}
    if named:
        _refuse_twice(path, names)
        columns = dict(zip(order, names, strict=True))
    else:
        columns = {part: str(number) for number, part in enumerate(order, start=1)}
    if format == "tsv" and order == list(parts):
        return Layout(format, {})  # as the format has it
    return Layout(format, columns, _told(path, columns, parts))


def _by_name(path: Path, names: Sequence[str], parts: tuple[str, ...], given: dict[str, str]) -> dict[str, str]:
    """The columns that are named as one would name them; refused where two are."""
    found = dict(given)
    for part in parts:
        if part in found:
            continue
        fitting = [name for name in names if name.strip().lower() in NAMES[part] and name not in found.values()]
        best = [name for name in fitting if name.strip().lower() == part] or fitting
        if len(set(best)) > 1:
            raise ConfigError(
                f"{path}: {' and '.join(map(repr, best))} may both be the {part}",
                f"say which with {changing(f'data.columns.{part}', 'NAME')}",
            )
        if best:
            found[part] = best[0]
    return found


def _label_first(rows: list[list[str]]) -> bool:
    """Whether the first of two columns has few different short values and the second has more."""
    first, second = ({row[column] for row in rows} for column in (0, 1))
    short = max(map(len, first)) <= LONGEST_LABEL
    return short and len(first) < len(second) and len(first) <= max(2, len(rows) // 2)


def _unclear(path: Path, names: Sequence[str], parts: tuple[str, ...], format: str) -> FileError:
    example = ", ".join(changing(f"data.columns.{part}", "NAME") for part in parts)
    numbered = ", ".join(changing(f"data.columns.{part}", number) for number, part in enumerate(parts, start=1))
    wanted = " and ".join(parts)
    if format == "tsv":
        tabs = f"{len(names) - 1} tabs, not {'one' if len(parts) == 2 else len(parts) - 1}"
        if len(names) == 1:
            return FileError(f"{path}, line 1 has {tabs}", f"write {_sentence(parts)} on each line")
        return FileError(
            f"{path}, line 1 has {tabs}",
            f"write {_sentence(parts)} on each line, for instance with cut -f1,2, or say which columns: {numbered}",
        )
    shown = ", ".join(repr(name[:40]) for name in names[:20])
    return FileError(
        f"{path} has the columns {shown}, and which are {wanted} is not clear",
        f"say it with {example}, or by number where there is no header: {numbered}",
    )


def _sentence(parts: tuple[str, ...]) -> str:
    return ", one tab, ".join(parts)


def _told(path: Path, columns: Mapping[str, str], parts: tuple[str, ...]) -> str:
    """`reviews.csv: column 'review' is the text, column 'stars' the label`."""
    verbs = [
        f"column {_shown(columns[part])} {'is ' if number == 0 else ''}the {part}" for number, part in enumerate(parts)
    ]
    return f"{path}: {', '.join(verbs)}"


def _shown(column: str) -> str:
    return column if _is_number(column) else repr(column)


def _is_number(column: str) -> bool:
    return column.isascii() and column.isdecimal() and int(column) > 0


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FileError(f"{path} has two columns of the name {twice!r}", "give every column a name of its own")


# Rows


def read_columns(path: Path, parts: tuple[str, ...], layout: Layout) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The texts in these columns of every row, with the line the row begins at."""
    if layout.format == "jsonl":
        yield from _objects(path, parts, layout.columns)
        return
    if layout.format in COLUMNAR:
        yield from read_texts_of_rows(path, layout.format, parts, layout.columns)
        return
    rows = _tab_rows(path) if layout.format == "tsv" else _csv_rows(path)
    first = next(rows)
    columns = dict(layout.columns) or {part: str(number) for number, part in enumerate(parts, start=1)}
    names = [name.strip() for name in first[1]]
    if not layout.columns and len(names) != len(parts):
        raise _other_width(path, first[0], len(names), len(parts), parts, layout.format)
    by_number = all(_is_number(column) for column in columns.values())
    if not by_number:
        _refuse_twice(path, names)
    places = [_place(path, columns[part], names, by_number) for part in parts]
    width = len(names) if layout.columns else len(parts)
    left = chain([first], rows) if by_number else rows
    second = next(left, None)
    if second is None:
        raise FileError(f"{path} has a header and no rows", "add some")
    for number, fields in chain([second], left):
        if len(fields) != width:
            raise _other_width(path, number, len(fields), width, parts, layout.format)
        for part, place in zip(parts, places, strict=True):
            if not fields[place].strip():
                raise FileError(
                    f"{path}, line {number}: the {part} is empty", "fill it in, or remove the line and its pair"
                )
        yield number, tuple(fields[place] for place in places)


def _place(path: Path, column: str, names: Sequence[str], by_number: bool) -> int:
    if by_number and int(column) <= len(names):
        return int(column) - 1
    if not by_number and column in names:
        return names.index(column)
    shown = ", ".join(repr(name[:40]) for name in names[:20])
    raise FileError(
        f"{path} has no column {_shown(column)} but {len(names)}: {shown}",
        "name columns by the first line, or by number where it is no header",
    )


def _other_width(path: Path, number: int, found: int, width: int, parts: tuple[str, ...], format: str) -> FileError:
    if format == "csv":
        return FileError(
            f"{path}, line {number} has {found} fields, not {width}",
            "give every row as many, and put fields that hold the delimiter in quotes",
        )
    tabs = f"{found - 1} tabs, not {'one' if width == 2 else width - 1}"
    more = ", for instance with cut -f1,2" if found > width == 2 else ""
    more = (
        ", or give two files, source and target"
        if (number, found) == (1, 1) and parts == ("source", "target")
        else more
    )
    return FileError(f"{path}, line {number} has {tabs}", f"write {_sentence(parts)} on each line{more}")


def _tab_rows(path: Path) -> Iterator[Row]:
    return ((number, line.split("\t")) for number, line in enumerate(each_line(path), start=1))


def _csv_rows(path: Path) -> Iterator[Row]:
    lines = each_line(path)
    first = list(islice(lines, 100))
    try:
        rows = _parsed(chain(first, lines), _delimiter(first))
        yield from ((number, fields) for number, fields in rows if fields)  # an empty line is no row
    except _RowError as error:
        raise FileError(
            f"{path}, line {error.line} is not CSV ({error})", "close its quotes, and write quotes inside a field twice"
        ) from None


class _RowError(Exception):
    """What Python's csv says of a row that begins at a line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def _parsed(lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        begun = reader.line_num + 1
        before = csv.field_size_limit(LONGEST_FIELD)  # one number for all of Python: never left changed between rows
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _RowError(str(error), begun) from None
        finally:
            csv.field_size_limit(before)
        yield begun, fields


def _delimiter(lines: Sequence[str]) -> str:
    """What parts the fields: that by which rows have one width, the widest; a comma where nothing does."""

    def regular(delimiter: str) -> tuple[bool, int]:
        widths: list[int] = []
        with suppress(_RowError):  # of the last row, where only the beginning is looked at
            widths.extend(len(fields) for _, fields in _parsed(lines, delimiter) if fields)
        whole = len(widths) > 0 and len(set(widths)) == 1
        return (whole and widths[0] > 1, max(widths, default=0) if whole else 0)

    best = max(DELIMITERS, key=regular)  # the first of equals
    return best if regular(best)[0] else max(DELIMITERS, key=lines[0].count)


def _sample(beginning: Sequence[str], format: str) -> list[list[str]]:
    """The first rows that are as wide as the first."""
    rows: list[list[str]] = []
    if format == "tsv":
        rows = [line.split("\t") for line in beginning if line.strip()]
    else:
        with suppress(_RowError):  # it is named when all is read
            rows.extend(fields for _, fields in _parsed(beginning, _delimiter(beginning[:100])) if fields)
    return [row for row in rows if len(row) == len(rows[0])]


# Objects


def _objects(path: Path, parts: tuple[str, ...], columns: Mapping[str, str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    keys = [columns.get(part, part) for part in parts]
    for number, record in read_objects(path, keys):
        yield number, tuple(_text(path, number, part, record[key]) for part, key in zip(parts, keys, strict=True))


def read_objects(path: Path, keys: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object on each line of a JSONL file, with the line's number; it has these keys."""
    remedy = f"write one object on each line, such as {json.dumps(dict.fromkeys(keys, '…'), ensure_ascii=False)}"
    for number, line in enumerate(each_line(path), start=1):
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
            found = ", ".join(json.dumps(key, ensure_ascii=False) for key in record) or "no keys"
            named = f"{remedy}, or name the keys in data.columns" if record else remedy
            raise FileError(
                f"{path}, line {number} has no {json.dumps(missing[0], ensure_ascii=False)} but {found}", named
            )
        yield number, record


def _once_each(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key comes twice."""
    record = dict(items)
    if len(record) < len(items):
        raise ValueError("a key comes twice in one object")
    return record


def _text(path: Path, number: int, part: str, value: object) -> str:
    """A string, not blank, of whole characters; a label may be a whole number, true or false."""
    if part == "label" and isinstance(value, int):
        return json.dumps(value)
    return whole_text(f"{path}, line {number}", part, value)

"""Rows of Parquet and Arrow files, some at a time, through pyarrow (the extra `data`).

    parquet    a file in columns; only those that are asked for are read
    arrow      the file or the stream of Arrow's inter-process format, Feather too

What a file is, its first bytes say. Of a file of any size there are `ROWS` rows in memory.
"""

import json
import os.path
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.data.reading import whole_text
from regard.errors import ConfigError, FileError

COLUMNAR = ("parquet", "arrow")
MARKS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
"""How such files begin."""
ROWS = 1024


def columnar_format(path: Path, format: str = "auto") -> str | None:
    """Which of these a file is; None where it is none, and where another format is said."""
    if format not in ("auto", *COLUMNAR) or not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        return None
    with path.open("rb") as file:
        beginning = file.read(8)
    found = next((kind for mark, kind in MARKS.items() if beginning.startswith(mark)), None)
    named = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}.get(path.suffix.lower())
    if found is None and (named or format in COLUMNAR):
        raise FileError(f"{path} is no {(named or format).title()} file: it begins otherwise", "copy it again")
    return found


def column_names(path: Path, format: str) -> list[str]:
    """What its columns are called."""
    with _saying(path, format):
        return [str(name) for name in _opened(path, format)[0]]


def read_rows(path: Path, format: str, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with its number from 1, as a table of these columns."""
    number = 0
    with _saying(path, format):
        names, batches = _opened(path, format, columns)
        missing = next((column for column in columns if column not in names), None)
        if missing is not None:
            raise FileError(
                f"{path} has no column {missing!r} but {', '.join(map(repr, names[:20]))}", "name one of these"
            )
        for batch in batches:
            for row in batch.select(list(dict.fromkeys(columns))).to_pylist():
                number += 1
                yield number, row
    if not number:
        raise FileError(f"{path} has no rows", "add some")


def read_texts_of_rows(
    path: Path, format: str, parts: Sequence[str], columns: Mapping[str, str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The texts in the columns of these parts; a label may be a whole number, true or false."""
    keys = [columns.get(part, part) for part in parts]
    for number, row in read_rows(path, format, keys):
        place = f"{path}, row {number}"
        yield (
            number,
            tuple(
                json.dumps(row[key])
                if part == "label" and isinstance(row[key], int)
                else whole_text(place, part, row[key])
                for part, key in zip(parts, keys, strict=True)
            ),
        )


def _opened(path: Path, format: str, columns: Sequence[str] = ()) -> tuple[list[str], Iterator[Any]]:
    """The names of the columns, and the batches of rows."""
    if format == "parquet":
        file = import_module("pyarrow.parquet").ParquetFile(path)
        names = list(file.schema_arrow.names)
        return names, file.iter_batches(batch_size=ROWS, columns=[one for one in columns if one in names])
    ipc, source = import_module("pyarrow.ipc"), import_module("pyarrow").memory_map(str(path))
    if source.read(6) != b"ARROW1":
        source.seek(0)
        stream = ipc.open_stream(source)
        return list(stream.schema.names), _sliced(iter(stream))
    source.seek(0)
    whole = ipc.open_file(source)
    return list(whole.schema.names), _sliced(whole.get_batch(place) for place in range(whole.num_record_batches))


def _sliced(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for first in range(0, batch.num_rows, ROWS):
            yield batch.slice(first, ROWS)


@contextmanager
def _saying(path: Path, format: str) -> Iterator[None]:
    """What pyarrow says of a file, in one sentence."""
    try:
        invalid = import_module("pyarrow").ArrowException
    except ImportError as error:
        raise ConfigError(
            f"{path} is a {format.title()} file, which takes pyarrow to read", "install it: pip install 'regard[data]'"
        ) from error
    try:
        yield
    except FileError:
        raise
    except (invalid, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:120].rstrip(".")
        raise FileError(f"{path} is a damaged {format.title()} file ({said})", "copy or download it again") from error

r"""The lines of a text file, plain or packed with gzip, or one sentence on why they cannot be read.

Packing is seen by a file's first bytes, not by its name. Text is UTF-8 with or without a byte-order mark, or UTF-16 or
UTF-32 with one, and is kept exactly as written (no normal form is applied); lines end in LF or CRLF, in a file without
any LF in CR, and nowhere else (U+2028 and the like are text). UTF-8 is read line by line, without a copy of the whole.
"""

import io
import json
import os.path
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator
from pathlib import Path

from regard.errors import FileError
from regard.files import opened, refuse_packed

WIDE = {BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without their ends; at least one of them is not blank."""
    return list(each_line(path))


def each_line(path: Path) -> Iterator[str]:
    """The same one by one, so that a file may be larger than memory."""
    lines = _lines(path)
    blank: list[str] = []  # lines before the first that is not
    for line in lines:
        if line.strip():
            yield from (*blank, line)
            break
        blank.append(line)
    else:
        raise FileError(f"{path} is empty", "give a file with some text in it")
    yield from lines


def _lines(path: Path) -> Iterator[str]:
    with opened(path) as stream:
        beginning = stream.peek(8)[:8]
        _refuse_others(path, beginning)
        wide = next((encoding for mark, encoding in WIDE.items() if beginning.startswith(mark)), None)
        lines = _utf8_lines(path, stream) if wide is None else iter(_wide_lines(path, stream.read(), wide))
        last, several = next(lines, None), False
        for line in lines:
            assert last is not None
            yield last
            last, several = line, True
    if last is not None:
        final = last.removesuffix("\r")  # a last line that was cut between CR and LF
        yield from [final] if several else final.split("\r")


def read_beginning(path: Path, size: int = 2**20) -> list[str]:
    """The whole lines among the first bytes of a file that can be read twice, to see what it holds.

    None of what is no text: whoever reads all of it will say so.
    """
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        return []
    with opened(path) as stream:
        raw = stream.read(size)
        _refuse_others(path, raw[:8])
        whole = not stream.read(1)
    wide = next((encoding for mark, encoding in WIDE.items() if raw.startswith(mark)), "utf-8-sig")
    text = raw.decode(wide, errors="replace")
    lines = re.split(r"\r\n|\n" if "\n" in text else r"\r", text)
    lines = lines[:-1] if not whole or lines[-1] == "" else lines
    return [] if any("\0" in line or "\ufffd" in line for line in lines) else lines


def _refuse_others(path: Path, beginning: bytes) -> None:
    """Say so if a file's name or its first bytes are those of tables that are no text, or of an archive."""
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise FileError(f"{path} is a spreadsheet", "save it as CSV")
    if beginning.startswith(b"PAR1"):
        raise FileError(f"{path} is a Parquet file, where a text is read", "write its texts as lines, or as JSONL")
    refuse_packed(path, beginning)


def whole_text(place: str, what: str, value: object) -> str:
    """What a JSON file has at this place, if it is a text: a string, not blank, of whole characters."""
    if not isinstance(value, str):
        raise FileError(f"{place}: the {what} is {json.dumps(value)[:40]}, not a string", "put it in quotes")
    if not value.strip():
        raise FileError(f"{place}: the {what} is empty", "fill it in, or leave the example out")
    try:
        value.isascii() or value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileError(
            f"{place}: the {what} has half of a character (\\u{ord(value[error.start]):04x})",
            "write both halves of the pair, or the character itself",
        ) from error
    if "\0" in value:
        raise FileError(f"{place}: the {what} holds a NUL, which no text has", "remove it")
    return value


def _utf8_lines(path: Path, stream: io.BufferedReader) -> Iterator[str]:
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(BOM_UTF8)
        if b"\0" in raw:
            raise _not_text(path, number)
        try:
            yield _without_end(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise FileError(
                f"{path}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x})",
                "save the file as UTF-8, for instance with iconv -f LATIN1 -t UTF-8",
            ) from error


def _wide_lines(path: Path, raw: bytes, encoding: str) -> list[str]:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        number = raw[: error.start].decode(encoding, errors="ignore").count("\n") + 1
        raise FileError(
            f"{path}, line {number} is not {encoding.upper()} ({error.reason})", "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise _not_text(path, text[: text.index("\0")].count("\n") + 1)
    return [_without_end(line) for line in io.StringIO(text, newline="\n")]


def _without_end(line: str) -> str:
    return line.removesuffix("\r\n") if line.endswith("\r\n") else line.removesuffix("\n")


def _not_text(path: Path, number: int) -> FileError:
    return FileError(
        f"{path}, line {number} holds a NUL, which no text has",
        "give a text file (UTF-16 without a byte-order mark must be saved as UTF-8)",
    )

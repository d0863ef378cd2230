r"""The lines of a text file, plain or packed with gzip, or one sentence on why they cannot be read.

Packing is seen by a file's first bytes, not by its name. Text is UTF-8 with or without a byte-order mark, or UTF-16 or
UTF-32 with one, and is kept exactly as written (no normal form is applied); lines end in LF or CRLF, in a file without
any LF in CR, and nowhere else (U+2028 and the like are text). UTF-8 is read line by line, without a copy of the whole.
"""

import gzip
import io
import os
import stat
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.errors import FileError

GZIP = b"\x1f\x8b"
FOREIGN = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z"}
WIDE = {BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}

ALWAYS_UNPACKED = 64 * 2**20
"""Bytes that any gzip file may unpack to."""
MOST_TIMES = 100
"""Beyond that, how many times its own size it may unpack to: text reaches 3 to 20, a bomb 1,000."""


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without their ends; at least one of them is not blank."""
    with opened(path) as stream:
        beginning = stream.peek(8)[:8]
        for mark, kind in {GZIP: "gzip, twice", **FOREIGN}.items():
            if beginning.startswith(mark):
                raise FileError(f"{path} is packed with {kind}", "unpack it, or pack it once with gzip")
        wide = next((encoding for mark, encoding in WIDE.items() if beginning.startswith(mark)), None)
        lines = _utf8_lines(path, stream) if wide is None else _wide_lines(path, stream.read(), wide)
    if len(lines) == 1 and "\r" in lines[0]:
        lines = lines[0].removesuffix("\r").split("\r")
    elif lines:
        lines[-1] = lines[-1].removesuffix("\r")  # a last line that was cut between CR and LF
    if not any(line.strip() for line in lines):
        raise FileError(f"{path} is empty", "give a file with some text in it")
    return lines


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes, unpacked where they are packed; what the system or gzip says becomes a FileError."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            raise FileError(f"{path} is a folder, not a file", "give the path of a text file")
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
            raise FileError(f"{path} is a device, not a file", "give the path of a text file")
        with open(path, "rb") as stream:
            if stream.peek(2)[:2] == GZIP:
                yield io.BufferedReader(Unpacked(path, stream))
            else:
                yield stream
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist", "check the path") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            f"{path} is a damaged gzip file ({str(error).rstrip('.')})", "copy or download it again"
        ) from error
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})", "check the path and its permissions") from error
    except ValueError as error:  # a NUL in the name
        raise FileError(f"{str(path)!r} cannot be the name of a file ({error})", "check the path") from error


class Unpacked(io.RawIOBase):
    """What a gzip stream unpacks to, refused as soon as it is out of all proportion to its size."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
        self._left = ALWAYS_UNPACKED + MOST_TIMES * os.fstat(stream.fileno()).st_size

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer with what comes next."""
        content = self._unpacked.read1(len(buffer))
        self._left -= len(content)
        if self._left < 0:
            raise FileError(
                f"{self._path} unpacks to more than {MOST_TIMES} times its size", "unpack it yourself if that is meant"
            )
        buffer[: len(content)] = content
        return len(content)


def _utf8_lines(path: Path, stream: io.BufferedReader) -> list[str]:
    lines = []
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(BOM_UTF8)
        if b"\0" in raw:
            raise _not_text(path, number)
        try:
            lines.append(_without_end(raw.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise FileError(
                f"{path}, line {number} is not UTF-8 (byte 0x{raw[error.start]:02x})",
                "save the file as UTF-8, for instance with iconv -f LATIN1 -t UTF-8",
            ) from error
    return lines


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

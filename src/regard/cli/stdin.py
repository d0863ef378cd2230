"""Lines of stdin, each of which may be bad on its own."""

import os
import select
import sys
from collections.abc import Iterator
from io import TextIOWrapper

from regard.errors import InputError

PATIENCE = 0.1
"""Seconds in which a line that is on its way comes."""
CHUNK = 2**16


def stdin_lines() -> Iterator[bytes]:
    """Lines without their ends, as bytes, so that one that is no text spoils no other; a terminal is told we wait."""
    return (line for line in _lines() if line is not None)


def _lines() -> Iterator[bytes | None]:
    """The same, and None where the next is not there yet."""
    if not isinstance(sys.stdin, TextIOWrapper):
        raise InputError("there is no text and no stdin to read it from", "give the text as an argument")
    if sys.stdin.isatty():
        print("one text per line; end with Ctrl-D", file=sys.stderr)
    first = True
    for line in _with_ends():
        if line is None:
            yield None
            continue
        yield (line.removeprefix(b"\xef\xbb\xbf") if first else line).rstrip(b"\r\n")
        first = False


def _with_ends() -> Iterator[bytes | None]:
    try:
        source = sys.stdin.fileno()
    except OSError:  # it is no file
        yield from sys.stdin.buffer
        return
    begun: list[bytes] = []
    while True:
        if os.name == "posix" and not select.select([source], [], [], PATIENCE)[0]:
            yield None
        chunk = os.read(source, CHUNK)
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line])
            begun = []
        begun += [rest] if rest else []
        if not chunk:
            yield from [b"".join(begun)] if begun else []
            return


def text_of(line: bytes) -> str:
    """The text of a line."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the text is not UTF-8 (byte 0x{line[error.start]:02x})", "convert it, for instance with iconv"
        ) from error


def in_groups(together: int) -> Iterator[list[bytes]]:
    """Lines in groups, from a terminal one by one; those that are there do not wait for others that are not."""
    size = 1 if sys.stdin is None or sys.stdin.isatty() else together
    group: list[bytes] = []
    for line in _lines():
        group += [] if line is None else [line]
        if group and (line is None or len(group) == size):
            yield group
            group = []
    if group:
        yield group

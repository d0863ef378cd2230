"""Lines of stdin, each of which may be bad on its own."""

import sys
from collections.abc import Iterator
from io import TextIOWrapper

from regard.errors import InputError


def stdin_lines() -> Iterator[bytes]:
    """Lines without their ends, as bytes, so that one that is no text spoils no other; a terminal is told we wait."""
    if not isinstance(sys.stdin, TextIOWrapper):
        raise InputError("there is no text and no stdin to read it from", "give the text as an argument")
    if sys.stdin.isatty():
        print("one text per line; end with Ctrl-D", file=sys.stderr)
    for number, line in enumerate(sys.stdin.buffer):
        yield (line if number else line.removeprefix(b"\xef\xbb\xbf")).rstrip(b"\r\n")


def text_of(line: bytes) -> str:
    """The text of a line."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the text is not UTF-8 (byte 0x{line[error.start]:02x})", "convert it, for instance with iconv"
        ) from error


def in_groups(together: int) -> Iterator[list[bytes]]:
    """Lines in groups; from a terminal one by one, so that each is answered at once."""
    size = 1 if sys.stdin is None or sys.stdin.isatty() else together
    group: list[bytes] = []
    for line in stdin_lines():
        group.append(line)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group

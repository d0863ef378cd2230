"""SentencePiece's `.model` file (Kudo & Richardson 2018), a protocol buffer, as a plain record; nothing is run of it.

message  fields, each after a tag, `number << 3 | kind`: 0 a varint, 1 eight bytes, 2 a length and so many bytes, 5 four
file     1 pieces, one after the other: 1 text, 2 score, 3 kind
         2 its training: 3 the algorithm, 24 whether a blank ends a word, 35 bytes for what is unknown, 40 – 43 ids
         3 what is done to a text first, 5 to a decoded one: 2 rules, compiled, 3 – 5 what becomes of blanks
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.errors import FileError

LARGEST = 2**28
"""Bytes; published files have less than ten million."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
Field = tuple[int, int | bytes]
_REMEDY = "give the .model that SentencePiece wrote, and copy it again if it is that"


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieceFile:
    """What a file says of how texts are cut."""

    pieces: tuple[Piece, ...]
    algorithm: str
    ids: dict[str, int]
    """Of unk, bos, eos and pad; a role that is none is absent."""
    rules: bytes
    """What characters become first, compiled by SentencePiece; empty: themselves."""
    prefix: bool
    """A blank is put before every text."""
    single_blanks: bool
    """Of blanks side by side one stays, and none at either end."""
    byte_fallback: bool
    unknown_to_us: tuple[str, ...]
    """What it asks for and nothing here does, in words."""


def read_sentencepiece_file(path: Path) -> SentencePieceFile:
    """The record of a file, or FileError."""
    size = path.stat().st_size
    if size > LARGEST:
        raise FileError(f"{path} has {size:,} bytes, more than any vocabulary", _REMEDY)
    try:
        return _file(path.read_bytes())
    except (ValueError, struct.error) as error:
        raise FileError(f"{path} is no SentencePiece model, or is damaged: {error}", _REMEDY) from error


def _file(content: bytes) -> SentencePieceFile:
    pieces: list[Piece] = []
    tables = {2: b"", 3: b"", 5: b""}
    for number, value in _fields(content):
        if number == 1:
            pieces.append(_piece(_message(value), len(pieces)))
        elif number in tables:
            tables[number] = _message(value)
    if not pieces:
        raise ValueError("it has no pieces")
    trained, first, last = (dict(_fields(tables[number])) for number in (2, 3, 5))
    roles = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}
    ids = {role: _signed(_whole(trained, number, usual)) for role, (number, usual) in roles.items()}
    algorithm = _whole(trained, 3, 1)
    lacking = {
        "blanks at the ends of words (treat_whitespace_as_suffix)": _whole(trained, 24, 0),
        "blanks kept as they are (escape_whitespaces = false)": not _whole(first, 5, 1),
        "rules for decoded texts (denormalizer_spec)": _message(last.get(2, b"")),
        "pieces that users defined": any(one.kind == USER_DEFINED for one in pieces),
        "pieces that are never used": any(one.kind == UNUSED for one in pieces),
    }
    return SentencePieceFile(
        pieces=tuple(pieces),
        algorithm=ALGORITHMS.get(algorithm, str(algorithm)),
        ids={role: one for role, one in ids.items() if 0 <= one < len(pieces)},
        rules=_message(first.get(2, b"")),
        prefix=bool(_whole(first, 3, 1)),
        single_blanks=bool(_whole(first, 4, 1)),
        byte_fallback=bool(_whole(trained, 35, 0)),
        unknown_to_us=tuple(words for words, there in lacking.items() if there),
    )


def _piece(content: bytes, place: int) -> Piece:
    said = dict(_fields(content))
    score = struct.unpack("<f", _message(said.get(2, bytes(4))))[0]
    kind = _whole(said, 3, NORMAL)
    try:
        text = _message(said.get(1, b"")).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"piece {place} is not UTF-8") from error
    if not text or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise ValueError(f"piece {place} is {text!r} of kind {kind} with a score of {score}")
    return Piece(text, score, kind)


def _fields(content: bytes) -> Iterator[Field]:
    """The fields of a message, in order: numbers as they are, the rest as bytes."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            whole, place = _varint(content, place)
            yield number, whole
            continue
        if kind == 2:
            length, place = _varint(content, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"byte {place} begins a field of kind {kind}")
        if length > len(content) - place:
            raise ValueError(f"it ends within field {number}, {length - len(content) + place} bytes early")
        yield number, content[place : place + length]
        place += length


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Seven bits of each byte, the lowest first, until one is below 128; and where it ends."""
    found = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            raise ValueError("it ends within a number")
        byte, place = content[place], place + 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, place
    raise ValueError(f"the number before byte {place} does not end")


def _signed(value: int) -> int:
    """An id, where −1 is written as ten bytes."""
    return value - 2**64 if value >= 2**63 else value


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"a number, {value}, stands where bytes must")
    return value


def _whole(said: dict[int, int | bytes], number: int, usual: int) -> int:
    value = said.get(number, usual)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value

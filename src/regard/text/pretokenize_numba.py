"""Cutting and counting the pieces of texts, compiled by Numba: what `bytelevel.pieces` finds, at the speed of reading.

    count_pieces(["the rose", " the"])  →  {"the": 1, " rose": 1, " the": 1}

The texts stand in one array of characters; a piece is known by its first place and its length, and found again by its
hash. Importing this file needs Numba; `training.py` does so where it is worth it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import numpy as np
from numpy.typing import NDArray

from regard.compiled import cached_njit
from regard.text.bytelevel import BLANKS

Numbers = NDArray[Any]
NONE = -1
SPACE, APOSTROPHE, D, E, L, M, R, S, T, V = map(ord, " 'delmrstv")
SIGN, LETTER, DIGIT, BLANK, OTHER = range(5)
"""What a character is; signs, letters and digits are those of ASCII."""


def _kinds() -> Numbers:
    """The kind of each character up to the last blank; those after it are others."""
    patterns = {LETTER: "[A-Za-z]", DIGIT: "[0-9]", BLANK: f"[{BLANKS}]", SIGN: "[\x00-\x7f]", OTHER: "(?s:.)"}
    kinds = [
        next(kind for kind in patterns if re.match(patterns[kind], chr(code))) for code in range(ord(BLANKS[-1]) + 1)
    ]
    return np.array(kinds, np.uint8)


_KINDS = _kinds()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the counting."""
    return cached_njit(function, {})


def count_pieces(texts: Sequence[str]) -> dict[str, int]:
    """How often each piece of the texts occurs."""
    whole = "".join(texts)
    codes = np.frombuffer(whole.encode("utf-32-le"), np.uint32)
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    starts, stops, counts = count(codes, ends, _KINDS)
    spans = zip(starts.tolist(), stops.tolist(), counts.tolist(), strict=True)
    return {whole[start:stop]: number for start, stop, number in spans}


@compiled
@no_type_check
def count(codes: Numbers, ends: Numbers, kinds: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Where each different piece first begins and stops, and how often it occurs."""
    starts, stops = np.empty(codes.size, np.int32), np.empty(codes.size, np.int32)
    counts = np.zeros(codes.size, np.int64)
    size = 1
    while size < 2 * codes.size:
        size *= 2
    known = np.full(size, NONE, np.int32)
    used, start = 0, 0
    for end in ends:
        while start < end:
            stop = _stop(codes, start, end, kinds)
            place = _find(codes, start, stop, starts, stops, known)
            if known[place] == NONE:
                known[place], starts[used], stops[used] = used, start, stop
                used += 1
            counts[known[place]] += 1
            start = stop
    return starts[:used], stops[:used], counts[:used]


@compiled
@no_type_check
def _stop(codes: Numbers, start: int, end: int, kinds: Numbers) -> int:
    """Where the piece that begins here stops; the alternatives of `bytelevel`'s pattern, in its order."""
    if codes[start] == APOSTROPHE:
        one = codes[start + 1] if start + 1 < end else 0
        two = codes[start + 2] if start + 2 < end else 0
        if one in (S, D, M, T):
            return start + 2
        if (one == L and two == L) or (one == V and two == E) or (one == R and two == E):
            return start + 3
    first = start + 1 if codes[start] == SPACE else start
    if first < end and _kind(codes, first, kinds) <= DIGIT:
        stop = first + 1
        while stop < end and _kind(codes, stop, kinds) == _kind(codes, first, kinds):
            stop += 1
        if stop == end or codes[stop] < 0x80:
            return stop
    stop = start
    while stop < end and _kind(codes, stop, kinds) == BLANK:
        stop += 1
    if stop > start and stop == end:
        return stop
    if stop > start + 1:
        return stop - 1
    if stop > first:  # a blank that is not the space
        return stop
    stop = first
    while stop < end and _kind(codes, stop, kinds) != BLANK:
        stop += 1
    return stop


@compiled
@no_type_check
def _kind(codes: Numbers, place: int, kinds: Numbers) -> int:
    return kinds[codes[place]] if codes[place] < kinds.size else OTHER


@compiled
@no_type_check
def _find(codes: Numbers, start: int, stop: int, starts: Numbers, stops: Numbers, known: Numbers) -> int:
    """The place in a table of numbers where that of an equal span stands; an empty one where there is none."""
    number = np.int64(14695981039346656037 - 2**64)  # FNV-1a
    for code in codes[start:stop]:
        number = (number ^ np.int64(code)) * np.int64(1099511628211)
    place = (number ^ (number >> 32)) & (known.size - 1)
    while known[place] != NONE and not _equal(codes, start, stop, starts[known[place]], stops[known[place]]):
        place = (place + 1) & (known.size - 1)
    return place


@compiled
@no_type_check
def _equal(codes: Numbers, start: int, stop: int, other_start: int, other_stop: int) -> bool:
    if stop - start != other_stop - other_start:
        return False
    for offset in range(stop - start):  # noqa: SIM110  (all of a generator is not compiled)
        if codes[start + offset] != codes[other_start + offset]:
            return False
    return True

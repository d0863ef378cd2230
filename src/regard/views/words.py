"""Pieces merged back into words: attention to a word is the sum over its pieces, from a word their mean.

Both keep a row's sum, so the merged rows of a softmax sum to 1 as the pieces' rows did (Clark et al. 2019, section 4).
The page that `regard.views.html` writes merges by the same rules, in its own script.

A word begins at a piece that begins with a blank (or SentencePiece's `▁`), after a blank, and before and after a
special token such as `<eos>` or `[CLS]`. Where pieces are WordPiece's, all but those that begin with `##` begin one.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError

SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\d*\]")
BLANKS = frozenset("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000▁") | {
    chr(code) for code in range(0x2000, 0x200B)
}
BYTES = re.compile(r"(?:\\x[89a-f][0-9a-f])+")


def is_special(piece: str) -> bool:
    """Whether a piece is one that a program adds: `<eos>`, `[CLS]`."""
    return SPECIAL.fullmatch(piece) is not None


def word_starts(pieces: Sequence[str]) -> list[int]:
    """Where each word begins.

    >>> word_starts(("<bos>", "He", " le", "ft", " ro", "ses", ".", "<eos>"))
    [0, 1, 2, 4, 7]
    """
    if any(piece.startswith("##") or piece == "[CLS]" for piece in pieces):
        return [at for at, piece in enumerate(pieces) if at == 0 or not piece.startswith("##")]
    return [at for at in range(len(pieces)) if at == 0 or _begins(pieces[at - 1], pieces[at])]


def join_pieces(pieces: Sequence[str]) -> str:
    r"""The word that pieces make; the bytes of one character, `\xc3` and `\xa9`, become it again."""
    text = "".join(piece.removeprefix("##") if at else piece for at, piece in enumerate(pieces))
    return BYTES.sub(lambda found: _characters(found.group()), text)


def merge_words(
    weights: NDArray[Any], rows: Sequence[str], columns: Sequence[str]
) -> tuple[NDArray[Any], tuple[str, ...], tuple[str, ...]]:
    """Weights `[heads, rows, columns]` between pieces as weights between words, and the words of both sides."""
    if weights.ndim != 3 or weights.shape[1:] != (len(rows), len(columns)) or 0 in weights.shape:
        raise InputError(
            f"weights of shape {list(weights.shape)} with {len(rows)} rows and {len(columns)} columns",
            "pass [heads, rows, columns], none of them 0, and one piece for every row and column",
        )
    row_starts, column_starts = word_starts(rows), word_starts(columns)
    sums = np.add.reduceat(weights.astype(np.float64), column_starts, axis=2)
    sums = np.add.reduceat(sums, row_starts, axis=1)
    pieces = np.diff([*row_starts, len(rows)])
    return sums / pieces[:, None], _words(rows, row_starts), _words(columns, column_starts)


def _begins(before: str, piece: str) -> bool:
    """Whether a piece begins a word, given the piece before it."""
    if is_special(piece) or is_special(before):
        return True
    return piece[:1] in BLANKS or before[-1:] in BLANKS


def _words(pieces: Sequence[str], starts: Sequence[int]) -> tuple[str, ...]:
    ends = [*starts[1:], len(pieces)]
    return tuple(join_pieces(pieces[start:end]) for start, end in zip(starts, ends, strict=True))


def _characters(escaped: str) -> str:
    """The text of `\\xc3\\xa9`, or that itself where the bytes are no text."""
    try:
        return bytes.fromhex(escaped.replace("\\x", "")).decode("utf-8")
    except UnicodeDecodeError:
        return escaped

r"""GPT-2's bytes (Radford et al. 2019, section 2.2): a symbol that prints for each of the 256, and the pattern that
keeps words apart.

    byte_words("the rose")  →  ["the", "Ġrose"]

A word is what the pattern finds, written in symbols: `Ġ` is the blank. Words are counted in two steps: a text is cut
into pieces, which are words up to the first sign that is not ASCII and then go on to the next blank, where the pattern
cuts anyway; then each different piece is cut once by an engine that knows all letters.
"""

import re
from collections.abc import Iterable, Mapping

from tokenizers.pre_tokenizers import ByteLevel

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
"""Endings of English, letters, numbers and other signs with a blank before them; of blanks, all but the last."""

BLANKS = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""What the engines' `\\s` is, for brackets; Python's has more."""
_PLAIN = r"(?![^\x00-\x7f])"
_PIECE = re.compile(
    rf"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]++{_PLAIN}| ?[0-9]++{_PLAIN}| ?[^{BLANKS}A-Za-z0-9\x80-\U0010ffff]++{_PLAIN}"
    rf"|[{BLANKS}]+(?![^{BLANKS}])| ?[^{BLANKS}]+|[{BLANKS}]+"
)  # PATTERN where only ASCII follows; else all up to a blank
_APART = "\x80"
"""Between words of ASCII."""
_ANY_WORD = ByteLevel(add_prefix_space=False)


def _symbols() -> str:
    """The symbol of each byte: itself where it prints, else the next from 256."""
    printing = {byte for first, last in ("!~", "¡¬", "®ÿ") for byte in range(ord(first), ord(last) + 1)}
    silent = [byte for byte in range(256) if byte not in printing]
    return "".join(chr(byte) if byte in printing else chr(256 + silent.index(byte)) for byte in range(256))


SYMBOLS = _symbols()
"""The symbol of byte 0, of byte 1, …"""
_BYTE_OF_SYMBOL = {symbol: byte for byte, symbol in enumerate(SYMBOLS)}


def symbols_of(text: bytes) -> str:
    """Bytes, each as its symbol."""
    return text.decode("latin-1").translate(SYMBOLS)


def bytes_of(symbols: str) -> bytes:
    """What symbols stand for; a name that is not written in symbols, such as `日`, for itself."""
    found = [_BYTE_OF_SYMBOL.get(symbol) for symbol in symbols]
    known = [byte for byte in found if byte is not None]
    return bytes(known) if len(known) == len(found) else symbols.encode()


def byte_words(text: str) -> list[str]:
    """The words of a text, in symbols."""
    if text.isascii():
        return [symbols_of(word.encode()) for word in pieces(text)]
    return [word for word, _ in _ANY_WORD.pre_tokenize_str(text)]


def pieces(text: str) -> list[str]:
    """A text cut where the pattern cuts it: into words, but for pieces that hold more than ASCII.

    `byte_words` of the pieces, each by itself, are `byte_words` of the text.
    """
    found: list[str] = _PIECE.findall(text)
    return found


def expand(found: Mapping[str, int]) -> dict[str, int]:
    """Counts of words, in symbols, from counts of pieces."""
    plain: dict[str, int] = {}
    counts: dict[str, int] = {}
    for piece, count in found.items():
        words, table = (pieces(piece), plain) if piece.isascii() else (byte_words(piece), counts)
        for word in words:
            table[word] = table.get(word, 0) + count
    spelt = symbols_of(_APART.join(plain).encode("latin-1")).split(SYMBOLS[ord(_APART)])  # all at once: faster
    for word, count in zip(spelt, plain.values(), strict=False):  # no words are spelt as one that is empty
        counts[word] = counts.get(word, 0) + count
    return counts


def is_byte_alphabet(tokens: Iterable[str]) -> bool:
    """Whether every token is written in symbols."""
    return all(token and _BYTE_OF_SYMBOL.keys() >= set(token) for token in tokens)

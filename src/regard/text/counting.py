"""How often each word of a corpus occurs, in bounded memory: files are read in blocks, no line is ever held whole, and
at most so many distinct words are kept.

    found = count_words(read_texts([Path("corpus.txt")]), str.split, most=1_000_000)
    found.counts, found.pruned, found.lost

When the table holds more than `most` words, all that occurred at most t times are dropped, t being the smallest number
that leaves at most half of `most` (the lossy counting of Manku & Motwani 2002, with buckets of unequal size). A word
that comes back begins at 0 again, so a count may fall short of the truth by at most the sum of those t: `lost`, which
bounds the true count of a word that is missing too. The rule looks at counts only and at fixed amounts of text: the
result is the same for any number of threads, in any process. Words come most frequent first, equals as text.

A text longer than a block is cut before a blank that is followed by something else, where GPT-2's pattern, BERT's and
`str.split` cut anyway; a word of more than `LONGEST_WORD` characters is cut into words of so many.
"""

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

from regard.errors import ConfigError, FileError, InputError
from regard.files import opened, refuse_packed

MOST_WORDS = 1_000_000
"""Distinct words kept by default: about 200 MB."""
LONGEST_WORD = 1024
BLOCK = 2**20
"""Bytes read, and characters counted, at a time."""

_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class WordCounts:
    """Words and how often each was counted, most frequent first, and what was dropped on the way."""

    counts: dict[str, int]
    total: int
    """Words read, every occurrence."""
    pruned: int
    """Entries that were dropped; a word that came back and was dropped again counts twice."""
    lost: int
    """The most that any word's count may fall short of the truth; 0 where nothing was dropped."""


def count_words(
    texts: Iterable[str], split: Callable[[str], Iterable[str]], *, most: int = MOST_WORDS, block: int = BLOCK
) -> WordCounts:
    """Count the words that `split` makes of each text; `block` characters at a time, which decides when to prune."""
    return count_blocks(texts, lambda together: Counter(chain.from_iterable(map(split, together))), most, block)


def count_blocks(
    texts: Iterable[str], counted: Callable[[list[str]], Mapping[str, int]], most: int = MOST_WORDS, block: int = BLOCK
) -> WordCounts:
    """The same with a function that counts the words of some texts at once."""
    if most < 2:
        raise ConfigError(f"a table of {most} words cannot be halved", "keep 2 or more; a million takes 200 MB")
    table: Counter[str] = Counter()
    total = pruned = lost = 0
    for together in _blocks(texts, block):
        found = counted(together)
        if max(map(len, found), default=0) > LONGEST_WORD:
            found = _in_parts(found)
        total += sum(found.values())
        table.update(found)
        if len(table) > most:
            least = _threshold(table, most // 2)
            kept = Counter({word: count for word, count in table.items() if count > least})
            pruned, lost, table = pruned + len(table) - len(kept), lost + least, kept
    ordered = sorted(sorted(table), key=table.__getitem__, reverse=True)  # equals stay as they were
    return WordCounts({word: table[word] for word in ordered}, total, pruned, lost)


def _in_parts(found: Mapping[str, int]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for word, count in found.items():
        for start in range(0, len(word), LONGEST_WORD):
            parts[word[start : start + LONGEST_WORD]] += count
    return parts


def _threshold(table: Counter[str], keep: int) -> int:
    """The smallest t such that at most `keep` words have a count above it."""
    ascending = sorted(Counter(table.values()).items())
    upto = accumulate(words for _, words in ascending)
    return next(count for (count, _), below in zip(ascending, upto, strict=True) if len(table) - below <= keep)


def _blocks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Texts in groups of about `size` characters; a longer text in several."""
    group: list[str] = []
    length = 0
    for text in texts:
        for piece in (text,) if len(valid_text(text)) <= size else cut_text(text, size):
            group.append(piece)
            length += len(piece)
            if length >= size:
                yield group
                group, length = [], 0
    if group:
        yield group


def cut_text(text: str, size: int) -> Iterator[str]:
    """A text in pieces of at most `size` characters, cut between words where one ends in time."""
    start = 0
    while len(text) - start > size:
        end = _place_to_cut(text, start, start + size)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _place_to_cut(text: str, start: int, end: int) -> int:
    """The last place up to `end` before a blank that something follows; `end` itself where a word is too long."""
    for at in range(end, max(start, end - LONGEST_WORD), -1):
        if text[at - 1] in " \n\t\r" and not text[at].isspace():
            return at - 1 if at - 1 > start else end
    return end


def valid_text(text: str) -> str:
    """The text itself, if it is Unicode that can be written as bytes."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"character {error.start} (U+{ord(text[error.start]):04X}) is half of a surrogate pair",
                "read the text as UTF-8, or replace such halves with text.encode('utf-8', 'replace').decode()",
            ) from error
    return text


def read_texts(paths: Iterable[Path], block: int = BLOCK) -> Iterator[str]:
    """The text of files, plain or packed with gzip, in pieces of about `block` bytes cut between words.

    UTF-8, or UTF-16 or UTF-32 with a byte-order mark; kept as written, line ends too.
    """
    for path in paths:
        rest, blank = "", True
        for decoded in _decoded(path, block):
            blank = blank and not decoded.strip()
            rest += decoded
            if decoded and len(rest) > LONGEST_WORD:  # what is shorter may be one word; at the end nothing is cut off
                end = _place_to_cut(rest, 0, len(rest) - 1)
                yield rest[:end]
                rest = rest[end:]
        if blank:
            raise FileError(f"{path} is empty", "give a file with some text in it")
        yield rest


def _decoded(path: Path, block: int) -> Iterator[str]:
    """A file's text, block by block; what is no text is refused with the line it stands in."""
    with opened(path) as stream:
        refuse_packed(path, stream.peek(8))
        raw = stream.read(block)
        encoding = next((name for mark, name in _ENCODINGS.items() if raw.startswith(mark)), "utf-8")
        decoder = codecs.getincrementaldecoder(encoding)()
        line, more = 1, True
        while more:
            more = bool(raw)
            try:
                text = decoder.decode(raw, final=not more)
            except UnicodeDecodeError as error:
                number = line + error.object[: error.start].count(b"\n")
                raise FileError(
                    f"{path}, line {number} is not {encoding.removesuffix('-sig').upper()} "
                    f"(byte 0x{error.object[error.start]:02x})",
                    "save the file as UTF-8, for instance with iconv -f LATIN1 -t UTF-8",
                ) from error
            if "\0" in text:
                number = line + text[: text.index("\0")].count("\n")
                raise FileError(f"{path}, line {number} holds a NUL, which no text has", "give a text file")
            line += text.count("\n")
            yield text
            raw = stream.read(block)

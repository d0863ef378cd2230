"""A corpus as Word2Vec reads it: words counted, rare ones left out, the rest as int32 ids in chunks (4 bytes a word).

Words are what stands between white space. A window never crosses the end of a line; a line longer than a piece of text
(about a megabyte, see `text/counting.py`) is read as several. Ids go from the most frequent word to the least, equals
as text, so the same corpus has the same ids everywhere.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32, Int64

from regard.errors import ConfigError, InputError
from regard.text.counting import LONGEST_WORD, MOST_WORDS, count_words

LINE_END = -1
"""Stands in a chunk where a line ends."""
LEAST = 1 << 17
"""Words of a chunk, at least; the last may be shorter."""

_MARK = "\0"  # no text holds it


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """The vocabulary with its counts, and the text as ids."""

    words: tuple[str, ...]
    counts: Int64[np.ndarray, "words"]
    chunks: tuple[Int32[np.ndarray, "_"], ...]

    @property
    def size(self) -> int:
        """How many words the text has, those that were left out not counted."""
        return int(self.counts.sum())

    @property
    def noise(self) -> Float64[np.ndarray, "words"]:
        """How likely each word is drawn as a wrong answer: in proportion to its count to the power ¾."""
        weights: Float64[np.ndarray, "words"] = self.counts**0.75
        total: float = weights.sum()
        return np.asarray(weights / total)

    def keep(self, sample: float) -> Float64[np.ndarray, "words"]:
        """How likely each occurrence is kept: √(sample/f) + sample/f, as word2vec does it; 1 for a rare word."""
        rarity = sample * self.size / self.counts
        chances: Float64[np.ndarray, "words"] = np.minimum(np.sqrt(rarity) + rarity, 1.0)
        return chances


def encode_corpus(texts: Callable[[], Iterable[str]], min_count: int = 5, *, most: int = MOST_WORDS) -> EncodedCorpus:
    """Read the texts twice: to count words, and to encode those that occur often enough; `texts` begins them anew."""
    found = count_words(texts(), _words, most=most)
    if found.lost >= min_count:
        raise ConfigError(
            f"of over {most:,} different words counts may fall short by {found.lost}, and min_count is {min_count}",
            f"use a min_count of {found.lost + 1} or more",
        )
    if not found.counts:
        raise InputError("the corpus has no words", "give a text with words between spaces")
    frequent = {word: count for word, count in found.counts.items() if count >= min_count}
    if len(frequent) < 2:
        word, count = next(iter(found.counts.items()))
        raise InputError(
            f"{len(frequent)} of {len(found.counts):,} words occur {min_count} times or more and two are needed "
            f"(the most frequent, {word[:40]!r}, occurs {count:,} times)",
            "lower min_count, or give more text",
        )
    chunks = tuple(_chunks(texts(), {word: row for row, word in enumerate(frequent)}))
    ids = np.concatenate([np.bincount(chunk[chunk >= 0], minlength=len(frequent))[None] for chunk in chunks])
    return EncodedCorpus(tuple(frequent), ids.sum(axis=0), chunks)


def _words(text: str) -> list[str]:
    """Without those too long to be counted, which are no words."""
    found = text.split()
    if max(map(len, found), default=0) > LONGEST_WORD:
        found = [word for word in found if len(word) <= LONGEST_WORD]
    return found


def _chunks(texts: Iterable[str], row_of: dict[str, int]) -> Iterator[Int32[np.ndarray, "_"]]:
    """Ids and ends of lines, at least so many at a time."""
    rows = {**row_of, _MARK: LINE_END}
    unknown = -2
    waiting: list[Int32[np.ndarray, "_"]] = []
    size = 0
    for text in texts:
        pieces = text.replace("\n", f" {_MARK} ").split()
        ids = np.fromiter((rows.get(piece, unknown) for piece in pieces), dtype=np.int32, count=len(pieces))
        waiting += [ids[ids != unknown], np.array([LINE_END], dtype=np.int32)]
        size += len(waiting[-2]) + 1
        if size >= LEAST:
            yield np.concatenate(waiting)
            waiting, size = [], 0
    if size:
        yield np.concatenate(waiting)

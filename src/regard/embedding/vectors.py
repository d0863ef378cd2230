"""Words and their vectors: neighbours, similarity, and analogies by 3CosAdd (Levy and Goldberg 2014, §3).

Files are read and written in `vectors_file.py`. A word without a vector is an error that names the nearest spellings:
no vector is ever made up for it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from regard.errors import InputError

CANDIDATES = 500
"""How many words that share letters with an unknown one are compared with it letter by letter."""


class Neighbour(NamedTuple):
    """A word and the cosine that brought it here."""

    word: str
    similarity: float


@dataclass(frozen=True, eq=False)
class Vectors:
    """Words, most frequent first where they were trained here, and a vector for each."""

    words: tuple[str, ...]
    matrix: Float32[np.ndarray, "words width"]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.matrix):
            raise InputError(
                f"{len(self.words)} words have {len(self.matrix)} vectors", "give one vector for each word"
            )
        if len(self.index) != len(self.words):
            word, times = Counter(self.words).most_common(1)[0]
            raise InputError(f"the word {word!r} has {times} vectors", "give one vector for each word")

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of every word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def unit(self) -> Float32[np.ndarray, "words width"]:
        """Every vector at length 1; a vector of zeros stays."""
        largest = np.maximum(self.matrix.max(axis=1, keepdims=True), -self.matrix.min(axis=1, keepdims=True))
        scaled = self.matrix / np.where(largest > 0, largest, np.float32(1))  # squares of 1e30 would be infinite
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        return np.asarray(scaled / np.where(lengths > 0, lengths, np.float32(1)), dtype=np.float32)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> Float32[np.ndarray, "width"]:
        row: Float32[np.ndarray, "width"] = self.matrix[self.row(word)]
        return row

    def row(self, word: str) -> int:
        """The row of a word; if it has none, the error names the nearest spellings."""
        if word in self.index:
            return self.index[word]
        near = self.spellings(word)
        remedy = f"the nearest spellings that have one: {', '.join(near)}" if near else "no spelling is near it"
        raise InputError(f"the word {word!r} has no vector among the {len(self):,} here", remedy)

    def spellings(self, word: str, most: int = 5) -> list[str]:
        """Words spelt most like this one: other capitals first, then by matching letters."""
        folded = word.casefold()
        room = max(2, len(word) // 3)
        pairs = _pairs(folded)
        near = [other for other in self.words if abs(len(other) - len(word)) <= room]
        shared = [(len(pairs & _pairs(other.casefold())), other) for other in near]
        candidates = [other for count, other in sorted(shared, key=lambda one: -one[0])[:CANDIDATES] if count]
        same = [other for other in candidates if other.casefold() == folded]
        return [*same, *(other for other in get_close_matches(word, candidates, most) if other not in same)][:most]

    def similarity(self, first: str, second: str) -> float:
        """The cosine between two words' vectors."""
        return float(self.unit[self.row(first)] @ self.unit[self.row(second)])

    def neighbours(self, word: str, count: int = 10) -> list[Neighbour]:
        """The words with the largest cosines to this one, itself left out; of equals the first in the file."""
        row = self.row(word)
        return self._nearest(self.unit[row], [row], count)

    def analogy(self, first: str, second: str, third: str, count: int = 10) -> list[Neighbour]:
        """`first` is to `second` as `third` is to …: largest cosines to second − first + third, the three left out."""
        rows = [self.row(word) for word in (first, second, third)]
        sought = self.unit[rows[1]] - self.unit[rows[0]] + self.unit[rows[2]]
        length = float(np.linalg.norm(sought))
        return self._nearest(sought / np.float32(length or 1.0), rows, count)

    def _nearest(self, sought: Float32[np.ndarray, "width"], without: Sequence[int], count: int) -> list[Neighbour]:
        if count < 1:
            raise InputError(f"{count} neighbours cannot be found", "ask for 1 or more")
        cosines = self.unit @ sought
        cosines[list(without)] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(count, len(self) - len(set(without)))]
        return [Neighbour(self.words[row], float(cosines[row])) for row in best]


def _pairs(text: str) -> set[str]:
    """Its letters two by two, with its ends."""
    marked = f" {text} "
    return {marked[place : place + 2] for place in range(len(marked) - 1)}

"""Learning a WordPiece vocabulary from word counts (Schuster & Nakajima 2012, section 3), always the same.

A word begins as its characters, all but the first marked `##`. Then, again and again, the pair of neighbours that
scores highest becomes one piece wherever it stands, until there are as many pieces as asked for or no pair occurs
twice. With n, a and b how often the pair, its left and its right piece occur now, and N all pieces together, the score
is one of

    likelihood   n · log(n·N / (a·b))   how much more likely pieces drawn one by one make the corpus, as the paper says
    ratio        n / (a·b)              how surprising the pair is, however rare; often given as WordPiece's rule

Of equal scores (to 12 digits: logarithms may round differently elsewhere) the pair that occurs more often is taken,
then the one whose left piece, then right piece, comes first as text. Nothing depends on the size asked for but where
to stop, so a smaller vocabulary is the beginning of a larger one.

A piece's count falls when it is merged, and then every pair it is in scores differently; so the scores of all pairs are
one array, a merge computes those of the pairs around it anew, and the best is found by looking at all.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ConfigError, InputError, VocabularyError, choose

PREFIX = "##"
LONGEST_WORD = 100
"""BERT's: a word of more characters is unknown, so nothing is learnt from it."""
MOST_CHARACTERS = 1000
"""The most frequent characters are pieces; a word with another one is unknown."""

Numbers = NDArray[Any]


def _likelihood(pair: Numbers, left: Numbers, right: Numbers) -> Numbers:
    found: Numbers = pair * np.log(pair / (left * right))  # n · log N is added when pairs are compared
    return found


def _ratio(pair: Numbers, left: Numbers, right: Numbers) -> Numbers:
    found: Numbers = pair / (left * right)
    return found


SCORES: dict[str, tuple[Callable[[Numbers, Numbers, Numbers], Numbers], bool]] = {
    "likelihood": (_likelihood, True),
    "ratio": (_ratio, False),
}
"""Each score of a pair's count and its pieces' counts, and whether n · log N is still to be added."""


def learn_pieces(
    counts: Mapping[str, int], size: int, *, score: str = "likelihood", specials: Sequence[str] = ()
) -> list[str]:
    """A vocabulary in the order of its ids: special tokens, characters, then pieces in the order they were learnt.

    It has `size` entries where there is enough to merge.
    """
    if score not in SCORES:
        raise ConfigError(f"{score!r} is not a score of WordPiece", choose(score, SCORES))
    words = _known_words(counts)
    if not words:
        raise InputError("there are no words to learn pieces from", "give texts with some words in them")
    learner = _Learner(words, score)
    letters = len(learner.pieces)
    if size < len(specials) + letters:
        what = f"the {letters} characters of these texts, first in a word or later"
        raise VocabularyError(size, len(specials), letters, what)
    while len(specials) + len(learner.pieces) < size and learner.merge():
        pass
    return [*specials, *learner.pieces]


def _known_words(counts: Mapping[str, int]) -> dict[str, int]:
    """The words that encoding can know: not too long, and of the most frequent characters."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    kept = {one for one, _ in sorted(characters.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_CHARACTERS]}
    return {word: n for word, n in counts.items() if 0 < len(word) <= LONGEST_WORD and kept.issuperset(word)}


class _Learner:
    """The words as pieces, every pair of neighbours with its score and the words it stands in."""

    def __init__(self, counts: Mapping[str, int], score: str) -> None:
        begins = {word[0] for word in counts}
        goes_on = {PREFIX + character for word in counts for character in word[1:]}
        self.pieces = [*sorted(begins), *sorted(goes_on)]
        self._index = {piece: at for at, piece in enumerate(self.pieces)}
        self._score, self._linear = SCORES[score]
        self._frequencies = list(counts.values())
        first = self._index
        later = {character[len(PREFIX) :]: self._index[character] for character in goes_on}
        self._words = [[first[word[0]], *map(later.__getitem__, word[1:])] for word in counts]
        self._occurrences = np.zeros(len(self.pieces), dtype=np.float64)
        self._slots: dict[tuple[int, int], int] = {}
        self._where: list[list[int]] = []
        self._left, self._right = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        self._pair, self._scores = np.zeros(0), np.zeros(0)
        self._count_all()

    def _count_all(self) -> None:
        occurrences: defaultdict[int, int] = defaultdict(int)
        changes: defaultdict[tuple[int, int], int] = defaultdict(int)
        places: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for at, (word, frequency) in enumerate(zip(self._words, self._frequencies, strict=True)):
            for piece in word:
                occurrences[piece] += frequency
            for pair in pairwise(word):
                changes[pair] += frequency
                places[pair].append(at)
        for piece, count in occurrences.items():
            self._occurrences[piece] = count
        self._apply(changes, places)
        self._rescore(np.arange(len(self._slots)))

    def merge(self) -> bool:
        """Make the best pair one piece; False where no pair occurs twice."""
        best = self._best()
        if best is None:
            return False
        left, right = int(self._left[best]), int(self._right[best])
        text = self.pieces[left] + self.pieces[right].removeprefix(PREFIX)
        if text not in self._index:  # another pair may have made the same piece before
            self._index[text] = len(self.pieces)
            self.pieces.append(text)
            self._occurrences = np.append(self._occurrences, 0.0)
        made = self._index[text]
        changes: defaultdict[tuple[int, int], int] = defaultdict(int)
        places: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        merged = 0
        for at in dict.fromkeys(self._where[best]):
            merged += self._merge_word(at, (left, right, made), changes, places)
        self._where[best] = []
        changes.pop((left, right), None)
        self._pair[best] = 0
        self._apply(changes, places)
        for piece, change in ((left, -merged), (right, -merged), (made, merged)):
            self._occurrences[piece] += change
        touched = np.zeros(len(self._slots), dtype=np.bool_)
        for piece in {left, right, made}:
            touched |= self._left[: len(touched)] == piece
            touched |= self._right[: len(touched)] == piece
        self._rescore(np.flatnonzero(touched))
        return True

    def _best(self) -> int | None:
        """The pair of the highest score, ties decided by count and then by text."""
        used = len(self._slots)
        if not used:
            return None
        scores, pair = self._scores[:used], self._pair[:used]
        if self._linear:
            scores = scores + pair * np.log(self._occurrences.sum())
        highest = float(scores.max())
        if highest == -np.inf:
            return None
        equal: list[int] = np.flatnonzero(scores >= highest - abs(highest) * 1e-12).tolist()
        return min(equal, key=self._order)

    def _order(self, slot: int) -> tuple[float, str, str]:
        return -float(self._pair[slot]), self.pieces[self._left[slot]], self.pieces[self._right[slot]]

    def _merge_word(
        self,
        at: int,
        merge: tuple[int, int, int],
        changes: defaultdict[tuple[int, int], int],
        places: defaultdict[tuple[int, int], list[int]],
    ) -> int:
        """Merge one pair in one word; the neighbours' counts go into `changes`, what was merged comes back."""
        left, right, made = merge
        word, frequency = self._words[at], self._frequencies[at]
        out: list[int] = []
        place, last, found = 0, len(word) - 1, 0
        while place <= last:
            piece = word[place]
            if piece != left or place == last or word[place + 1] != right:
                out.append(piece)
                place += 1
                continue
            found += frequency
            if out:
                changes[out[-1], left] -= frequency
                changes[out[-1], made] += frequency
                places[out[-1], made].append(at)
            if place + 1 < last:
                after = word[place + 2]
                changes[right, after] -= frequency
                changes[made, after] += frequency
                places[made, after].append(at)
            out.append(made)
            place += 2
        self._words[at] = out
        return found

    def _apply(self, changes: Mapping[tuple[int, int], int], places: Mapping[tuple[int, int], list[int]]) -> None:
        """Add changes to the pairs' counts; pairs not met before get a place in the arrays."""
        used = len(self._slots)
        new = [pair for pair, change in changes.items() if change > 0 and pair not in self._slots]
        self._slots.update(zip(new, range(used, used + len(new)), strict=True))
        if len(self._slots) > len(self._left):
            room = 2 * len(self._slots)
            for name in ("_left", "_right", "_pair", "_scores"):
                old = getattr(self, name)
                grown = np.zeros(room, dtype=old.dtype)
                grown[: len(old)] = old
                setattr(self, name, grown)
        for pair in new:
            slot = self._slots[pair]
            self._left[slot], self._right[slot] = pair
            self._where.append([])
        for pair, change in changes.items():
            slot = self._slots.get(pair, -1)
            if slot >= 0:
                self._pair[slot] += change
        for pair, words in places.items():
            if pair in self._slots:
                self._where[self._slots[pair]] += words

    def _rescore(self, slots: Numbers) -> None:
        """The scores of these pairs anew; a pair that does not occur twice has none."""
        pair = self._pair[slots]
        left, right = self._occurrences[self._left[slots]], self._occurrences[self._right[slots]]
        scores = np.full(len(slots), -np.inf)
        often = pair >= 2
        scores[often] = self._score(pair[often], left[often], right[often])
        self._scores[slots] = scores

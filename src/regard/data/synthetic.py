"""Corpora `copy`, `reverse` and `sort`: rows of letters whose answer is known exactly.

    source     copy       reverse    sort
    d a c a    d a c a    a c a d    a a c d

Sequences are what the splits hold out: each belongs to one split by a hash of its text, so no valid or test
source is ever in train, and valid and test hold `held_out` different sequences each. Train is endless and may
repeat itself. Lengths are equally likely. Targets of `sort` may meet across splits: many rows sort to one.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from string import ascii_lowercase
from typing import ClassVar

from regard.data.corpus import Corpus, Pair, Split, draw, draws, generator, register, require_index, stable_hash
from regard.errors import ConfigError, InputError

_TENTHS = 10  # of all sequences: one for test, one for valid, the others for train


@dataclass(frozen=True)
class Sequences(Corpus):
    """What the three have in common; a subclass gives `name` and `answer`."""

    symbols: int = 26
    shortest: int = 4
    longest: int = 16
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.symbols <= len(ascii_lowercase):
            raise ConfigError(f"symbols is {self.symbols}, but letters run from a to z", "use 2 to 26 symbols")
        if not 1 <= self.shortest <= self.longest:
            raise ConfigError(
                f"lengths from {self.shortest} to {self.longest} are no range", "use 1 <= shortest <= longest"
            )
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")
        # A tenth of all sequences falls to valid and to test each. With this many, the chance that either
        # has fewer than `held_out` is below 1e-40, and they are found quickly.
        needed = 40 * self.held_out + 1000
        exist = 0
        for length in range(self.shortest, self.longest + 1):
            exist += self.symbols**length
            if exist >= needed:
                break
        else:
            raise ConfigError(
                f"{self.symbols} symbols in lengths {self.shortest} to {self.longest} are {exist} sequences, "
                f"but to hold out {self.held_out} for valid and test each takes {needed}",
                "raise longest or symbols, or lower held_out",
            )

    @abstractmethod
    def answer(self, letters: list[str]) -> list[str]:
        """The target's letters."""

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> Pair:
        """A row of letters and its answer."""
        require_index(split, index, self.size(split))
        if split == "train":
            source = self._draw_for(split, generator("sequences", self.seed, split, index))
        else:
            source = _held_out(self, split)[index]
        return Pair(source, " ".join(self.answer(source.split(" "))))

    def check(self, source: str) -> None:
        """Refuse other symbols and lengths than the corpus has."""
        alphabet = ascii_lowercase[: self.symbols]
        letters = source.split(" ")
        for letter in letters:
            if len(letter) != 1 or letter not in alphabet:
                raise InputError(
                    f"{letter!r} is not one of the {self.symbols} symbols",
                    f"use letters from {alphabet[0]} to {alphabet[-1]} with one space between them",
                )
        if not self.shortest <= len(letters) <= self.longest:
            raise InputError(
                f"{len(letters)} letters are outside the lengths taught, {self.shortest} to {self.longest}",
                "use a length in that range, or train with other shortest and longest",
            )

    def _draw_for(self, split: Split, random: Random) -> str:
        """Draw sequences until one belongs to the split."""
        while True:
            length = self.shortest + draw(random, self.longest - self.shortest + 1)
            text = " ".join(ascii_lowercase[symbol] for symbol in draws(random, self.symbols, length))
            if split_of(self.seed, text) == split:
                return text


def split_of(seed: int, text: str) -> Split:
    """The one split a sequence belongs to."""
    bucket = stable_hash("sequences", seed, text) % _TENTHS
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


@lru_cache(maxsize=16)
def _held_out(corpus: Sequences, split: Split) -> tuple[str, ...]:
    """The different sequences of a finite split, in the order they were first drawn."""
    random = generator("sequences", corpus.seed, split)
    found: dict[str, None] = {}
    while len(found) < corpus.held_out:
        found[corpus._draw_for(split, random)] = None
    return tuple(found)


@register
@dataclass(frozen=True)
class Copy(Sequences):
    """The same row again."""

    name: ClassVar[str] = "copy"

    def answer(self, letters: list[str]) -> list[str]:
        """The letters as they are."""
        return letters


@register
@dataclass(frozen=True)
class Reverse(Sequences):
    """The row from its end."""

    name: ClassVar[str] = "reverse"

    def answer(self, letters: list[str]) -> list[str]:
        """The letters, last first."""
        return letters[::-1]


@register
@dataclass(frozen=True)
class Sort(Sequences):
    """The row in alphabetical order."""

    name: ClassVar[str] = "sort"

    def answer(self, letters: list[str]) -> list[str]:
        """The letters from a to z, repeated ones kept."""
        return sorted(letters)

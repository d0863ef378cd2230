"""Corpus `recall`: keys with their values, hidden in a long text, and questions about them at its end.

    source   40aβ7713Kω2…95 a<mask>K<mask>a<mask>      (without the blank)
    target   β ω β

Keys are Latin letters, each once among the filler of digits and followed by its value, a small Greek letter; at the end
keys are asked for again, and a gap stands where the value is to be told. So the answer is far from the question, a text
asks many questions at once (which is what makes it quick to learn), and guessing is right once in 24 times. It is the
associative recall of Arora et al. (2023, §3), in a text of any length. A gap stands after its key in either reading
direction, so encoders and decoders are asked the same.

Splits are drawn apart. Two texts are never the same but by a chance below 1e-10: every one has `FILLER` digits or more.
"""

from dataclasses import dataclass
from random import Random
from string import ascii_letters
from typing import ClassVar

from regard.data.cloze import GAP
from regard.data.corpus import Corpus, Pair, Split, draw, draws, generator, register, require_index
from regard.errors import ConfigError

KEYS = ascii_letters
VALUES = "αβγδεζηθικλμνξοπρστυφχψω"
DIGITS = "0123456789"
SPECIAL_TOKENS = 2
"""What a model reads round a text."""
FILLER = 16


@dataclass(frozen=True)
class Recall(Corpus):
    """Texts of one length, each with the same number of keys and of questions."""

    name: ClassVar[str] = "recall"

    length: int = 512
    """Tokens that a model reads: the text's and the special ones round it."""
    pairs: int = 16
    queries: int = 64
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= len(KEYS):
            raise ConfigError(f"pairs is {self.pairs}, but the keys are {len(KEYS)} letters", f"use 1 to {len(KEYS)}")
        if self.queries < 1 or self.held_out < 1:
            least = "queries" if self.queries < 1 else "held_out"
            raise ConfigError(f"{least} is {getattr(self, least)}, so nothing is asked", "use 1 or more")
        if self.filler < FILLER:
            taken = 2 * (self.pairs + self.queries) + SPECIAL_TOKENS
            raise ConfigError(
                f"{self.pairs} pairs and {self.queries} queries take {taken} of {self.length} tokens and hide in "
                f"{max(self.filler, 0)} others",
                f"use length {taken + FILLER} or more, or fewer pairs or queries",
            )

    @property
    def filler(self) -> int:
        """How many digits a text has."""
        return self.length - SPECIAL_TOKENS - 2 * (self.pairs + self.queries)

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> Pair:
        """A text with its gaps, and what stands in them."""
        require_index(split, index, self.size(split))
        random = generator("recall", self.seed, split, index)
        keys = [KEYS[place] for place in different(random, len(KEYS), self.pairs)]
        values = [VALUES[place] for place in draws(random, len(VALUES), self.pairs)]
        text = [DIGITS[digit] for digit in draws(random, len(DIGITS), self.filler + self.pairs)]
        places = different(random, len(text), self.pairs)
        for place, key, value in zip(places, keys, values, strict=True):
            text[place] = key + value
        asked = draws(random, self.pairs, self.queries)
        questions = "".join(keys[one] + GAP for one in asked)
        return Pair("".join(text) + questions, " ".join(values[one] for one in asked))


register(Recall)


def different(random: Random, count: int, times: int) -> list[int]:
    """So many different numbers from 0 to count − 1, every choice and order equally likely."""
    found: dict[int, None] = {}
    while len(found) < times:
        found[draw(random, count)] = None
    return list(found)

"""Corpus `recall`: keys with their values, hidden in a long text, and questions about them at its end.

    source   40가7713너2…95ㄱㄴㄱ
    target   ㅏ ㅓ ㅏ

A Hangul syllable is one character made of two, so one token holds a key and its value: 가 says of ㄱ that it is ㅏ.
Keys are the 19 first letters, each at most once among the filler of digits, values the 21 vowels. At the end keys stand
alone: each is a question, and a gap that the vowel belongs in. So all that is asked for is to find one token among
thousands by what it says, whatever lies between; a text asks many questions at once, which makes it quick to learn;
guessing is right once in 21 times. It is associative recall (Arora et al. 2023, §3) without the neighbourhood of key
and value, which is another skill, and slow to learn.

Splits are drawn apart. Two texts are never the same but by a chance below 1e-10: every one has `FILLER` digits or more.
"""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from regard.data.corpus import Corpus, Pair, Split, draw, draws, generator, register, require_index
from regard.errors import ConfigError

KEYS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VALUES = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
DIGITS = "0123456789"
FIRST_SYLLABLE, FINALS = 0xAC00, 28
"""Where Unicode has 가, and how many syllables it has for each pair of key and value (3.12, conjoining jamo)."""
SPECIAL_TOKENS = 2
"""What a model reads round a text."""
FILLER = 16


@dataclass(frozen=True)
class Recall(Corpus):
    """Texts of one length, each with the same number of pairs and of questions."""

    name: ClassVar[str] = "recall"

    length: int = 512
    """Tokens that a model reads: the text's and the special ones round it."""
    pairs: int = 16
    queries: int = 64
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= len(KEYS):
            raise ConfigError(f"pairs is {self.pairs}, but there are {len(KEYS)} keys", f"use 1 to {len(KEYS)}")
        if self.queries < 1 or self.held_out < 1:
            least = "queries" if self.queries < 1 else "held_out"
            raise ConfigError(f"{least} is {getattr(self, least)}, so nothing is asked", "use 1 or more")
        if self.filler < FILLER:
            taken = self.pairs + self.queries + SPECIAL_TOKENS
            raise ConfigError(
                f"{self.pairs} pairs and {self.queries} queries take {taken} of {self.length} tokens and hide in "
                f"{max(self.filler, 0)} others",
                f"use length {taken + FILLER} or more, or fewer pairs or queries",
            )

    @property
    def filler(self) -> int:
        """How many digits a text has."""
        return self.length - SPECIAL_TOKENS - self.pairs - self.queries

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> Pair:
        """A text with its questions, and their answers."""
        require_index(split, index, self.size(split))
        random = generator("recall", self.seed, split, index)
        keys = different(random, len(KEYS), self.pairs)
        values = draws(random, len(VALUES), self.pairs)
        text = digits(random, self.filler + self.pairs)
        places = different(random, len(text), self.pairs)
        for place, key, value in zip(places, keys, values, strict=True):
            text[place] = syllable(key, value)
        asked = draws(random, self.pairs, self.queries)
        questions = "".join(KEYS[keys[one]] for one in asked)
        return Pair("".join(text) + questions, " ".join(VALUES[values[one]] for one in asked))


register(Recall)


def syllable(key: int, value: int) -> str:
    """The character made of this key and this value, by their numbers."""
    return chr(FIRST_SYLLABLE + (key * len(VALUES) + value) * FINALS)


def digits(random: Random, count: int) -> list[str]:
    """So many digits, all ten equally likely: bytes below 250 by their last one, the others left out."""
    found = ""
    while len(found) < count:
        found += random.randbytes(2 * count).translate(_AS_DIGITS, _LEFT_OUT).decode("ascii")
    return list(found[:count])


_AS_DIGITS, _LEFT_OUT = bytes(ord(DIGITS[byte % 10]) for byte in range(256)), bytes(range(250, 256))


def different(random: Random, count: int, times: int) -> list[int]:
    """So many different numbers from 0 to count − 1, every choice and order equally likely."""
    found: dict[int, None] = {}
    while len(found) < times:
        found[draw(random, count)] = None
    return list(found)

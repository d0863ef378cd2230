"""Corpus `listops`: nested operations on digits, and which digit they come to (Nangia & Bowman 2018).

    source   [MAX 2 9 [MIN 4 7 ] 0 ]      target   9

Drawn as the Long Range Arena draws it (Tay et al. 2020, §2.2.1 and its published generator): a place is an operation
with probability ¼ and else a digit, an operation has 2 to 10 arguments, ten levels are the most, and of what is drawn
only texts of more than 500 and fewer than 2,000 tokens are kept. The operations are the least (MIN), the greatest
(MAX), the median rounded down (MED) and the sum modulo ten (SM). It writes brackets round every application too, which
its models never read; they are left out. Its training split has 96,000 texts, this one has no end.

Splits are drawn apart. Two texts of so many tokens are never the same but by a chance below 1e-30.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from regard.data.corpus import Corpus, Pair, Split, generator, register, require_index
from regard.errors import ConfigError, InputError

OPERATION = 0.25
"""The probability that a place is one."""
MOST_ARGUMENTS, DEEPEST, LEAST, MOST = 10, 10, 100, 4000


def _median(values: list[int]) -> int:
    """The middle value; of an even number of them the mean of both middle ones, rounded down."""
    ranked, middle = sorted(values), len(values) // 2
    return ranked[middle] if len(values) % 2 else (ranked[middle - 1] + ranked[middle]) // 2


OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": _median,
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
_NAMES, _DIGITS = tuple(OPERATORS), "0123456789"


@dataclass(frozen=True)
class ListOps(Corpus):
    """Texts of more than `shortest` and fewer than `longest` tokens."""

    name: ClassVar[str] = "listops"

    shortest: int = 500
    longest: int = 2000
    held_out: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.shortest >= LEAST and 2 * self.shortest <= self.longest <= MOST):
            raise ConfigError(
                f"lengths between {self.shortest} and {self.longest} are too few or too rare to draw",
                f"use shortest from {LEAST}, and longest from twice that to {MOST}",
            )
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> Pair:
        """An expression and its value."""
        require_index(split, index, self.size(split))
        random = generator("listops", self.seed, split, index)
        while True:
            drawn = _drawn(random, self.longest)
            if drawn is not None and len(drawn[0]) > self.shortest:
                return Pair(" ".join(drawn[0]), str(drawn[1]))

    def check(self, source: str) -> None:
        """Refuse what is no expression."""
        evaluate(source)


register(ListOps)


def _drawn(random: Random, longest: int) -> tuple[list[str], int] | None:
    """The words of an expression, from left to right, and its value; None of one that has grown too long."""
    chance = random.random
    words: list[str] = []
    operations: list[Callable[[list[int]], int]] = []
    values: list[list[int]] = [[]]
    missing = [1]  # at every level, how many arguments are still to come
    while True:
        if len(words) >= longest:
            return None
        if not missing[-1]:
            if not operations:
                return words, values[0][0]
            missing.pop()
            words.append(END)
            found = operations.pop()(values.pop())
            values[-1].append(found)
            continue
        missing[-1] -= 1
        if len(missing) < DEEPEST and chance() < OPERATION:
            name = _NAMES[int(chance() * len(_NAMES))]
            words.append(name)
            operations.append(OPERATORS[name])
            values.append([])
            missing.append(2 + int(chance() * (MOST_ARGUMENTS - 1)))
        else:
            digit = int(chance() * 10)
            words.append(_DIGITS[digit])
            values[-1].append(digit)


def evaluate(text: str) -> int:
    """What an expression comes to; raise InputError if it is none."""
    remedy = "write it as [MAX 2 9 [MIN 4 7 ] 0 ], with one space between words"
    open_names: list[str] = []
    values: list[list[int]] = [[]]
    for word in text.split(" "):
        if word in OPERATORS:
            open_names.append(word)
            values.append([])
        elif word == END and open_names and values[-1]:
            found = OPERATORS[open_names.pop()](values.pop())
            values[-1].append(found)
        elif len(word) == 1 and word in _DIGITS:
            values[-1].append(int(word))
        else:
            raise InputError(f"{word!r} cannot stand where it does in {text[:40]!r}", remedy)
    if open_names or len(values[0]) != 1:
        raise InputError(f"{text[:40]!r} is not one whole expression", remedy)
    return values[0][0]

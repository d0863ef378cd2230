"""A stream of batches that is a pure function of (corpus, seed, position): it can start anywhere.

Examples are taken in pools; a pool is cut into batches that fill about `tokens` places each, by default of examples of
like length, and the batches are shuffled. A finite corpus is shuffled anew every epoch and every example is in each
epoch once. Resuming is starting at a `Position`.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nlargest
from typing import Protocol, runtime_checkable

from regard.data.batching import Batch, Inputs
from regard.data.corpus import Examples
from regard.data.objectives import Example, Objective
from regard.errors import ConfigError

POOL = 4096
"""Examples sorted together: enough for tight batches, few enough to begin at once."""

LONGEST = 64
"""Texts with the most characters, among which the one with the most tokens is looked for."""


@dataclass(frozen=True)
class Position:
    """Where a stream stands: the pool and the batch in it that comes next."""

    pool: int = 0
    batch: int = 0


@runtime_checkable
class Batches(Protocol):
    """Endless batches that can start anywhere. Law: starting at a position gives what followed it the first time."""

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """Batches from here on, each with the position after it."""
        ...


@runtime_checkable
class Countable(Protocol):
    """Batches that come in epochs."""

    def batches_per_epoch(self) -> float | None:
        """How many an epoch has, or about; None where the data have no end."""
        ...


Row = list[Example]
"""What stands in one row of a batch."""


@runtime_checkable
class Batching(Protocol):
    """How a pool becomes batches. Laws: every example is in one batch, once; none fills more than `tokens` places."""

    def cut(self, examples: Sequence[Example], objective: Objective, tokens: int) -> list[list[Row]]:
        """The rows of each batch."""
        ...

    def batch(self, rows: Sequence[Row], objective: Objective) -> Batch:
        """One batch of these rows."""
        ...


class ByLength:
    """One example in a row, examples of like length in a batch."""

    def cut(self, examples: Sequence[Example], objective: Objective, tokens: int) -> list[list[Row]]:
        """Sorted by length, as many as fit."""
        return [[[example] for example in batch] for batch in by_length(examples, objective, tokens)]

    def batch(self, rows: Sequence[Row], objective: Objective) -> Batch:
        """The objective's own batch."""
        return objective.batch([example for row in rows for example in row])


class FewShapes(ByLength):
    """From the longest down, as many rows as there is room for: of rounded lengths, every width has its one height."""

    def cut(self, examples: Sequence[Example], objective: Objective, tokens: int) -> list[list[Row]]:
        """The last rows of a width are filled up with shorter examples."""
        ordered = sorted(examples, key=objective.cost, reverse=True)
        batches, first = [], 0
        while first < len(ordered):
            together = tokens // require_room(ordered[first], objective, tokens)
            batches.append([[example] for example in ordered[first : first + together]])
            first += together
        return batches


@dataclass(frozen=True)
class BatchStream:
    """Endless batches of a corpus's training split."""

    corpus: Examples
    objective: Objective
    tokens: int
    seed: int = 0
    batching: Batching = field(default_factory=ByLength)

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """Batches from here on, each with the position after it."""
        pool, first = position.pool, position.batch
        while True:
            batches = self._pool(pool)
            for index in range(first, len(batches)):
                after = Position(pool, index + 1) if index + 1 < len(batches) else Position(pool + 1)
                yield self.batching.batch(batches[index], self.objective), after
            pool, first = pool + 1, 0

    def tokens_per_epoch(self) -> int | None:
        """Tokens read in an epoch, by the first pool where there are several; None of a corpus without end."""
        size = self.corpus.size("train")
        if size is None:
            return None
        read = sum(self.batching.batch(rows, self.objective).tokens for rows in self._pool(0))
        return read if size <= POOL else round(read * size / POOL)

    def longest(self) -> int | None:
        """Tokens of the longest row that is read: an encoder–decoder's source, a decoder's whole row.

        A corpus without end says itself what it teaches.
        """
        return max((int((one.source or one.tokens).lengths.max()) for one in self._longest()), default=None)

    def reach(self) -> int | None:
        """Tokens of the longest source or target: as many positions as the network needs."""
        sides = [one for row in self._longest() for one in (row.source, row.tokens) if one is not None]
        return max((int(one.lengths.max()) for one in sides), default=None)

    def _longest(self) -> list[Inputs]:
        """Rows of the texts with the most characters; only these are tokenised."""
        size = self.corpus.size("train")
        if size is None:
            return []
        pairs = [self.corpus.example("train", index) for index in range(size)]
        measures = (lambda pair: len(pair[0]), lambda pair: sum(map(len, pair)))
        chosen = [pair for measure in measures for pair in nlargest(LONGEST, pairs, key=measure)]
        return [self.objective.batch([one]).inputs for one in self.objective.encode(chosen)]

    def batches_per_epoch(self) -> float | None:
        """As many as if all pools were like the first."""
        size = self.corpus.size("train")
        return None if size is None else len(self._pool(0)) * size / len(self._indices(0))

    def _pool(self, pool: int) -> list[list[Row]]:
        pairs = [self.corpus.example("train", index) for index in self._indices(pool)]
        batches = self.batching.cut(self.objective.encode(pairs), self.objective, self.tokens)
        random.Random(f"batches/{self.seed}/{pool}").shuffle(batches)
        return batches

    def _indices(self, pool: int) -> Sequence[int]:
        """Which examples are in a pool; a pool never reaches from one epoch into the next."""
        size = self.corpus.size("train")
        if size is None:
            return range(pool * POOL, (pool + 1) * POOL)
        epoch, part = divmod(pool, -(-size // POOL))
        return _order(self.seed, epoch, size)[part * POOL : (part + 1) * POOL]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, size: int) -> Sequence[int]:
    """A new order of the examples for every epoch."""
    order = list(range(size))
    random.Random(f"epoch/{seed}/{epoch}").shuffle(order)
    return order


def by_length(examples: Sequence[Example], objective: Objective, tokens: int) -> list[list[Example]]:
    """Examples of like length together, at most `tokens` places (rows × longest) in each batch."""
    batches: list[list[Example]] = []
    current: list[Example] = []
    for example in sorted(examples, key=objective.cost):  # stable, so equal lengths keep their order
        cost = require_room(example, objective, tokens)
        if (len(current) + 1) * cost > tokens:
            batches.append(current)
            current = []
        current.append(example)
    return [*batches, current] if current else batches


def require_room(example: Example, objective: Objective, tokens: int) -> int:
    """What an example costs; raise ConfigError if no batch can hold it."""
    cost = objective.cost(example)
    if cost > tokens:
        beginning = objective.tokenizer.decode((example.source + example.target)[:12])[:40]
        raise ConfigError(
            f"an example fills {cost} tokens and a batch holds {tokens}: it begins {beginning!r}",
            "raise training.batch_tokens or leave such long examples out",
        )
    return cost

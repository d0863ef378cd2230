"""Corpus `repeats`: rows of different letters, each written twice, as running text: what induction heads are born on.

    hgidaxhgidax
    qbzmrfkeqbzmrfke

The second half of a row can be told from the first alone, by what came next last time, so a language model learns to
look there: an induction head (Olsson et al. 2022). Rows differ in length: of one length, a head that looks back by a
fixed distance would do as well, and pass for one.

A document is a row, and belongs to one split by a hash of its letters.
"""

from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase
from typing import ClassVar

from regard.data.corpus import ExampleKind, Examples, Split, draw, generator, register, require_index, stable_hash
from regard.data.recall import different
from regard.data.splits import TextDocument
from regard.errors import ConfigError

FEWEST = 5
"""Letters of the shortest row at least: of fewer there are not enough different rows to hold some out."""
MOST = 200_000
TENTHS: tuple[Split, ...] = ("test", "valid", "train", "train", "train", "train", "train", "train", "train", "train")


@dataclass(frozen=True)
class Repeats:
    """Rows of letters, written twice."""

    name: ClassVar[str] = "repeats"

    shortest: int = 8
    """Letters of the shortest row, before they are repeated."""
    longest: int = 24
    rows: int = 8000
    """Of train."""
    held_out: int = 500
    """Rows of valid and of test."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not FEWEST <= self.shortest <= self.longest <= len(ascii_lowercase):
            raise ConfigError(
                f"rows of {self.shortest} to {self.longest} different letters cannot be",
                f"use {FEWEST} <= shortest <= longest <= {len(ascii_lowercase)}",
            )
        if self.rows < 1 or self.held_out < 1:
            least = "rows" if self.rows < 1 else "held_out"
            raise ConfigError(f"{least} is {getattr(self, least)}, which leaves a split empty", "use 1 or more")
        if max(self.rows, self.held_out) > MOST:
            raise ConfigError(
                f"{max(self.rows, self.held_out):,} rows are more than are held in memory", f"use at most {MOST:,}"
            )

    def size(self, split: Split) -> int | None:
        """Rows of the split."""
        return self.rows if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> TextDocument:
        """The row at this place."""
        require_index(split, index, self.size(split))
        return TextDocument(self._rows[split][index])

    def of_kind(self, kind: ExampleKind) -> Examples | None:
        """Running text alone."""
        return self if kind == "documents" else None

    @cached_property
    def _rows(self) -> dict[Split, tuple[str, ...]]:
        """Different rows, drawn one after another until every split is full."""
        random = generator("repeats", self.seed)
        wanted: dict[Split, int] = {"test": self.held_out, "valid": self.held_out, "train": self.rows}
        found: dict[Split, dict[str, None]] = {"test": {}, "valid": {}, "train": {}}
        while any(len(found[split]) < rows for split, rows in wanted.items()):
            length = self.shortest + draw(random, self.longest - self.shortest + 1)
            half = "".join(ascii_lowercase[letter] for letter in different(random, len(ascii_lowercase), length))
            split = TENTHS[stable_hash("repeats", self.seed, half) % len(TENTHS)]
            if len(found[split]) < wanted[split]:
                found[split][half + half] = None
        return {split: tuple(rows) for split, rows in found.items()}


register(Repeats)

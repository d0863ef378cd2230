"""What decoding returns, and when it stops."""

from dataclasses import dataclass
from functools import cached_property

from regard.errors import InputError


@dataclass(frozen=True)
class Stop:
    """At the token that ends a text, or another that does so as well, or after this many new tokens."""

    end: int
    tokens: int
    also: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InputError(f"a limit of {self.tokens} new tokens generates nothing", "use 1 or more")

    @cached_property
    def ends(self) -> frozenset[int]:
        """Every token that ends a text."""
        return frozenset((self.end, *self.also))


@dataclass(frozen=True)
class Hypothesis:
    """A generated sequence.

    `score` is Σ log p of its tokens under the model (before temperature and filters), divided by lengthᵅ in beam
    search, where what a rule demands adds nothing; `rows[t]` is the row of the batch in which token t was computed.
    """

    ids: tuple[int, ...]
    score: float
    rows: tuple[int, ...]

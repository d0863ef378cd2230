"""What decoding returns, and when it stops."""

from dataclasses import dataclass
from functools import cached_property

from regard.errors import InputError


@dataclass(frozen=True)
class Stop:
    """At the token that ends a text, or another that does so as well, or after this many new tokens."""

    eos_id: int
    max_new_tokens: int
    other_eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InputError(f"a limit of {self.max_new_tokens} new tokens generates nothing", "use 1 or more")

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Every token that ends a text."""
        return frozenset((self.eos_id, *self.other_eos_ids))


@dataclass(frozen=True)
class Hypothesis:
    """A generated sequence.

    `score` is Σ log p of its tokens under the model (before temperature and filters), divided by lengthᵅ in beam
    search, where what a rule demands adds nothing; `rows[t]` is the row of the batch in which token t was computed.
    """

    ids: tuple[int, ...]
    score: float
    rows: tuple[int, ...]
    path: str = "plain"
    """By which loop it was found: `plain`, step by step; `in place`; or `graph`, the same replayed on a GPU."""

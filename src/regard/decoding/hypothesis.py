"""What decoding returns, and when it stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.errors import InputError


@dataclass(frozen=True)
class Stop:
    """At the token that ends a text, or another that does so as well, or after this many new tokens.

    `met` may say of the ids written so far that they are enough: where a text is to stop at a string, say.
    """

    eos_id: int
    max_new_tokens: int
    other_eos_ids: tuple[int, ...] = ()
    met: Callable[[Sequence[int]], bool] | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InputError(f"a limit of {self.max_new_tokens} new tokens generates nothing", "use 1 or more")

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Every token that ends a text."""
        return frozenset((self.eos_id, *self.other_eos_ids))

    def ended(self, ids: Sequence[int]) -> bool:
        """Whether what was written ends with its last token, the limit aside."""
        return ids[-1] in self.eos_ids or (self.met is not None and self.met(ids))


@dataclass(frozen=True)
class Hypothesis:
    """A generated sequence.

    `score` is the sum of `log_probabilities`, one for each token; in beam search divided by lengthᵅ, the length being
    the number of tokens with the end. They are the model's own where a token is chosen or drawn, before any filter;
    in a beam they are what the filters made of them, so that what a rule demands adds nothing. `rows[t]` is the row
    of the batch in which token t was computed.
    """

    ids: tuple[int, ...]
    score: float
    rows: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    path: str = "plain"
    """By which loop it was found: `plain`, step by step; `speculative`, by guesses; or by the engine, `in place`, as a
    `graph`, which is the same replayed on a GPU, or in `rows`, of what keeps no keys and values of single tokens."""

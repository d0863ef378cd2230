"""The Stepper contract: what a model must be able to do to be decoded, be it a Transformer or a recurrent network.

A state is whatever the model has computed so far: keys and values, or a hidden vector; strategies only reorder it.
Greedy, sampling and beam search are therefore each written once. The state given to `step` is spent: the model may
write over it. Whoever needs it afterwards takes a `copy` before.
"""

from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import Lengths, RowIds, RowLogits
from regard.data.batching import Inputs

Same = TypeVar("Same")  # not Self, which the shape checker of the tests cannot read in a method


@runtime_checkable
class State(Protocol):
    """What has been computed for every row so far."""

    def select(self: Same, rows: RowIds) -> Same:
        """These rows in this order: reordered, repeated or dropped."""
        ...

    def copy(self: Same) -> Same:
        """The same state, which a step of this one leaves as it is."""
        ...

    def trim(self: Same, lengths: Lengths) -> Same:
        """The state after only so many tokens of each row, where the model can go back; refused where it cannot."""
        ...


S = TypeVar("S", bound=State)


@runtime_checkable
class Stepper(Protocol[S]):
    """Laws: `step` after `start` gives the logits of the uncached model at the last token (cached equals uncached);
    `extend` by n tokens equals n steps; `select` commutes with `step`; what was made of a state by `copy`, `select` or
    `trim` stays as it is when the state is spent, and goes on as the state did then.
    """

    def start(self, inputs: Inputs) -> S:
        """Consume the source and all of the prompt but its last token."""
        ...

    def step(self, ids: RowIds, state: S) -> tuple[RowLogits, S]:
        """One token further in every row: the logits of the next one."""
        ...

    def extend(self, ids: Int[Tensor, "rows tokens"], state: S) -> tuple[Float[Tensor, "rows tokens vocab"], S]:
        """Several tokens further, with the logits after each."""
        ...

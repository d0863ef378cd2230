"""What mechanisms share that compute no weights: projections around a sum over values, and the weights it implies.

Whatever is linear in the values is a matrix of weights times them. It is never made, but what is read of the identity
in the place of the values is that matrix, exactly: `dense_map`.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.efficient.chunked import CHUNK, LogDecay, Sums, restarts
from regard.attention.mechanism import AttentionCosts, LayerContext, Mechanism
from regard.attention.projections import Projections
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Query, RowIds, Weights
from regard.errors import InputError


@dataclass(frozen=True, eq=False)
class Told:
    """What a context says of tokens, for those who have no mask: which are text, and where another text begins."""

    real: Bool[Tensor, "batch keys"] | None = None
    begins: Bool[Tensor, "batch keys"] | None = None

    def shut(self, log_decay: LogDecay | None, heads: int) -> LogDecay | None:
        """The decay with which nothing passes from one text to the next."""
        if self.begins is None:
            return log_decay
        begins = self.begins[:, None, :, None].expand(-1, heads, -1, -1)
        open_gates = torch.zeros(begins.shape, device=begins.device) if log_decay is None else log_decay
        return open_gates.masked_fill(begins, -torch.inf)


@dataclass(frozen=True, eq=False)
class SummedState(AttentionState):
    """All tokens read so far as one matrix for each head, of one size however many they are."""

    sums: Sums
    largest: Float[Tensor, "batch heads 1 1"] | None = None
    """The logarithm that the sums are scaled by, where they are."""

    def select(self, rows: RowIds) -> "SummedState":
        return SummedState(self.sums[rows], None if self.largest is None else self.largest[rows])

    def trim(self, tokens: int) -> AttentionState:
        raise InputError(
            f"a state that sums up all tokens cannot go back to the first {tokens}", "read them again from the start"
        )


def costs_of_sums(slot: Slot, features: int, columns: int) -> AttentionCosts:
    """What a token takes of an attention that sums keys of so many features times values of so many columns.

    The products that make and read the sums, and of a causal one those within a chunk.
    """
    within = 0 if not slot.causal else CHUNK * (features + columns)
    cached = slot.key_value_heads * 2 * slot.head_width if slot.cross else 0
    return AttentionCosts(2 * slot.heads * (2 * features * columns + within), cached, None)


class ImpliedWeights(Projections, Mechanism):
    """Projections around `read`, which is linear in the values."""

    @abstractmethod
    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        """What the queries read of the values, and the state after them where there is one."""

    def start(self, memory: Hidden | None = None) -> KeyValues | None:
        return None if memory is None else self.keys_values(memory)

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, AttentionState | None]:
        query = self.queries(inputs, context.rotate)
        if self.slot.cross:
            assert isinstance(state, KeyValues)
            memory = KeyValues(state.keys.to(query.dtype), state.values.to(query.dtype))
            attended, _ = self.read(inputs, query, memory, self.told(inputs, state.tokens, context), None)
            return self.finish(inputs, attended), state
        assert state is None or isinstance(state, SummedState)
        own, told = self.keys_values(inputs, context.rotate), self.told(inputs, inputs.shape[1], context)
        attended, behind = self.read(inputs, query, own, told, state)
        return self.finish(inputs, attended), behind

    def finish(self, inputs: Hidden, attended: Attended) -> Hidden:
        """From what the heads read to what the layer adds."""
        return self.joined(attended)

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        query = self.queries(inputs, context.rotate)
        key = self.keys_values(inputs if memory is None else memory, context.rotate).keys
        identity = torch.eye(key.shape[2], dtype=key.dtype, device=key.device).expand(*key.shape[:2], -1, -1)
        told = self.told(inputs, key.shape[2], context)
        return self.read(inputs, query, KeyValues(key, identity), told, None)[0]

    def told(self, inputs: Hidden, keys: int, context: LayerContext) -> Told:
        """What the context says of the keys; what this mechanism cannot honour is refused."""
        name, parts = type(self).__name__, context.parts()
        if not len(inputs):
            raise InputError(f"{name} was given a batch of 0 texts", "give at least one")
        if 0 in (inputs.shape[1], keys):
            raise InputError(f"{name} was given {inputs.shape[1]} tokens to read {keys}", "give at least one of each")
        if parts.rest is not None:
            raise InputError(
                f"{name} makes no weights that {type(parts.rest).__name__} could mask", "use exact attention for it"
            )
        if not self.slot.causal and (parts.causal or parts.documents is not None):
            what = "a causal mask" if parts.causal else "several texts in a row"
            raise InputError(
                f"this {name} was built to see a whole text and got {what}", "use exact attention for that"
            )
        if self.slot.causal and inputs.shape[1] > 1 and not parts.causal:
            raise InputError(f"a causal {name} cannot do without a causal mask", "use exact attention for that")
        ids = None if parts.documents is None else parts.documents.ids.to(inputs.device)
        real = parts.real(context.past + keys, keys, inputs.device)
        return Told(real, None if ids is None else restarts(ids)[:, -keys:])

"""Exact attention as a mechanism: every query compared with every key, by the fastest kernel that can (core.py).

Its state is the keys and values read so far; of cross-attention those of the memory, computed once.
"""

from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import weights
from regard.attention.mechanism import Abilities, LayerContext, Mechanism, MechanismShape, register_mechanism
from regard.attention.multihead import HeadAttention
from regard.attention.slot import Slot
from regard.axes import Hidden, Weights


class ExactShape(MechanismShape):
    """Softmax attention to every key that the mask allows (Vaswani et al. 2017, §3.2)."""

    name: Literal["exact"] = Field("exact", description="how a layer attends")

    abilities = Abilities(
        exact=True,
        causal=True,
        cross=True,
        documents=True,
        masks=True,
        score_bias=True,
        similarities=True,
        dropout=True,
    )

    def make(self, slot: Slot) -> "ExactAttention":
        return ExactAttention(slot)


class ExactAttention(HeadAttention, Mechanism):
    """The projections and `attend`, with the keys and values read before as state."""

    def start(self, memory: Hidden | None = None) -> KeyValues | None:
        return None if memory is None else self.keys_values(memory)

    def forward(self, inputs: Hidden, state: AttentionState | None, context: LayerContext) -> tuple[Hidden, KeyValues]:
        """The new tokens' keys and values join those before, and the queries read all of them."""
        assert state is None or isinstance(state, KeyValues)
        query = self.queries(inputs, context.rotate)
        if self.slot.cross:
            assert state is not None
            return self.read(query, state, mask=context.mask), state
        own = self.keys_values(inputs, context.rotate)
        own = own if state is None else state.append(own)
        return self.read(query, own, mask=context.mask, bias=context.bias), own

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        query = self.queries(inputs, context.rotate)
        key = self.keys_values(inputs if memory is None else memory, context.rotate).keys
        return weights(query, key, similarity=self.attend.similarity, mask=context.mask, bias=context.bias)


register_mechanism(ExactShape)

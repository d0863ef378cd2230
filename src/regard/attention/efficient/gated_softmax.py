"""Gated softmax attention (Qiu et al. 2025, §2.2, "G1"): what a head reads goes through a gate that its token opens.

    out = (softmax(Q Kᵀ/√d) V ⊙ sigmoid(X W_g)) W_o         a gate for each feature of a head, or one for the head

A softmax has to put its weight somewhere; a gate that shuts lets a token read nothing, so no first token is needed to
be looked at for that. It is exact attention, quadratic, with its masks, positions, kernels and cache.
"""

from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import weights
from regard.attention.exact import ExactShape
from regard.attention.mechanism import (
    Abilities,
    AttentionCosts,
    LayerContext,
    Mechanism,
    MechanismShape,
    register_mechanism,
)
from regard.attention.multihead import HeadAttention
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Weights
from regard.layers.linear import Linear


class GatedSoftmaxShape(MechanismShape):
    """Softmax attention and a gate on what it read (Qiu et al. 2025); quadratic, as exact attention is."""

    name: Literal["gated_softmax"] = Field("gated_softmax", description="how a layer attends")
    gates: Literal["feature", "head"] = Field(
        "feature", description="a gate for every feature of a head, or one for it"
    )

    samples = ({}, {"gates": "head"})
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

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        exact = ExactShape().costs(slot, tokens)
        return exact._replace(kept=None)

    def make(self, slot: Slot) -> "GatedSoftmax":
        return GatedSoftmax(slot, self)


class GatedSoftmax(HeadAttention, Mechanism):
    """The projections and `attend`, and the gate between them and the output."""

    def __init__(self, slot: Slot, shape: GatedSoftmaxShape) -> None:
        super().__init__(slot)
        gates = slot.heads * (slot.head_width if shape.gates == "feature" else 1)
        self.gate = Linear(slot.width, gates, bias=slot.bias)

    def start(self, memory: Hidden | None = None) -> KeyValues | None:
        return None if memory is None else self.keys_values(memory)

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, AttentionState | None]:
        assert state is None or isinstance(state, KeyValues)
        query = self.queries(inputs, context.rotate)
        if self.slot.cross:
            assert state is not None
            own = state
        else:
            newer = self.keys_values(inputs, context.rotate)
            own = newer if state is None else state.append(newer)
        attended = self.attended(query, own, mask=context.mask, bias=context.bias)
        return self.joined(attended * self.opened(inputs)), own

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        """The softmax's weights; gates come behind."""
        query = self.queries(inputs, context.rotate)
        key = self.keys_values(inputs if memory is None else memory, context.rotate).keys
        return weights(query, key, similarity=self.attend.similarity, mask=context.mask, bias=context.bias)

    def opened(self, inputs: Hidden) -> Attended:
        """How far each gate is open: [batch, heads, tokens, head_width or 1]."""
        gates: Tensor = self._split(self.gate(inputs), self.heads).sigmoid()
        return gates


register_mechanism(GatedSoftmaxShape)

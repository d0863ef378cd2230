"""Differential attention (Ye et al. 2024, §2.1): what two softmax maps have in common is noise, and is taken away.

    (softmax(Q₁ K₁ᵀ/√d) − λ softmax(Q₂ K₂ᵀ/√d)) V,   each head normalised and times 1 − λ_init        (eq. 1–3)
    λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ_init,   λ_init = 0.8 − 0.6 exp(−0.3 · layer)           (eq. 2)

The paper has half as many heads, of twice the width, as attention would: so two neighbouring heads of a slot are one
here, with the queries and keys of each, and the values of both side by side. It is as exact and as quadratic as exact
attention, takes every mask and position, and is computed by the same kernels.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import attend, weights
from regard.attention.efficient.chunked import widened
from regard.attention.mechanism import (
    Abilities,
    AttentionCosts,
    LayerContext,
    Mechanism,
    MechanismShape,
    register_mechanism,
)
from regard.attention.projections import Projections
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Value, Weights
from regard.errors import ConfigError
from regard.layers.norm import norm

Scalar = Float[Tensor, ""]


class DifferentialShape(MechanismShape):
    """The difference of two softmax maps (Ye et al. 2024); quadratic, as exact attention is."""

    name: Literal["differential"] = Field("differential", description="how a layer attends")

    abilities = Abilities(
        causal=True, cross=True, documents=True, masks=True, score_bias=True, shared_heads=True, dropout=True
    )

    def check(self, slot: Slot) -> None:
        super().check(slot)
        for what, count in (("heads", slot.heads), ("key/value heads", slot.key_value_heads)):
            if count % 2:
                raise ConfigError(
                    f"attention 'differential' takes heads in pairs and there is an odd number of {what}, {count}",
                    f"use {count + 1}, or another even number",
                )

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        keys = (tokens + 1) / 2 if slot.causal else tokens
        cached = 2 * slot.key_value_heads * slot.head_width
        return AttentionCosts(2 * slot.heads * 3 * slot.head_width * keys, cached, None)

    def make(self, slot: Slot) -> "Differential":
        return Differential(slot)


class Differential(Projections, Mechanism):
    """The projections, two maps for each pair of heads, and a norm of each pair's own."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        self.initial = 0.8 - 0.6 * math.exp(-0.3 * (slot.site.index if slot.site is not None else 0))
        draws = (nn.Parameter(torch.empty(slot.head_width).normal_(std=0.1)) for _ in range(4))
        self.query_first, self.key_first, self.query_second, self.key_second = draws
        self.norm = norm("rms", 2 * slot.head_width)

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
        dropout = self.slot.dropout if self.training else 0.0
        asking, both = query.to(own.keys.dtype), paired(own.values)
        attended = attend(asking, own.keys, both, mask=context.mask, bias=context.bias, dropout=dropout)
        return self.finish(attended.to(query.dtype)), own

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        """Of each head of a pair the map they share, times the values that are its own."""
        query = self.queries(inputs, context.rotate)
        key = self.keys_values(inputs if memory is None else memory, context.rotate).keys
        maps = weights(query, key, mask=context.mask, bias=context.bias)
        return self._difference(maps).repeat_interleave(2, dim=1)

    def finish(self, attended: Float[Tensor, "batch heads queries both"]) -> Hidden:
        """From what both maps of each pair read to what the layer adds."""
        heads = self.norm(self._difference(attended)) * (1 - self.initial)
        out: Hidden = self.output(heads.transpose(1, 2).flatten(2))
        return out

    @property
    def subtracted(self) -> Scalar:
        """λ: how much of the second map is taken away."""
        first, second = self.query_first * self.key_first, self.query_second * self.key_second
        return widened(first).sum().exp() - widened(second).sum().exp() + self.initial

    def _difference(self, both: Attended) -> Float[Tensor, "batch pairs queries value_width"]:
        return both[:, ::2] - self.subtracted.to(both.dtype) * both[:, 1::2]


def paired(value: Value) -> Float[Tensor, "batch kv_heads keys both"]:
    """Two neighbouring heads' values side by side, for each of them."""
    batch, heads, keys, width = value.shape
    together = value.view(batch, heads // 2, 2, keys, width).transpose(2, 3).reshape(batch, heads // 2, keys, 2 * width)
    return together.repeat_interleave(2, dim=1)


register_mechanism(DifferentialShape)

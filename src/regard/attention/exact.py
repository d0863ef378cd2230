"""Exact attention as a mechanism: every query compared with every key, by the fastest kernel that can (core.py).

Its state is the keys and values read so far; of cross-attention those of the memory, computed once.
"""

from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from regard.attention.cache import AttentionState, KeyValues, StaticKeyValues
from regard.attention.core import weights
from regard.attention.decode_step import StepTable
from regard.attention.mask import Mask, Window
from regard.attention.mechanism import (
    Abilities,
    AttentionCosts,
    LayerContext,
    Mechanism,
    MechanismShape,
    register_mechanism,
)
from regard.attention.multihead import HeadAttention, slot_similarity
from regard.attention.projections import Projection, ProjectionOptions
from regard.attention.rotary import Rotary, RotaryConfig, Rotate
from regard.attention.similarity import InnerProduct, ScaledDot, Softcapped
from regard.attention.slot import Slot
from regard.axes import Hidden, Query, Weights
from regard.errors import ConfigError, InputError
from regard.layers.norm import NormKind


class ExactShape(MechanismShape):
    """Softmax attention to every key that the mask allows (Vaswani et al. 2017, §3.2)."""

    name: Literal["exact"] = Field("exact", description="how a layer attends")
    window: int | None = Field(
        None,
        ge=1,
        le=2**31,
        description="tokens that a query sees, itself and those before it; in an encoder on either side",
    )
    query_key_norm: NormKind = Field("none", description="what normalises each head's queries and keys")
    biases: tuple[Projection, ...] | None = Field(
        None, description="the projections that add a learnt vector; as model.bias says if absent"
    )
    value_width: int | None = Field(None, ge=1, description="width of a head's values; as wide as its keys if absent")
    scale: float | None = Field(None, gt=0, description="what scaled_dot multiplies by; 1/√head_width if absent")
    softcap: float | None = Field(None, gt=0, description="no score is beyond it: c · tanh(score / c)")
    rotary: RotaryConfig | None = Field(
        None, description="rotary positions of this layer, where they differ from model.rotary"
    )
    turned: bool = Field(True, description="this layer's heads have the rotary positions of the network")

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
    samples = (
        {},
        {"window": 3, "query_key_norm": "rms", "value_width": 5},
        {"softcap": 2.0, "scale": 0.7, "biases": ["query", "value"], "query_key_norm": "rms_offset"},
    )

    def check(self, slot: Slot) -> None:
        super().check(slot)
        if slot.cross and self.window is not None:
            raise ConfigError(
                f"a window of {self.window} is around a token's own place, and a memory is another text",
                "leave it out of cross_attention",
            )
        if self.scale is not None and slot.similarity != "scaled_dot":
            raise ConfigError(
                f"scale = {self.scale} has no effect on similarity {slot.similarity!r}",
                "use similarity scaled_dot, or leave it out",
            )
        for key in ("rotary", "turned"):
            if getattr(self, key) != type(self).model_fields[key].default and not slot.rotary:
                raise ConfigError(
                    f"{key} = {getattr(self, key)!r} has no effect where positions are not rotary",
                    "use model.positions=rotary, or leave it out",
                )
        if self.rotary is not None and not self.turned:
            raise ConfigError(f"{self.rotary!r} has no effect on heads without rotary positions", "leave rotary out")

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        value_width = self.value_width or slot.head_width
        both = slot.head_width + value_width
        seen = min(self.window or tokens, tokens)
        before = ((seen - 1) * seen / 2 + (tokens - seen) * (seen - 1)) / tokens  # keys before a token, on average
        keys = tokens if slot.cross else 1 + (before if slot.causal else 2 * before)
        cached = slot.key_value_heads * both
        normed = {"none": 0, "layer": 2, "rms": 3, "rms_offset": 3}[self.query_key_norm] * slot.head_width
        kept = slot.heads * both + cached + normed * (slot.heads + slot.key_value_heads)
        known = self.softcap is None and value_width == slot.head_width  # else the kernel keeps the weights as well
        return AttentionCosts(2 * slot.heads * both * keys, cached, kept if known else None)

    def make(self, slot: Slot) -> "ExactAttention":
        return ExactAttention(slot, self)


PLAIN = ExactShape()


@cache
def _window(size: int) -> Window:
    """One object for all layers: what is known of a mask is kept by the object."""
    return Window(size)


class ExactAttention(HeadAttention, Mechanism):
    """The projections and `attend`, with the keys and values read before as state."""

    def __init__(self, slot: Slot, shape: ExactShape = PLAIN) -> None:
        similarity = slot_similarity(slot) if shape.scale is None else ScaledDot(shape.scale)
        if shape.softcap is not None:
            similarity = Softcapped(similarity, shape.softcap)
        options = ProjectionOptions(shape.value_width, shape.biases, shape.query_key_norm)
        super().__init__(slot, options, similarity)
        self.window = None if shape.window is None else _window(shape.window)
        self.turned = shape.turned
        self.rotary = None if shape.rotary is None else Rotary(slot.head_width, shape.rotary)

    def start(self, memory: Hidden | None = None) -> KeyValues | None:
        return None if memory is None else self.keys_values(memory)

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, AttentionState | None]:
        """The new tokens' keys and values join those before, and the queries read all of them."""
        rotate = self.rotation(context)
        if isinstance(state, StaticKeyValues):
            if state.maps is not None:
                return self._in_place(*self.together(inputs, state.maps, rotate), state, context), state
            return self._in_place(self.queries(inputs, rotate), self.keys_values(inputs, rotate), state, context), state
        query, before = self.queries(inputs, rotate), None if state is None else self._own(state)
        if self.slot.cross:
            return self.read(query, self._own(state), mask=context.mask), state
        own = self.keys_values(inputs, rotate)
        own = own if before is None else before.append(own)
        return self.read(query, own, mask=self.self_mask(context), bias=context.bias), own

    def _in_place(self, query: Query, new: KeyValues, state: StaticKeyValues, context: LayerContext) -> Hidden:
        """The new keys and values are written where their tokens stand, and the queries read from there."""
        positions, mask, bias = context.query_positions, self.self_mask(context), context.bias
        if positions is None or mask is None:
            raise InputError(
                "nothing says where tokens stand in a cache with room", "give `query_positions` and a mask"
            )
        state.write(new, positions if context.columns is None else context.columns)
        held = KeyValues(state.keys, state.values)
        if context.columns is not None:
            return self.read(query, held, mask=mask)
        if query.shape[2] == 1 and isinstance(self.attend.similarity, InnerProduct) and not torch.is_grad_enabled():
            shape = (*query.shape[:3], held.tokens)
            like = query.to(held.keys.dtype)
            whole: Mask = mask
            mask = context.once(("table", whole), lambda: StepTable.of(whole, bias, like, shape, positions))
        return self.read(query, held, mask=mask, bias=bias, query_positions=positions)

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        rotate = self.rotation(context)
        key = self.keys_values(inputs if memory is None else memory, rotate).keys
        mask, similarity = self.self_mask(context), self.attend.similarity
        return weights(self.queries(inputs, rotate), key, similarity=similarity, mask=mask, bias=context.bias)

    @staticmethod
    def _own(state: AttentionState | None) -> KeyValues:
        """The state, which this made itself."""
        if not isinstance(state, KeyValues):
            raise InputError(
                f"attention to a memory was given {type(state).__name__}", "give what `start(memory)` returned"
            )
        return state

    def self_mask(self, context: LayerContext) -> Mask | None:
        """The context's, and the layer's own window."""
        return context.mask if self.window is None else context.narrow(self.window)

    def rotation(self, context: LayerContext) -> Rotate | None:
        """How this layer turns heads."""
        if not self.turned:
            return None
        return context.rotate if self.rotary is None else context.rotation(self.rotary)


register_mechanism(ExactShape)

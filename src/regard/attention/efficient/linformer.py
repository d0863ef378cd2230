"""Linformer (Wang et al. 2020): keys and values projected along the length, so that queries meet a few of them.

    head_i = softmax(Q_i (E_i K_i)ᵀ / √d_k) · F_i V_i          E_i and F_i: [projected, tokens], learned (eq. 7)

A text of n tokens meets the first n columns of E and F, up to the number they were made for; padding meets none, and
places are counted from a text's first token. With n rows and the identity for E and F this is exact attention of n
tokens.

Every row of E K mixes all tokens, later ones too, so a causal Linformer does not exist. E and F can be shared (§4,
"Parameter sharing"): by the heads, by keys and values as well, or by all layers.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from regard.attention.cache import KeyValues
from regard.attention.core import attend, checked
from regard.attention.efficient.implied import ImpliedWeights, SummedState, Told
from regard.attention.mechanism import Abilities, AttentionCosts, Mechanism, MechanismShape, register_mechanism
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value
from regard.errors import ConfigError, InputError

LengthProjection = Float[Tensor, "#kv_heads longest projected"]
"""E or F, a column of the paper's a row of ours: for every place what it adds to each of the projected tokens."""


def linformer_attention(
    query: Query,
    key: Key,
    value: Value,
    key_projection: LengthProjection,
    value_projection: LengthProjection,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    dropout: float = 0.0,
) -> Attended:
    """Exact attention to the projected keys and values."""
    checked(query, key, value, "scaled_dot", None, None, dropout)
    key, value = (project(*one, real) for one in ((key, key_projection), (value, value_projection)))
    return attend(query, key, value, dropout=dropout)


def project(
    inputs: Float[Tensor, "batch kv_heads keys any_width"],
    projection: LengthProjection,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Float[Tensor, "batch kv_heads projected any_width"]:
    """Keys or values mixed into as many as the projection has; padding adds nothing, wherever it stands."""
    tokens, longest = inputs.shape[2], projection.shape[1]
    if tokens > longest:
        raise InputError(
            f"{tokens} tokens are more than the {longest} that this Linformer's projections were made for",
            "cut the text, or train with a larger max_tokens",
        )
    if real is not None:
        inputs = from_the_first(inputs * real[:, None, :, None], real)
    shares = "nk,bhnd->bhkd" if projection.shape[0] == 1 else "hnk,bhnd->bhkd"
    rows = projection[0, :tokens] if projection.shape[0] == 1 else projection[:, :tokens]
    return torch.einsum(shares, rows.to(inputs.dtype), inputs)


def from_the_first(
    inputs: Float[Tensor, "batch heads tokens any_width"], real: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch heads tokens any_width"]:
    """The same tokens turned round until each text's first one stands first."""
    tokens = inputs.shape[2]
    places = torch.arange(tokens, device=inputs.device)[None] + real.int().argmax(dim=1, keepdim=True)
    return inputs.gather(2, (places % tokens)[:, None, :, None].expand_as(inputs))


class LinformerShape(MechanismShape):
    """Keys and values projected along the length to a few, Linformer (Wang et al. 2020): linear in the length."""

    name: Literal["linformer"] = Field("linformer", description="how a layer attends")
    projected: int = Field(64, ge=1, le=2**20, description="keys and values that are left of a text's")
    max_tokens: int = Field(512, ge=1, le=2**27, description="the longest text; a projection is learned for each place")
    sharing: Literal["none", "headwise", "key_value", "layerwise"] = Field(
        "headwise", description="who has one projection: nobody, a layer's heads, its keys and values too, all layers"
    )

    samples = (
        {"projected": 5, "max_tokens": 64, "sharing": "none"},
        {"projected": 5, "max_tokens": 64, "sharing": "key_value"},
        {"projected": 5, "max_tokens": 64, "sharing": "layerwise"},
    )
    abilities = Abilities(cross=True, dropout=True)

    @property
    def position_limit(self) -> int | None:
        return self.max_tokens

    def check(self, slot: Slot) -> None:
        super().check(slot)
        if slot.cross and self.sharing == "layerwise":
            raise ConfigError(
                "attention 'linformer' shares a projection between layers of an encoder, not of a memory",
                "use sharing = 'key_value' for cross_attention",
            )

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        cached = slot.key_value_heads * 2 * slot.head_width if slot.cross else 0
        work = 4 * (slot.key_value_heads + slot.heads) * self.projected * slot.head_width
        return AttentionCosts(work, cached, None)

    def make(self, slot: Slot) -> "Linformer":
        return Linformer(slot, self)


class Linformer(ImpliedWeights):
    """`linformer_attention` between projections of width, with those of length beside them."""

    def __init__(self, slot: Slot, shape: LinformerShape) -> None:
        super().__init__(slot)
        self.shape = shape
        self.lender: tuple[Linformer, ...] = ()
        """Whose projection this layer uses; in a tuple, as its parameters are not this layer's."""
        size = (slot.key_value_heads if shape.sharing == "none" else 1, shape.max_tokens, shape.projected)
        self.key_length = nn.Parameter(torch.empty(size))
        self.value_length = nn.Parameter(torch.empty(size)) if shape.sharing in ("none", "headwise") else None
        for one in (self.key_length, self.value_length):
            if one is not None:
                nn.init.normal_(one, std=shape.projected**-0.5)  # Theorem 2: entries of variance 1/k

    def share(self, first: Mechanism) -> None:
        if self.shape.sharing == "layerwise":
            assert isinstance(first, Linformer)
            self.lender = (first,)
            del self.key_length

    @property
    def lengths(self) -> tuple[LengthProjection, LengthProjection]:
        """The projections of keys and of values."""
        owner = self.lender[0] if self.lender else self
        return owner.key_length, owner.key_length if owner.value_length is None else owner.value_length

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        dropout = self.slot.dropout if self.training else 0.0
        given = (query, memory.keys, memory.values, *self.lengths)
        return linformer_attention(*given, real=told.real, dropout=dropout), None


register_mechanism(LinformerShape)

"""Linear attention (Katharopoulos et al. 2020, §3.2): a kernel of few features in the softmax's place.

    weight of key j for query i  =  φ(q_i)·φ(k_j) / Σ_j φ(q_i)·φ(k_j)        φ(x) = elu(x) + 1  (eq. 7)

So the sum over keys is one matrix, Σ_j φ(k_j)ᵀ v_j, that every query reads (eq. 5), or, where no token sees a later
one, a recurrence (eq. 10–12, 16–20): `chunked.py` computes it. φ is positive, so the weights are, and each row of
them sums to 1; it is another attention than softmax and no estimate of it.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from regard.attention.cache import KeyValues
from regard.attention.core import checked
from regard.attention.efficient.chunked import (
    CHUNK,
    LogDecay,
    Sums,
    Valued,
    divided,
    normalised_scan,
    spread,
    widened,
    with_ones,
)
from regard.attention.efficient.implied import ImpliedWeights, SummedState, Told, costs_of_sums
from regard.attention.mechanism import Abilities, AttentionCosts, MechanismShape, register_mechanism
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value


def linear_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    causal: bool = False,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Attended:
    """Every query's mean of the values by the kernel; where `causal`, of its own token and those before it."""
    checked(query, key, value, "scaled_dot", None, None, 0.0)
    if causal:
        return linear_scan(query, key, value, real=real)[0]
    features, (key, value) = elu_features(query), (spread(one, query.shape[1]) for one in (key, value))
    with torch.autocast(query.device.type, enabled=False):
        summed = key_features(key, real).mT @ with_ones(value)
        return divided(features @ summed).to(value.dtype)


def linear_scan(
    query: Query,
    key: Key,
    value: Value,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    log_decay: LogDecay | None = None,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """The causal one from a state on, and the state behind its last token: the sums of φ(k)ᵀ v and of φ(k)."""
    key, value = (spread(one, query.shape[1]) for one in (key, value))
    features = elu_features(query), key_features(key, real)
    out, state = normalised_scan(*features, value, log_decay, state=state, chunk=chunk)
    return out.to(value.dtype), state


def elu_features(inputs: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """`elu(x) + 1`, in float32 at least: exp(x) below zero and x + 1 above, with no 1 to round a small one away."""
    inputs = widened(inputs)
    return torch.where(inputs > 0, inputs + 1, inputs.clamp(max=0).exp())


def key_features(key: Key, real: Bool[Tensor, "batch keys"] | None) -> Float[Tensor, "batch kv_heads keys key_width"]:
    """The features of keys; of padding none."""
    features = elu_features(key)
    return features if real is None else features * real[:, None, :, None]


class LinearShape(MechanismShape):
    """The kernel elu + 1 in place of the exponential (Katharopoulos et al. 2020): linear in the length."""

    name: Literal["linear"] = Field("linear", description="how a layer attends")

    abilities = Abilities(causal=True, cross=True, documents=True)

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        return costs_of_sums(slot, slot.head_width, slot.head_width + 1)

    def make(self, slot: Slot) -> "LinearAttention":
        return LinearAttention(slot)


class LinearAttention(ImpliedWeights):
    """`linear_attention` between projections; where it is causal with a state of its own."""

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        if not self.slot.causal:
            return linear_attention(query, memory.keys, memory.values, real=told.real), None
        sums, decay = None if state is None else state.sums, told.shut(None, self.heads)
        given = (query, memory.keys, memory.values)
        attended, sums = linear_scan(*given, real=told.real, log_decay=decay, state=sums)
        return attended, SummedState(sums)


register_mechanism(LinearShape)

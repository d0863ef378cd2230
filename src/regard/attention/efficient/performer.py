"""Performer (Choromanski et al. 2021): softmax attention estimated without bias from positive random features, FAVOR+.

    exp(q·k)  =  E over ω ~ N(0, 1) of  exp(ω·q − |q|²/2) · exp(ω·k − |k|²/2)            (Lemma 1)

An average over `features` draws of ω estimates it, so softmax attention becomes linear (§2.2). Draws that are
orthogonal to each other, as many at a time as there are dimensions, estimate it better (§2.4, Theorem 2); the error
falls as 1/√features. Queries and keys are divided by head_width^¼ each, so that this is the scaled dot product.

Exponents are kept logarithms until they have been made harmless: a query's largest feature is subtracted from all of
it, and cancels in the mean; of keys the largest of all is, or, where no token may know of later ones, the largest so
far. What was summed before a larger one came shrinks then: a decay of the recurrence in `chunked.py`, at most 1.
"""

from hashlib import sha256
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
from regard.layers.reversible import computed_again

Projection = Float[Tensor, "features head_width"]
"""The draws of ω."""


def orthogonal_features(features: int, head_width: int, seed: int) -> Projection:
    """`features` draws of ω: orthogonal to each other within a block, each as long as if drawn alone (§2.4).

    The same on every machine and device: drawn in float64 on the CPU.
    """
    draws = torch.Generator("cpu").manual_seed(seed)
    blocks = -(-features // head_width)
    square = torch.randn(blocks, head_width, head_width, dtype=torch.float64, device="cpu", generator=draws)
    rotations, upper = torch.linalg.qr(square)
    rotations = rotations * upper.diagonal(dim1=1, dim2=2).sign()[:, None]  # else some rotations are never drawn
    lengths = torch.randn(blocks, head_width, head_width, dtype=torch.float64, device="cpu", generator=draws)
    drawn: Projection = (rotations * lengths.norm(dim=2, keepdim=True)).flatten(0, 1)[:features].float()
    return drawn


def performer_attention(
    query: Query,
    key: Key,
    value: Value,
    projection: Projection,
    *,
    causal: bool = False,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Attended:
    """Softmax attention as these features estimate it; where `causal`, over a token itself and those before it."""
    checked(query, key, value, "scaled_dot", None, None, 0.0)
    if causal:
        return performer_scan(query, key, value, projection, real=real)[0]
    features, (key, value) = query_features(query, projection), (spread(one, query.shape[1]) for one in (key, value))
    logarithms = log_features(key, projection, real)
    largest = finite(logarithms.detach().amax(dim=(2, 3), keepdim=True))
    with torch.autocast(query.device.type, enabled=False):
        summed = (logarithms - largest).exp().mT @ with_ones(value)
        return divided(features @ summed).to(value.dtype)


def performer_scan(
    query: Query,
    key: Key,
    value: Value,
    projection: Projection,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    log_decay: LogDecay | None = None,
    state: SummedState | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, SummedState]:
    """The causal one from a state on, and the state behind its last token; a decay comes on top of its own."""
    key, value = (spread(one, query.shape[1]) for one in (key, value))
    logarithms = log_features(key, projection, real)
    largest = logarithms.detach().amax(dim=3, keepdim=True)
    if state is not None:
        assert state.largest is not None
        largest = torch.cat((state.largest, largest), dim=2)
    largest = largest.cummax(dim=2).values
    before, now = finite(largest[:, :, :-1]), finite(largest)
    if state is None:
        before = torch.cat((now[:, :, :1], before), dim=2)
    else:
        now = now[:, :, 1:]
    shrunk = (before - now).clamp(max=0)  # above 0 only where nothing has been summed yet
    features = query_features(query, projection), (logarithms - now).exp()
    decay = shrunk if log_decay is None else shrunk + log_decay
    sums = None if state is None else state.sums
    out, sums = normalised_scan(*features, value, decay, state=sums, chunk=chunk)
    return out.to(value.dtype), SummedState(sums, largest[:, :, -1:])


def query_features(query: Query, projection: Projection) -> Float[Tensor, "batch heads queries features"]:
    """Each query's features up to a factor of its own, the largest of them 1."""
    logarithms = log_features(query, projection)
    return (logarithms - logarithms.detach().amax(dim=3, keepdim=True)).exp()


def log_features(
    vectors: Float[Tensor, "batch heads tokens head_width"],
    projection: Projection,
    real: Bool[Tensor, "batch tokens"] | None = None,
) -> Float[Tensor, "batch heads tokens features"]:
    """The logarithms of the positive features, but for the constant; of padding −∞."""
    with torch.autocast(vectors.device.type, enabled=False):
        scaled = widened(vectors) * vectors.shape[3] ** -0.25
        logarithms: Tensor = scaled @ projection.to(scaled.dtype).mT - scaled.square().sum(dim=3, keepdim=True) / 2
    return logarithms if real is None else logarithms.masked_fill(~real[:, None, :, None], -torch.inf)


def finite(largest: Float[Tensor, "batch heads #tokens 1"]) -> Float[Tensor, "batch heads #tokens 1"]:
    """With 0 where there has been no token to have one."""
    return largest.masked_fill(largest == -torch.inf, 0.0)


class PerformerShape(MechanismShape):
    """Softmax attention estimated from random features, FAVOR+ (Choromanski et al. 2021): linear in the length."""

    name: Literal["performer"] = Field("performer", description="how a layer attends")
    features: int = Field(256, ge=1, le=2**20, description="random features; the error falls as 1/√features")
    redraw: int = Field(
        0, ge=0, description="training batches after which the features are drawn anew; 0: they stay (appendix B.2)"
    )
    seed: int = Field(0, ge=0, description="what the features are drawn from; every layer draws its own")

    samples = ({"features": 7}, {"features": 31, "seed": 3})
    abilities = Abilities(causal=True, cross=True, documents=True)

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        sums = costs_of_sums(slot, self.features, slot.head_width + 1)
        return sums._replace(work=sums.work + 4 * slot.heads * slot.head_width * self.features)

    def make(self, slot: Slot) -> "Performer":
        return Performer(slot, self)


class Performer(ImpliedWeights):
    """`performer_attention` between projections. The random features are a buffer; where they are drawn anew, so is the
    number of training batches read, from which the next draw follows: a resumed training draws what it would have."""

    projection: Projection
    batches: Tensor

    def __init__(self, slot: Slot, shape: PerformerShape) -> None:
        super().__init__(slot)
        self.shape = shape
        self.register_buffer("projection", self.drawn(0))
        if shape.redraw:
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def drawn(self, number: int) -> Projection:
        """The features of this draw: of this seed and this place in the network, the same everywhere."""
        named = sha256(f"{self.shape.seed} {self.slot.site} {number}".encode()).digest()
        return orthogonal_features(self.shape.features, self.head_width, int.from_bytes(named[:7]))

    def redraw(self, number: int) -> None:
        """Other features from now on: the draw of this number."""
        self.projection = self.drawn(number).to(self.projection)

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        if self.training and self.shape.redraw and not computed_again():
            self.batches += 1
            if int(self.batches) % self.shape.redraw == 0:
                self.redraw(int(self.batches) // self.shape.redraw)
        given = (query, memory.keys, memory.values, self.projection)
        if not self.slot.causal:
            return performer_attention(*given, real=told.real), None
        return performer_scan(*given, real=told.real, log_decay=told.shut(None, self.heads), state=state)


register_mechanism(PerformerShape)

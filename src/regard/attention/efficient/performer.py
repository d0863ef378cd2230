"""Performer (Choromanski et al. 2021): softmax attention estimated without bias from positive random features, FAVOR+.

    exp(q·k)  =  E over ω ~ N(0, 1) of  exp(ω·q − |q|²/2) · exp(ω·k − |k|²/2)            (Lemma 1)

An average over `features` draws of ω estimates it, so softmax attention becomes linear (§2.2). Draws that are orthogonal to
each other, as many at a time as there are dimensions, estimate it better (§2.4, Theorem 2); the error falls as 1/√features.
Queries and keys are divided by head_width^¼ each, so that this is the scaled dot product.

Exponents are kept logarithms until they have been made harmless: a query's largest feature is subtracted from all of it,
and cancels in the mean; of keys the largest of all is, or, where no token may know of later ones, the largest so far.
What was summed before a larger one came shrinks then: a decay of the recurrence in `chunked.py`, at most 1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

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
from regard.axes import Attended, Key, Query, RowIds, Value

Projection = Float[Tensor, "features head_width"]
"""The draws of ω."""


@dataclass(frozen=True, eq=False)
class PerformerSums:
    """The keys and values read so far: their sums, and the largest logarithm of a feature, by which they are scaled."""

    sums: Sums
    largest: Float[Tensor, "batch heads 1 1"]

    def select(self, rows: RowIds) -> "PerformerSums":
        """Of these sequences."""
        return PerformerSums(self.sums[rows], self.largest[rows])


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
    return (rotations * lengths.norm(dim=2, keepdim=True)).flatten(0, 1)[:features].float()


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
    state: PerformerSums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, PerformerSums]:
    """The causal one from a state on, and the state behind its last token; a decay comes on top of its own."""
    key, value = (spread(one, query.shape[1]) for one in (key, value))
    logarithms = log_features(key, projection, real)
    largest = logarithms.detach().amax(dim=3, keepdim=True)
    if state is not None:
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
    return out.to(value.dtype), PerformerSums(sums, largest[:, :, -1:])


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
        logarithms = scaled @ projection.to(scaled.dtype).mT - scaled.square().sum(dim=3, keepdim=True) / 2
    return logarithms if real is None else logarithms.masked_fill(~real[:, None, :, None], -torch.inf)


def finite(largest: Float[Tensor, "batch heads #tokens 1"]) -> Float[Tensor, "batch heads #tokens 1"]:
    """With 0 where there has been no token to have one."""
    return largest.masked_fill(largest == -torch.inf, 0.0)

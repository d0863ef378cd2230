"""Choosing a token in every row by the row's own temperature, top-k, top-p and min-p, nothing asked of the host.

What may be drawn is what the filters keep, ties to the lower id. Where every row that is drawn has a top-k, only the
largest scores are looked at (largest.py), and nothing but them is counted up.

Otherwise a threshold says what stays: the k largest scores are looked at; the last one that stays is the threshold;
what is above it stays, and of those equal to it the first ones by id:

    scores      3  7  5  5  1  5        top-k 3: ranked 7 5 5, threshold 5, of the equals two
    stays       ·  7  5  5  ·  ·
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.decoding.filters import min_p, temperature
from regard.decoding.largest import largest

FEW = 8
"""A top-k is looked at alone where it is at most this part of the vocabulary."""


@dataclass(frozen=True)
class Kinds:
    """What rows that are decoded together ask for: what is not is not computed."""

    draws: bool = False
    """Whether any row is sampled; else all take the most likely token."""
    most_k: int | None = None
    """At least the largest top-k, where every row that is sampled has one."""
    nucleus: bool = False
    """Whether any row has a top-p."""
    smallest: bool = False
    """Whether any row has a min-p."""


@dataclass(frozen=True, eq=False)
class SamplingParameters:
    """What each row asks for; greedy is a top-k of 1."""

    temperature: Float[Tensor, "rows"]
    top_k: Int[Tensor, "rows"]
    top_p: Float[Tensor, "rows"]
    min_p: Float[Tensor, "rows"]


def choose(scores: RowLogits, asked: SamplingParameters, kinds: Kinds, draws: Float[Tensor, "rows"] | None) -> RowIds:
    """The most likely token, or the one in whose slice of [0, 1) each row's draw falls, slices in id order."""
    if not kinds.draws or draws is None:
        return scores.max(dim=-1).indices
    if kinds.most_k is None or kinds.most_k > scores.shape[-1] // FEW:
        return drawn(kept(scores, asked, kinds).softmax(dim=-1), draws)
    values, ids = largest(scores, kinds.most_k)
    probabilities = _kept_of_few(values.double(), asked, kinds).softmax(dim=-1)
    ids, order = ids.sort(dim=-1)
    place = drawn(probabilities.gather(1, order), draws)
    return ids.gather(1, place[:, None]).squeeze(1)


def drawn(probabilities: Float[Tensor, "rows options"], draws: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """The place in whose slice of [0, 1) each row's draw falls."""
    upto = probabilities.cumsum(dim=-1)
    point = draws[:, None] * upto[:, -1:]
    chosen: Int[Tensor, "rows"] = torch.searchsorted(upto, point, right=True).squeeze(-1)
    last = (probabilities > 0).long() * torch.arange(probabilities.shape[-1], device=upto.device)
    return torch.minimum(chosen, last.max(dim=-1).values)  # rounding must not reach past the last allowed one


def _kept_of_few(
    ranked: Float[Tensor, "rows most"], asked: SamplingParameters, kinds: Kinds
) -> Float[Tensor, "rows most"]:
    """What may be drawn of the largest scores, largest first; `-inf` elsewhere."""
    scores = temperature(ranked, asked.temperature[:, None])
    places = torch.arange(scores.shape[-1], device=scores.device)
    scores = scores.where(places < asked.top_k[:, None], -torch.inf)
    if kinds.nucleus:
        probabilities, mass = scores.softmax(dim=-1), asked.top_p[:, None]
        before = probabilities.cumsum(dim=-1) - probabilities
        scores = scores.where((before < mass) | (places == 0) | (mass >= 1), -torch.inf)
    return min_p(scores, asked.min_p[:, None]) if kinds.smallest else scores


def kept(logits: RowLogits, asked: SamplingParameters, kinds: Kinds) -> RowLogits:
    """The scores of what may be drawn, `-inf` elsewhere, in float64."""
    scores = logits.double()
    scores = temperature(scores, asked.temperature[:, None])
    if kinds.most_k is not None or kinds.nucleus:
        scores = _ranked(scores, asked, kinds)
    return min_p(scores, asked.min_p[:, None]) if kinds.smallest else scores


def _ranked(scores: RowLogits, asked: SamplingParameters, kinds: Kinds) -> RowLogits:
    """By top-k and top-p."""
    size = scores.shape[-1]
    count = asked.top_k[:, None].clamp(max=size)
    ranked = scores.topk(min(kinds.most_k or size, size)).values
    if kinds.nucleus:
        places = torch.arange(ranked.shape[-1], device=ranked.device)
        probabilities = ranked.where(places < count, -torch.inf).softmax(dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        stays = (before < asked.top_p[:, None]) | (places == 0) | (asked.top_p[:, None] >= 1)
        count = torch.minimum(count, stays.sum(dim=-1, keepdim=True))
    return first_of(scores, ranked, count)


def first_of(
    scores: RowLogits, ranked: Float[Tensor, "rows most"], count: Int[Tensor, "rows 1"]
) -> Float[Tensor, "rows vocab"]:
    """Only the `count` largest scores of every row, of equals those with the lower id; the largest are `ranked`."""
    threshold = ranked.gather(1, count.clamp(max=ranked.shape[-1]) - 1)
    above, equal = scores > threshold, scores == threshold
    room = count - above.sum(dim=-1, keepdim=True)
    return scores.where(above | (equal & (equal.cumsum(dim=-1) <= room)), -torch.inf)

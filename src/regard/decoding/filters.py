"""What is done to scores before a token is chosen: first a model's own filters, then temperature, top-k, top-p.

A removed token gets `-inf`; the rest keep their relative probabilities. Ties go to the lower id, so that the
result does not depend on how a sort is written.

A model's filters hold whatever the strategy. They see a row's scores before it does: the logits where one token is
chosen or drawn, the log-probabilities in a beam, where a forced token costs nothing. That is transformers' order too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from regard.axes import RowLogits


@runtime_checkable
class Filter(Protocol):
    """Scores of the next token in, scores out; what may not be chosen has `-inf`."""

    def __call__(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """The scores of what may be token `place` of at most `limit`."""
        ...


@dataclass(frozen=True)
class Suppressed:
    """These tokens are never chosen, unless a later filter forces them."""

    ids: tuple[int, ...]

    def __call__(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """`-inf` for each of them."""
        return scores.index_fill(-1, torch.tensor(self.ids, device=scores.device), -torch.inf)


@dataclass(frozen=True)
class ForcedBos:
    """Every answer begins with this token."""

    id: int

    def __call__(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """Only it, at the first place."""
        return _forced(scores, self.id) if place == 0 else scores


@dataclass(frozen=True)
class ForcedEos:
    """This token stands at the limit of length, where nothing has ended the answer before."""

    id: int

    def __call__(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """Only it, at the last place."""
        return _forced(scores, self.id) if place == limit - 1 else scores


@dataclass(frozen=True)
class Renormalized:
    """Probabilities are shares of what may be chosen, not of everything; the last filter, where there is one."""

    def __call__(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """The log-probabilities of what the filters before have left."""
        return scores.log_softmax(dim=-1)


def _forced(scores: RowLogits, token: int) -> RowLogits:
    only = torch.full_like(scores, -torch.inf)
    only[:, token] = 0
    return only


def apply(filters: Sequence[Filter], scores: RowLogits, place: int, limit: int) -> RowLogits:
    """One filter after the other."""
    for one in filters:
        scores = one(scores, place, limit)
    return scores


def temperature(logits: RowLogits, value: float) -> RowLogits:
    """`z / T`: below 1 sharper, above 1 flatter. Shifted so that the largest is 0, which a tiny T cannot overflow."""
    return (logits - logits.amax(dim=-1, keepdim=True)) / value


def top_k(logits: RowLogits, count: int) -> RowLogits:
    """Only the `count` most likely tokens."""
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    return logits.scatter(-1, order[:, count:], -torch.inf)


def top_p(logits: RowLogits, mass: float) -> RowLogits:
    """The smallest set of most likely tokens whose probability reaches `mass` (Holtzman et al. 2019, §3.1)."""
    if mass >= 1:
        return logits  # a sum of rounded probabilities may reach 1 before its last terms
    ranked = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ranked.values.double().softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    removed = before >= mass  # what stands before a token already reaches the mass
    removed[:, 0] = False
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, ranked.indices, removed), -torch.inf)

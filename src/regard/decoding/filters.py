"""What is done to logits before a token is drawn: what is banned goes, then temperature, then top-k, then top-p.

A removed token gets `-inf`; the rest keep their relative probabilities. Ties go to the lower id, so that the
result does not depend on how a sort is written.
"""

from collections.abc import Sequence

import torch

from regard.axes import RowLogits


def without(logits: RowLogits, ids: Sequence[int]) -> RowLogits:
    """All tokens but these."""
    return logits.index_fill(-1, torch.tensor(ids, device=logits.device), -torch.inf) if ids else logits


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

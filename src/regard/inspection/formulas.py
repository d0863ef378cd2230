"""Attention written out as the papers print it, pair by pair in float64: what the laws compare layers with.

Deliberately independent of `attention/`: no `scores`, no kernels, no shared softmax. Only masks and biases, which
are inputs of the formula, are asked for their own values.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.cache import KeyValues
from regard.attention.mask import Grid, Mask
from regard.attention.mask_algebra import Positions
from regard.attention.similarity import (
    Additive,
    AdditiveOfMapped,
    Cosine,
    Dot,
    General,
    ScaledDot,
    Similarity,
    Softcapped,
)


def _additive(similarity: Additive, query: Tensor, key: Tensor) -> Tensor:
    of_query = torch.einsum("qd,ed->qe", query, similarity.of_query.weight.double())
    of_key = torch.einsum("kd,ed->ke", key, similarity.of_key.weight.double())
    return torch.einsum("qke,e->qk", (of_query[:, None] + of_key[None]).tanh(), similarity.direction.double())


def _additive_of_mapped(similarity: AdditiveOfMapped, query: Tensor, key: Tensor) -> Tensor:
    of_query = torch.einsum("qd,ed->qe", query, similarity.of_query.weight.double())
    return torch.einsum("qke,e->qk", (of_query[:, None] + key[None]).tanh(), similarity.direction.double())


FORMULAS: dict[type[Similarity], Callable[..., Tensor]] = {
    Dot: lambda _, query, key: torch.einsum("qd,kd->qk", query, key),
    ScaledDot: lambda similarity, query, key: (
        torch.einsum("qd,kd->qk", query, key)
        * (1 / math.sqrt(query.shape[-1]) if similarity.scale is None else similarity.scale)
    ),
    Cosine: lambda _, query, key: (
        torch.einsum("qd,kd->qk", query, key) / torch.outer(query.square().sum(-1).sqrt(), key.square().sum(-1).sqrt())
    ),
    General: lambda similarity, query, key: torch.einsum("qd,de,ke->qk", query, similarity.matrix.double(), key),
    Additive: _additive,
    AdditiveOfMapped: _additive_of_mapped,
    Softcapped: lambda similarity, query, key: (
        similarity.cap
        * (FORMULAS[type(similarity.similarity)](similarity.similarity, query, key) / similarity.cap).tanh()
    ),
}
"""A new similarity adds its formula here; the law `meaning` refuses to pass without one."""


def attended(
    similarity: Similarity,
    query: Tensor,
    memory: KeyValues,
    mask: Mask | None,
    bias: Bias | Tensor | None,
    positions: Positions | None = None,
) -> Tensor:
    """`Σ_j α_ij v_j` with `α_ij = exp(s_ij) / Σ_k exp(s_ik)` over the allowed j, for every sequence and head."""
    batch, heads, queries, _ = query.shape
    keys, values = memory.keys.double(), memory.values.double()
    shape = (batch, heads, queries, keys.shape[2])
    grid = Grid.of(shape, query.device, positions=positions)
    allowed = (
        torch.ones(shape, dtype=torch.bool, device=query.device) if mask is None else mask.allowed(grid).expand(shape)
    )
    added = torch.zeros(shape, dtype=torch.float64, device=query.device)
    if bias is not None:
        added = (bias.values(grid) if isinstance(bias, Bias) else bias).double().expand(shape)
    out = torch.zeros(batch, heads, queries, values.shape[-1], dtype=torch.float64, device=query.device)
    for row in range(batch):
        for head in range(heads):
            shared = head * keys.shape[1] // heads
            scores = FORMULAS[type(similarity)](similarity, query[row, head].double(), keys[row, shared])
            exponentials = (scores + added[row, head]).exp().where(allowed[row, head], 0.0)
            total = exponentials.sum(-1, keepdim=True)
            out[row, head] = exponentials @ values[row, shared] / total.masked_fill(total == 0, 1.0)
    return out

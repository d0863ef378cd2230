"""How far apart scores are with and without ÷√d_k, for random queries and keys of unit variance, and what the softmax
makes of them (Vaswani et al. 2017, §3.2.1 and its footnote 4).

A score is a sum of d_k products of mean 0 and variance 1, so its variance is d_k; divided by √d_k it is 1. The entropy
of the softmax is given as a share of the largest there is, ln n for n keys: 1 looks at all alike, 0 at one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.attention.core import weights
from regard.attention.similarity import InnerProduct, similarity_module

QUERIES, KEYS = 1024, 64
KEY_SETS = 16
"""So many times new keys are drawn: of few keys the variance would depend on which."""


@dataclass(frozen=True)
class ScoreSpread:
    """Of one width of heads, by similarity: the scores' variance and the softmax's share of the largest entropy."""

    head_width: int
    variance: dict[str, float]
    entropy: dict[str, float]


def spread(head_width: int, similarities: Sequence[str] = ("dot", "scaled_dot"), seed: int = 0) -> ScoreSpread:
    """Measured in float64."""
    draw = torch.Generator().manual_seed(seed)
    query = torch.randn(KEY_SETS, 1, QUERIES, head_width, generator=draw, dtype=torch.float64)
    key = torch.randn(KEY_SETS, 1, KEYS, head_width, generator=draw, dtype=torch.float64)
    variance, entropy = {}, {}
    for name in similarities:
        similarity = similarity_module(name, head_width)
        assert isinstance(similarity, InnerProduct)
        variance[name] = float(similarity.scores(query, key).var())
        rows = torch.special.entr(weights(query, key, similarity=similarity)).sum(dim=-1)
        entropy[name] = float(rows.mean()) / math.log(KEYS)
    return ScoreSpread(head_width, variance, entropy)

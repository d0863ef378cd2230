"""Whether a model sees the order of what it reads: how far its answer moves when the source is permuted.

Attention is a sum over keys: where nothing says where they stand, their order changes nothing, and each query's result
moves with it. So an encoder without positions gives the same vectors in another order, and an encoder–decoder the same
logits. A causal decoder is no such sum: a token sees those before it, and which they are is the order.
Measured in float64, where what is left is rounding: sums are taken in another order, so it is not equal bit for bit.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.api.model import Model
from regard.data.batching import Inputs, Padded
from regard.data.corpus import Pair
from regard.models.network import Network

ROUNDING = 1e-9
"""Below it a difference in float64 is rounding."""


@dataclass(frozen=True)
class Moved:
    """How far the answers to a source and to the same source permuted are apart, at most."""

    vectors: float | None
    """Of the encoder's vectors, permuted back; None where there is no encoder."""
    logits: float
    """Of the logits of the target's tokens."""
    size: float
    """The largest logit."""
    same: float
    """Share of sources that get the same text permuted as in order."""


@torch.no_grad()
def moved(model: Model, pairs: Sequence[Pair], seed: int = 0) -> Moved:
    """Every source once in its order and once in another; each of its words must be one token."""
    network = copy.deepcopy(model.module).double().eval()
    draw = torch.Generator().manual_seed(seed)
    vectors, logits, size = [], 0.0, 0.0
    permuted: list[str] = []
    for pair in pairs:
        letters = pair.source.split(" ")
        order = torch.randperm(len(letters), generator=draw)
        permuted.append(" ".join(letters[place] for place in order.tolist()))
        sources = [model.tokenizer.encode(text) for text in (pair.source, permuted[-1])]
        encode = getattr(network, "encode", None)
        if encode is not None and network.config.reads_source:
            one, other = (encode(_row([*ids, model.tokenizer.eos_id]))[0] for ids in sources)
            vectors.append(_distance(one[order], other[: len(order)]))
        one, other = (_target_logits(network, model, ids, model.tokenizer.encode(pair.target)) for ids in sources)
        logits, size = max(logits, _distance(one, other)), max(size, float(one.abs().max()))
    answers = (model.run(texts) for texts in ([pair.source for pair in pairs], permuted))
    same = sum(one == other for one, other in zip(*answers, strict=True)) / len(pairs)
    return Moved(max(vectors) if vectors else None, logits, size, same)


def _target_logits(network: Network, model: Model, source: list[int], target: list[int]) -> Tensor:
    """Of `<bos>` and the target's tokens, given the source."""
    token = model.tokenizer
    if network.config.reads_source:
        inputs = Inputs(_row([token.bos_id, *target]), _row([*source, token.eos_id]))
    else:
        inputs = Inputs(_row([*source, token.bos_id, *target]))
    out: Tensor = network(inputs)[0, -len(target) - 1 :]
    return out


def _row(ids: list[int]) -> Padded:
    return Padded.of([ids])


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())

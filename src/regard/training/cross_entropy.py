"""Cross-entropy of a large vocabulary on a CPU, some rows at a time, with its gradient made on the way.

PyTorch writes the whole table of log-probabilities, then a table of zeros, then the gradient, each of them
[tokens, vocabulary] in float32 and none of them in a cache. Here a tile of rows goes from logits to gradient while it
is in the cache, and only the gradient is kept, in the logits' own type: the same numbers to rounding, in a third of
the time. With t the target, ε the smoothing (Szegedy et al. 2015, §7), z the logits and V their number:

    loss = log Σ exp z − (1 − ε) z_t − ε/V Σ z        gradient = softmax z − (1 − ε) [t] − ε/V
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.data.batching import IGNORED

TILE = 1 << 19
"""Logits looked at together: two megabytes of float32."""


def tiled_cross_entropy(
    logits: Float[Tensor, "tokens vocab"], targets: Int[Tensor, "tokens"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """`−Σ log p(target)` over the rows whose target is not IGNORED, in float32 or better."""
    total: Tensor = _Tiled.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return total


class _Tiled(torch.autograd.Function):
    """The sum forward; its gradient, which costs one softmax that is there anyway, is kept for backward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Tile by tile, the loss and, where it is wanted, the gradient."""
        rows = max(1, TILE // logits.shape[1])
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        total = torch.zeros((), dtype=torch.float64)
        for first in range(0, len(logits), rows):
            tile = slice(first, first + rows)
            loss, slope = _tile(logits[tile], targets[tile, None], smoothing)
            total += loss
            if gradient is not None:
                gradient[tile] = slope
        ctx.save_for_backward(gradient)
        return total.to(logits.dtype if logits.dtype == torch.float64 else torch.float32)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """The kept gradient, times what comes from above."""
        (gradient,) = ctx.saved_tensors
        return gradient * upstream if upstream != 1 else gradient, None, None


def _tile(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of some rows, and its gradient."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    ignored = targets == IGNORED
    targets = targets.masked_fill(ignored, 0)
    slope = wide.softmax(dim=-1)
    # Of log Σ exp z, the largest logit says it best: its probability is at least 1/V and never underflows.
    log_sum = wide.amax(dim=-1, keepdim=True) - slope.amax(dim=-1, keepdim=True).log()
    loss = log_sum - (1 - smoothing) * wide.gather(1, targets)
    slope.scatter_add_(1, targets, slope.new_full((1, 1), smoothing - 1).expand_as(targets))
    if smoothing:
        loss -= smoothing * wide.mean(dim=-1, keepdim=True)
        slope -= smoothing / wide.shape[1]
    if ignored.any():
        loss, slope = loss.masked_fill(ignored, 0.0), slope.masked_fill(ignored, 0.0)
    return loss.sum(dtype=torch.float64), slope

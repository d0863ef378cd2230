"""The Trainable contract: a loss that is a sum and a count, never a mean.

Sums add up over micro-batches and ranks whatever their sizes, and the loop divides once, by the count of the whole
batch. A mean of means would weigh a token by how many others happened to stand beside it.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import Logits
from regard.data.batching import IGNORED, Batch, Inputs
from regard.training.cross_entropy import tiled_cross_entropy


@dataclass(frozen=True, eq=False)
class Loss:
    """The summed loss of the target tokens, in float32 or better, and how many they are."""

    sum: Tensor
    count: int

    @property
    def mean(self) -> float:
        """Per token, for people to read."""
        return float(self.sum) / max(self.count, 1)


@runtime_checkable
class Trainable(Protocol):
    """Anything the loop can train.

    Laws: the loss of two batches is the sum of their losses; padding adds nothing to either part; evaluation mode
    gives the plain loss without smoothing or dropout.
    """

    module: nn.Module

    def loss(self, batch: Batch) -> Loss:
        """Of this batch: smoothed while `module.training`, plain in evaluation."""
        ...


class TokenPrediction:
    """A model that gives logits for every token, trained by cross-entropy."""

    def __init__(self, module: nn.Module, *, label_smoothing: float = 0.0) -> None:
        self.module = module
        self.label_smoothing = label_smoothing

    def loss(self, batch: Batch) -> Loss:
        """Summed cross-entropy of the targets."""
        inputs: Inputs = batch.inputs
        logits: Logits = self.module(inputs)
        smoothing = self.label_smoothing if self.module.training else 0.0
        return Loss(summed_cross_entropy(logits, batch.targets, smoothing), batch.count)


def cross_entropy(logits: Logits, targets: Tensor, smoothing: float = 0.0) -> Loss:
    """`summed_cross_entropy` and how many targets there are; counting waits for a GPU."""
    return Loss(summed_cross_entropy(logits, targets, smoothing), int((targets != IGNORED).sum()))


def summed_cross_entropy(logits: Logits, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """`−Σ log p(target)`, each target smoothed by Szegedy et al. (2015, §7); IGNORED targets count for nothing."""
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        return tiled_cross_entropy(logits.flatten(0, 1), targets.flatten(), smoothing)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(
        wide.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )

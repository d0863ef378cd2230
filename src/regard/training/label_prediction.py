"""Classifiers and finders of answers as something the loop can train: one choice for a text, or two places in it."""

import torch
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.training.trainable import Loss, summed_cross_entropy


class LabelPrediction:
    """A model that gives a logit for each class, trained by cross-entropy; the count is of texts."""

    def __init__(self, module: nn.Module, *, label_smoothing: float = 0.0) -> None:
        self.module = module
        self.label_smoothing = label_smoothing

    def loss(self, batch: Batch) -> Loss:
        """Summed cross-entropy of the labels, which are the one column of the targets."""
        logits: Tensor = self.module(batch.inputs)
        smoothing = self.label_smoothing if self.module.training else 0.0
        return Loss(summed_cross_entropy(logits[:, None], batch.targets, smoothing), batch.count)


class SpanPrediction:
    """A model that gives every token two logits: that an answer begins there, that it ends there.

    Two choices among a text's real tokens, each trained by cross-entropy; the count is of choices, two for a text.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def loss(self, batch: Batch) -> Loss:
        """Summed cross-entropy of both places, which are the two columns of the targets."""
        logits: Tensor = self.module(batch.inputs)
        places = logits.transpose(1, 2).masked_fill(~batch.inputs.tokens.real[:, None], -torch.inf)
        return Loss(summed_cross_entropy(places, batch.targets), batch.count)

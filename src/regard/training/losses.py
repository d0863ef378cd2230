"""What classifiers, finders of answers and Word2Vec are trained by: one choice for a text, two places in it, words."""

import torch
from torch import Tensor, nn

from regard.data.batching import IGNORED, Batch
from regard.embedding.word2vec.model import Word2Vec, answers_loss
from regard.errors import InputError
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


class WordPrediction:
    """In every row some words are read and questions asked: `inputs.tokens`, `inputs.source`, and 1 or 0 as targets.

    A row is one prediction; the count is of rows, so that the mean is `−log σ(u·v) − Σ log σ(−u·n)` per predicted word.
    """

    def __init__(self, module: Word2Vec) -> None:
        self.module = module

    def loss(self, batch: Batch) -> Loss:
        """Summed over all questions, and how many words were predicted."""
        read, asked = batch.inputs.tokens, batch.inputs.source
        if asked is None:
            raise InputError("a batch of words without questions", "give `Inputs(words, questions)`")
        scores = self.module(read.ids, read.real, asked.ids)
        return Loss(answers_loss(scores, batch.targets, IGNORED), read.ids.shape[0])

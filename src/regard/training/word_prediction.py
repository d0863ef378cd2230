"""Word2Vec as something the loop can train: the plain form that its fast kernel is compared with."""

from regard.data.batching import IGNORED, Batch
from regard.embedding.word2vec import Word2Vec, answers_loss
from regard.errors import InputError
from regard.training.trainable import Loss


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

"""Word2Vec (Mikolov et al. 2013a, 2013b): a word's vector is what predicts the words around it.

    skip-gram    each word of the window, alone, predicts the word in its middle
    cbow         the mean of the window's words predicts the word in its middle

Predicting is answering yes-or-no questions: in negative sampling "is it this word?" for the word itself and for a few
drawn from the noise; in hierarchical softmax "left or right?" at every fork on the way to the word in a Huffman tree.
Either way the loss is Σ −log σ(±u·v), and one module serves all four. The words of a mean take the step of the mean
whole, where the gradient would give each its share of it: so do word2vec and gensim, and rates mean the same in all
three. This is the plain form, and the oracle of the fast one (`kernel.py`); which questions are asked is drawn
there.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import Config
from regard.errors import ConfigError

Kind = Literal["skip-gram", "cbow"]
Objective = Literal["negative-sampling", "hierarchical-softmax"]
RATES: dict[Kind, float] = {"skip-gram": 0.025, "cbow": 0.075}
"""A mean takes one step where its words, each alone, would take one each, so CBOW needs a larger one."""


class Word2VecPlan(Config):
    """How vectors are trained; the defaults are word2vec's own."""

    kind: Kind = Field("skip-gram", description="what predicts the middle word: each word around it, or their mean")
    loss: Objective = Field("negative-sampling", description="which questions are asked")
    width: int = Field(100, ge=1, le=4096, description="numbers of a vector")
    window: int = Field(5, ge=1, le=100, description="words on either side, at most; how many is drawn for each word")
    negatives: int | None = Field(
        None, ge=1, le=100, description="words drawn from the noise for each word, 5 if absent; of negative sampling"
    )
    min_count: int = Field(5, ge=1, description="words that occur less often are left out")
    sample: float = Field(1e-3, gt=0.0, le=1.0, description="words more frequent than this are left out now and then")
    epochs: int = Field(5, ge=1, le=10_000, description="times the text is read")
    learning_rate: float | None = Field(None, gt=0.0, le=1.0, description="first learning rate, which falls to nothing")
    seed: int = Field(0, ge=0, lt=2**32, description="of everything that is drawn")

    @model_validator(mode="after")
    def _negatives_are_used(self) -> "Word2VecPlan":
        if self.negatives is not None and self.loss != "negative-sampling":
            raise ConfigError(f"negatives have no effect with loss {self.loss!r}", "leave them out")
        return self

    @property
    def drawn(self) -> int:
        """Words drawn from the noise for each word."""
        return 5 if self.negatives is None else self.negatives

    @property
    def first_rate(self) -> float:
        """The learning rate at the beginning."""
        return RATES[self.kind] if self.learning_rate is None else self.learning_rate


class Word2Vec(nn.Module):
    """Two tables: a vector for every word that is read, and one for every question that is asked about it."""

    def __init__(self, words: int, questions: int, width: int) -> None:
        super().__init__()
        self.read = nn.Parameter((torch.rand(words, width) - 0.5) / width)
        self.asked = nn.Parameter(torch.zeros(questions, width))

    def forward(
        self,
        inputs: Int[Tensor, "rows inputs"],
        real: Bool[Tensor, "rows inputs"],
        questions: Int[Tensor, "rows questions"],
    ) -> Float[Tensor, "rows questions"]:
        """`u·v` of the mean v of each row's real inputs with each of its questions u."""
        total = (F.embedding(inputs, self.read) * real[..., None]).sum(dim=1)
        mean = (total / real.sum(dim=1, keepdim=True)).detach() + (total - total.detach())  # the gradient of a sum
        return torch.einsum("rw,rqw->rq", mean, F.embedding(questions, self.asked))


def answers_loss(
    scores: Float[Tensor, "rows questions"], answers: Int[Tensor, "rows questions"], ignored: int
) -> Float[Tensor, ""]:
    """`Σ −log σ(score)` where the answer is yes (1), `Σ −log σ(−score)` where it is no (0)."""
    losses = F.binary_cross_entropy_with_logits(scores, (answers == 1).to(scores.dtype), reduction="none")
    return torch.where(answers == ignored, 0.0, losses).sum()

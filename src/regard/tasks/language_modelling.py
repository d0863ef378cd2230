"""Language modelling (Radford et al. 2018, §3.1): the next token from those before it; it goes on with a text."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from regard.data.batching import Inputs, Padded
from regard.data.splits import Splits, TextDocument
from regard.data.windows import NextToken, in_order
from regard.errors import InputError
from regard.tasks.document_task import OfDocuments
from regard.tasks.files import window_of
from regard.tasks.generation import Generation
from regard.tasks.recipe import Recipe
from regard.tasks.task import Loaded
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction, Trainable

MEASURED = 8192
"""Tokens measured at a time."""


class Language(OfDocuments, Generation[Splits[TextDocument]]):
    """A text in, its continuation out."""

    name = "language_modelling"
    architectures = ("decoder",)
    example = TextDocument

    def objective(self, recipe: Recipe, tokenizer: Tokenizer) -> NextToken:
        """Every token predicts the next."""
        return NextToken(window_of(recipe))

    def begins(self, recipe: Recipe) -> bool:
        """As [task] begin says."""
        return recipe.task.begin == "bos"

    def check(self, recipe: Recipe, text: str) -> None:
        """A text to go on with may be blank, such as a line's end, but not nothing."""
        if not text:
            raise InputError("the text is empty", "give its beginning")

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The texts, padded on the left so that all go on at the same column."""
        before = [model.tokenizer.bos_id] if self.begins(model.recipe) else []
        rows = [[*before, *ids] for ids in model.tokenizer.encode_batch(list(texts))]
        return Inputs(Padded.of(rows, side="left"))

    def before(self, model: Loaded, text: str) -> list[int]:
        """All of it."""
        return model.tokenizer.encode(text)

    def evaluate(self, model: Loaded, examples: Sequence[Any]) -> dict[str, float]:
        """Loss per token in nats, its exponential, and bits for each byte of the text; each token is predicted once."""
        documents: Sequence[TextDocument] = examples
        stream, objective = self.windows(model, documents)
        total, count = measured(TokenPrediction(model.module), in_order(stream, objective, MEASURED))
        loss = total / max(count, 1)
        size = sum(len(document.text.encode()) for document in documents)
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"loss": loss, "perplexity": perplexity, "bits_per_byte": total / math.log(2) / size}


@torch.no_grad()
def measured(trainable: Trainable, batches: Sequence[Any]) -> tuple[float, int]:
    """The summed loss of batches in evaluation, and the count."""
    device = next(trainable.module.parameters()).device
    was = trainable.module.training
    trainable.module.eval()
    losses = [trainable.loss(batch.to(device)) for batch in batches]
    trainable.module.train(was)
    return sum(float(loss.sum) for loss in losses), sum(loss.count for loss in losses)

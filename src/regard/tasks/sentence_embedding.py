"""Sentence vectors (Reimers & Gurevych 2019, §3): a vector for a text, near those of texts that mean the same.

For encoders that were loaded: they are asked and looked at. They were trained by what their makers chose; there is no
objective here to train them further, and nothing to measure them by.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from regard.axes import Hidden
from regard.data.batching import Inputs, Padded
from regard.data.corpus import Corpus, Split
from regard.decoding.beam import check_likely
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.generation import TOGETHER
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, USUAL, Answer, Loaded, Measuring, Needs, Task, TrainingData, refuse_decoding
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer

SHOWN = 8
"""Numbers of a vector that people are shown."""


class SentenceEmbeddingTable(TaskTable):
    """A text in, its vector out."""

    name: Literal["sentence_embedding"] = Field("sentence_embedding", description="vectors of texts, of loaded models")
    prefix: str = Field("", description="put before every text")
    prompts: dict[str, str] = Field(
        default_factory=dict, description="other texts to put before one, by name; kept for sentence-transformers"
    )
    pooling: Literal["mean", "first", "max"] = Field(
        "mean", description="what stands for a text: the mean of its tokens' vectors, the first, or the largest of each"
    )
    normalize: bool = Field(True, description="what stands for a whole text is brought to length 1")
    max_seq_length: int | None = Field(None, ge=1, description="tokens of a text that is embedded; the rest is cut off")
    do_lower_case: bool = Field(False, description="a text is read in small letters")


class SentenceEmbedding(Task[Corpus]):
    """A text in, its vector out."""

    Table = SentenceEmbeddingTable
    options: SentenceEmbeddingTable
    needs = Needs(decodes=False, outputs=("none",))

    @torch.no_grad()
    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """The vectors, each a list of numbers."""
        refuse_decoding(self.name, strategy, max_new_tokens)
        answers = []
        for first in range(0, len(texts), TOGETHER):
            vectors = sentence_vectors(model, self.options, texts[first : first + TOGETHER])
            check_likely(vectors, "the model's vectors")
            for vector in vectors.tolist():
                more = f" … ({len(vector)} numbers)" if len(vector) > SHOWN else ""
                shown = " ".join(f"{number:.4f}" for number in vector[:SHOWN]) + more
                answers.append(Answer(vector, shown, {"vector": vector}))
        return answers

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Corpus:
        """There are none."""
        _refuse()

    def texts(self, data: Corpus, sample: int) -> Iterator[str]:
        """There are none."""
        _refuse()

    def training_data(self, recipe: Recipe, data: Corpus, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """There is none."""
        _refuse()

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> Sequence[Any]:
        """There is nothing to measure."""
        _refuse()

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """There is nothing to measure."""
        _refuse()


def sentence_vectors(model: Loaded, options: SentenceEmbeddingTable, texts: Sequence[str]) -> Tensor:
    """One vector for each text, as [task] says: its pooling, length 1 or not, and how much of a text is read."""
    token, task = model.tokenizer, options
    texts = [task.prefix + text for text in texts]
    texts = [text.lower() for text in texts] if task.do_lower_case else texts
    room = None if task.max_seq_length is None else max(task.max_seq_length - token.added(), 0)
    rows = [token.apply_template(ids[:room])[0] for ids in token.encode_batch(texts)]
    inputs = Inputs(Padded.of(rows, fill=token.pad_id)).to(model.module.device)
    plain = model.module.config.outputs == "none"  # its forward pass is what a watch is told of
    hidden: Tensor = model.module(inputs) if plain else model.module.hidden(inputs)
    vectors = pooled(hidden, inputs.tokens.real[..., None], task.pooling)
    return F.normalize(vectors, dim=-1) if task.normalize else vectors


def pooled(hidden: Hidden, real: Bool[Tensor, "batch tokens 1"], pooling: str) -> Float[Tensor, "batch width"]:
    """One vector of many; padding, which is not real, is on the right."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(dim=1)
    return (hidden * real).sum(dim=1) / real.sum(dim=1)


def _refuse() -> NoReturn:
    raise ConfigError(
        "task 'sentence_embedding' is for models that were loaded: it has no data, no objective and no figure",
        "use `run` or `look`, or train for another task, such as classification",
    )

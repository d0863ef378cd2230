"""Language modelling (Radford et al. 2018, §3.1): the next token from those before it; it goes on with a text."""

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from regard.data.batching import Batch, Inputs, Padded
from regard.data.splits import Splits, TextDocument
from regard.data.tables import ending
from regard.data.windows import NextToken, overlapping
from regard.decoding.engine import listeners
from regard.decoding.sliding import Sliding
from regard.decoding.stepper import Stepper
from regard.errors import InputError, LengthWarning
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.document_task import OfDocuments
from regard.tasks.files import window_of
from regard.tasks.generation import Generation
from regard.tasks.task import USUAL, Loaded, Measuring, Needs
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import Trainable, summed_cross_entropy

MEASURED = 8192
"""Tokens measured at a time."""

LOGITS = 1024
"""Tokens whose logits there are at a time."""

WIDEST = 4096
"""Tokens of a window to measure in, where the model could read more and nobody asked for more."""


class LanguageModellingTable(TaskTable):
    """A text in, its continuation out."""

    name: Literal["language_modelling"] = Field("language_modelling", description="the next token of running text")
    begin: Literal["bos", "none"] = Field(
        "bos", description="the special token that texts begin with, in training and when it goes on"
    )

    parts = ("text",)
    files = '`data=["book.txt"]`'
    data_keys = frozenset({"window"})
    writes = True


class LanguageModelling(OfDocuments, Generation[Splits[TextDocument]]):
    """A text in, its continuation out."""

    Table = LanguageModellingTable
    options: LanguageModellingTable
    needs = Needs(decodes=True, source=False)
    continues = True
    example = TextDocument

    def objective(self, tokenizer: Tokenizer, window: int) -> NextToken:
        """Every token predicts the next."""
        return NextToken(window)

    @property
    def begins(self) -> bool:
        """As [task] begin says."""
        return self.options.begin == "bos"

    def ends(self, data: DataTable | None) -> bool:
        """Where the data are documents; a file that is one text has no end that a model could learn."""
        return data is not None and data.format != "whole"

    def file_format(self, data: DataTable | None, path: Path) -> str:
        """As the recipe's own files are; for a model that was loaded, a plain text file is one text."""
        if data is not None:
            return data.format
        return "whole" if ending(path) in ("", ".tsv") else "auto"

    def check(self, model: Loaded, text: str) -> None:
        """A text to go on with may be blank, such as a line's end, but not nothing."""
        if not text:
            raise InputError("the text is empty", "give its beginning")

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The texts, padded on the left so that all go on at the same column."""
        before = [model.tokenizer.bos_id] if self.begins else []
        rows = [[*before, *ids] for ids in model.tokenizer.encode_batch(list(texts))]
        return Inputs(Padded.of(rows, side="left"))

    def stepper(self, model: Loaded) -> Stepper[Any]:
        """Beyond the model's context its window slides; while it is watched it does not: a recording is of one pass."""
        context = model.module.config.context
        return model.module if context is None or listeners.get() else Sliding(model.module, context)

    def warn_of_length(self, model: Loaded, inputs: Inputs) -> None:
        """Say how much of a text is read, where that is not all of it."""
        context, longest = model.module.config.context, int(inputs.tokens.lengths.max())
        if self.stepper(model) is model.module:
            super().warn_of_length(model, inputs)
        elif context is not None and longest > context:
            warnings.warn(
                f"a text of {longest:,} tokens is longer than the {context:,} this model reads at once: "
                f"it goes on from the last {context // 2:,}",
                LengthWarning,
                stacklevel=2,
            )

    def before(self, model: Loaded, text: str) -> list[int]:
        """All of it."""
        return model.tokenizer.encode(text)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("loss", "perplexity", "bits_per_byte")

    def reading(self, model: Loaded, how: Measuring = USUAL) -> dict[str, int]:
        """The model's own context, as far as it is known and no wider than WIDEST; windows side by side."""
        config = model.module.config
        own = min(config.context, WIDEST) if config.context is not None else window_of(config, model.data)
        window = how.window or own
        stride = how.stride or window
        if config.position_limit is not None and window > config.position_limit:
            raise InputError(
                f"a window of {window} tokens is wider than the {config.position_limit} positions that are learnt",
                f"use {config.position_limit} or fewer",
            )
        if not 1 <= stride <= window:
            raise InputError(
                f"a stride of {stride} leaves out tokens between windows of {window}", f"use 1 to {window}"
            )
        return {"window": window, "stride": stride}

    @torch.no_grad()
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Loss per token in nats, its exponential, and bits for each byte of the text; each token is predicted once.

        The first token of a text is predicted where texts begin with a mark, their end where the recipe's data have
        one: see `begins` and `ends`. Nothing else is added to a text.
        """
        documents: Sequence[TextDocument] = examples
        stream, _ = self.windows(model, documents)
        batches = overlapping(stream, **self.reading(model, how), tokens=MEASURED)
        total, count = 0.0, 0
        device = model.module.device
        for done, batch in enumerate(batches, start=1):
            total, count = total + summed_loss(model.module, batch.to(device)), count + batch.count
            how.progress(done, len(batches))
        loss = total / max(count, 1)
        size = sum(len(document.text.encode()) for document in documents)
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"loss": loss, "perplexity": perplexity, "bits_per_byte": total / math.log(2) / size}


def summed_loss(module: Network, batch: Batch) -> float:
    """−Σ log p of a batch's targets; logits are made for some columns at a time, as a wide vocabulary's are large."""
    hidden = module.hidden(batch.inputs)
    columns = max(1, LOGITS // len(hidden))
    parts = [slice(first, first + columns) for first in range(0, hidden.shape[1], columns)]
    return sum(
        float(summed_cross_entropy(module.logits(hidden[:, part]), batch.targets[:, part].contiguous()))
        for part in parts
    )


def read_at_once(device: torch.device) -> int:
    """Tokens that an encoder reads at a time: for a GPU asking for a small batch takes as long as for a large one."""
    return MEASURED if device.type == "cpu" else 4 * MEASURED


@torch.no_grad()
def measured(trainable: Trainable, batches: Sequence[Any], progress: Callable[[int, int], None]) -> tuple[float, int]:
    """The summed loss of batches in evaluation, and the count."""
    device = next(trainable.module.parameters()).device
    was = trainable.module.training
    trainable.module.eval()
    total, count = 0.0, 0
    for done, batch in enumerate(batches, start=1):
        loss = trainable.loss(batch.to(device))
        total, count = total + float(loss.sum), count + loss.count
        progress(done, len(batches))
    trainable.module.train(was)
    return total, count

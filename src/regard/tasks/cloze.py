"""Filling given gaps: texts in which something is hidden, and what stands there; also what `recall` is.

Masked language modelling hides what it likes and tells running text; here the data say what is hidden, so every gap has
one answer, and decoders, which see only what stands before a gap, can be asked as well as encoders.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.data.batching import IGNORED
from regard.data.cloze import MASK, Cloze
from regard.data.corpus import Corpus, Pair, Split
from regard.data.sources import PAIR
from regard.data.stream import BatchStream, Position, by_length
from regard.decoding.beam import check_likely
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError, InputError
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.generation import TOGETHER
from regard.tasks.language_modelling import read_at_once
from regard.tasks.pairs import open_corpus, read_pair_files
from regard.tasks.recipe import Recipe
from regard.tasks.task import (
    EVERY_SPLIT,
    USUAL,
    Answer,
    Loaded,
    Measuring,
    Needs,
    Task,
    TrainingData,
    amount,
    held_out,
    refuse_decoding,
)
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction, cross_entropy


class ClozeTable(TaskTable):
    """A text with gaps in, what stands in them out."""

    name: Literal["cloze"] = Field("cloze", description="what stands in given gaps of a text")
    gaps: tuple[str, ...] = Field(
        (MASK,),
        min_length=1,
        description="tokens that are gaps: the mask, or tokens of the texts that ask for something",
    )

    parts = PAIR
    files = f'`data=["gaps.tsv"]`, a text with {MASK} in it, a tab and the words that stand there'
    data_keys = frozenset({"seed"})


class ClozeTask(Task[Corpus]):
    """A text with gaps in, what stands in them out."""

    Table = ClozeTable
    options: ClozeTable
    needs = Needs(decodes=None, source=False, outputs=("tokens", "masked"))
    example = Pair
    specials = (Tokenizer.mask,)

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Corpus:
        """A built-in corpus whose texts have gaps, or pairs from files."""
        return open_corpus(recipe.given, splits, self.name)

    def texts(self, data: Corpus, sample: int) -> Iterator[str]:
        """Both sides of the first training examples, without the gaps."""
        return (text.replace(MASK, "") for pair in held_out(data, "train", sample) for text in pair)

    def training_data(self, recipe: Recipe, data: Corpus, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Texts of like length side by side."""
        plan, how = recipe.training, self.objective(tokenizer)
        held = how.encode(held_out(data, "valid"))
        longest, limit = max(map(how.cost, held), default=0), module.config.position_limit
        if limit is not None and longest > limit:
            raise ConfigError(
                f"a text of {longest} tokens reaches further than the {limit} positions that are learnt",
                "give shorter texts" if recipe.model.begins_in else f"use model.max_positions={longest}",
            )
        batches = BatchStream(data, how, plan.batch_tokens, plan.seed)
        next(batches.start(Position()))
        valid = [how.batch(rows) for rows in by_length(held, how, plan.batch_tokens)]
        trainable = TokenPrediction(module, label_smoothing=plan.label_smoothing)
        return TrainingData(trainable, batches, valid, amount(batches, data), batches.longest())

    def objective(self, tokenizer: Tokenizer) -> Cloze:
        """How texts are read."""
        return Cloze(tokenizer, gaps=self.options.gaps)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("accuracy", "loss")

    def check(self, model: Loaded, text: str) -> None:
        """A text without a gap asks nothing."""
        super().check(model, text)
        if not any(gap in text for gap in self.options.gaps):
            known = " or ".join(self.options.gaps)
            raise InputError(f"the text hides nothing: it has no {known}", "write one where something is asked for")

    @torch.no_grad()
    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """The likeliest word for each gap, and the text with them filled in."""
        refuse_decoding(self.name, strategy, max_new_tokens)
        how, token, found = self.objective(model.tokenizer), model.tokenizer, []
        for first in range(0, len(texts), TOGETHER):
            inputs = how.prompt(texts[first : first + TOGETHER]).to(model.module.device)
            logits: Tensor = model.module(inputs)
            for ids, row in zip(inputs.tokens.rows(), logits, strict=True):
                places = [place for place, one in enumerate(ids) if one in how.gap_ids]
                check_likely(row[places])
                likely = row[places].double().softmax(dim=-1).max(dim=-1)
                chosen = likely.indices.tolist()
                fills = [
                    {"token": token.decode([one]).strip(), "probability": share}
                    for one, share in zip(chosen, likely.values.tolist(), strict=True)
                ]
                by_place = dict(zip(places, chosen, strict=True))
                filled = token.decode([by_place.get(place, one) for place, one in enumerate(ids)])
                found.append(Answer(filled, filled, {"output": filled, "fills": fills}))
        return found

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Pair]:
        """Pairs of one file or of two."""
        return read_pair_files(paths, data)

    @torch.no_grad()
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """The share of gaps whose likeliest word is what stands there, and the loss of a gap in nats."""
        how.refuse_windows(self.name)
        if not examples:
            raise InputError("there are no texts to measure on", "give a file of pairs, or test data in the recipe")
        cloze = self.objective(model.tokenizer)
        encoded = cloze.encode(examples)
        batches = by_length(encoded, cloze, max(read_at_once(model.module.device), *map(cloze.cost, encoded)))
        total, count, right = 0.0, 0, 0
        for done, rows in enumerate(batches, start=1):
            batch = cloze.batch(rows).to(model.module.device)
            logits: Tensor = model.module(batch.inputs)
            loss = cross_entropy(logits, batch.targets)
            asked = batch.targets != IGNORED
            total, count = total + float(loss.sum), count + loss.count
            right += int((logits.argmax(dim=-1)[asked] == batch.targets[asked]).sum())
            how.progress(done, len(batches))
        return {"accuracy": right / count, "loss": total / count}

"""Classification: an encoder that says which of a few labels a text has, and how sure it is."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from regard.data.batching import Batch
from regard.data.corpus import Corpus, Examples, Pair, Split, examples_of
from regard.data.labels import LABELLED, Labelling, labels_of, read_labelled
from regard.data.objectives import Example
from regard.data.splits import hold_out_labelled
from regard.data.stream import BatchStream, ByLength, FewShapes, Position
from regard.decoding.beam import check_likely
from regard.decoding.engine import listeners
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError, InputError
from regard.metrics.labels import accuracy, macro_f1
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.files import one_file, open_files, reading_of, require_positions, window_of
from regard.tasks.generation import TOGETHER
from regard.tasks.language_modelling import read_at_once
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
from regard.training.losses import LabelPrediction
from regard.training.trainable import summed_cross_entropy

MOST_SHOWN, LONGEST_SHOWN = 12, 40
"""Labels that are named when training begins, and characters of each."""

LABELLED_EXAMPLES = 300
"""Of data without end: in so many, every label occurs."""


class ClassificationTable(TaskTable):
    """A text in, labels with their probabilities out."""

    name: Literal["classification"] = Field("classification", description="texts with their labels")

    parts = LABELLED
    files = '`data=["reviews.csv"]` (columns text and label), or .tsv or .jsonl'
    data_keys = frozenset({"window", "seed", "round_to"})


class Classification(Task[Examples]):
    """A text in, labels with their probabilities out."""

    Table = ClassificationTable
    options: ClassificationTable
    needs = Needs(decodes=False, outputs=("labels",))
    example = Pair

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Examples:
        """Texts with labels, from files, or a built-in corpus whose targets are few."""
        if recipe.given.corpus is not None:
            return _labelled_corpus(recipe.given)
        return open_files(recipe.given, splits, one_file(self.name, read_labelled), hold_out_labelled)

    def texts(self, data: Examples, sample: int) -> Iterator[str]:
        """The first training texts."""
        return (pair.source for pair in held_out(data, "train", sample))

    def labels(self, data: Examples) -> tuple[str, ...]:
        """Those of the training data, in order; of data without end, those of its beginning."""
        return labels_of(held_out(data, "train", data.size("train") or LABELLED_EXAMPLES))

    def check(self, model: Loaded, text: str) -> None:
        """No empty text, and of a built-in corpus, what it teaches."""
        super().check(model, text)
        if model.data is not None and model.data.corpus is not None:
            _texts_of(model.data).check(text)

    def describe(self, recipe: Recipe, data: Examples) -> list[str]:
        """Also how many texts have each label, where the data have an end."""
        if data.size("train") is None:
            return super().describe(recipe, data)
        counts = Counter(pair.target for pair in held_out(data, "train", None))
        shown = ", ".join(f"{label[:LONGEST_SHOWN]} ({count:,})" for label, count in counts.most_common(MOST_SHOWN))
        more = ", …" if len(counts) > MOST_SHOWN else ""
        return [*super().describe(recipe, data), f"{len(counts):,} labels: {shown}{more}"]

    def shown(self, example: Any) -> dict[str, str]:
        """The label is no text that is read."""
        return {"text": example.source, "label": example.target}

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """Texts that are longer than the window."""
        window = window_of(recipe.model, recipe.data)
        lengths = [len(ids) for ids in tokenizer.encode_batch([one.source for one in examples])]
        cut = sum(length + tokenizer.added() > window for length in lengths)
        return [f"{cut:,} texts are longer than the window of {window:,} tokens, and are cut there"] if cut else []

    def training_data(self, recipe: Recipe, data: Examples, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Texts of like length side by side."""
        plan, how = recipe.training, _labelling(recipe.data, module, tokenizer)
        require_positions(recipe, module.config, how.window)
        batching = _batching(how)
        batches = BatchStream(data, how, plan.batch_tokens, plan.seed, batching)
        next(batches.start(Position()))
        try:
            encoded = how.encode(held_out(data, "valid") if recipe.given.corpus else held_out(data, "valid", None))
        except InputError as error:
            held = recipe.given.valid or f"what is held out of {recipe.given.train}"
            raise InputError(f"{held}: {error.problem}", "train on examples of every label") from error
        valid = [batching.batch(rows, how) for rows in batching.cut(encoded, how, plan.batch_tokens)]
        trainable = LabelPrediction(module, label_smoothing=plan.label_smoothing)
        return TrainingData(trainable, batches, valid, amount(batches, data), how.window)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("accuracy", "macro_f1", "loss")

    @torch.no_grad()
    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """Every label with its probability, the likeliest first."""
        refuse_decoding(self.name, strategy, max_new_tokens)
        how = _labelling(model.data, model.module, model.tokenizer)
        answers: dict[int, Answer] = {}
        for places, _, logits in _read(model, how, [Example(ids, []) for ids in how.sources(texts)]):
            check_likely(logits)
            for place, shares in zip(places, logits.double().softmax(dim=-1).tolist(), strict=True):
                ranked = sorted(zip(how.labels, shares, strict=True), key=lambda entry: -entry[1])
                shown = "  ".join(f"{label} {share:.3f}" for label, share in ranked)
                labels = [{"label": label, "probability": share} for label, share in ranked]
                answers[place] = Answer(_by_label(ranked), shown, {"output": ranked[0][0], "labels": labels})
        return [answers[place] for place in range(len(texts))]

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Pair]:
        """Texts with labels of one file, read as the recipe's own are."""
        if len(paths) != 1:
            raise InputError(f"{len(paths)} files are given", "give one file of texts with labels")
        return read_labelled(paths[0], *reading_of(data))

    @torch.no_grad()
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """The share of texts whose likeliest label is theirs, the mean F1 of the labels, and the loss in nats."""
        how.refuse_windows(self.name)
        pairs: Sequence[Pair] = examples
        if not pairs:
            raise InputError("there are no texts to measure on", "give a file, or test data in the recipe")
        task = _labelling(model.data, model.module, model.tokenizer)
        said: list[str] = []
        wanted: list[str] = []
        total = 0.0
        for places, batch, logits in _read(model, task, task.encode(pairs)):
            total += float(summed_cross_entropy(logits[:, None], batch.targets))
            said += [task.labels[best] for best in logits.argmax(dim=-1).tolist()]
            wanted += [pairs[place].target for place in places]
            how.progress(len(said), len(pairs))
        return {"accuracy": accuracy(said, wanted), "macro_f1": macro_f1(said, wanted), "loss": total / len(pairs)}


def _labelled_corpus(table: DataTable) -> Corpus:
    """A built-in corpus, if its targets are so few that they are labels."""
    found = _texts_of(table)
    targets = {pair.target for pair in held_out(found, "train", LABELLED_EXAMPLES)}
    if len(targets) > LABELLED_EXAMPLES / 10:
        raise ConfigError(
            f"[data] the first {LABELLED_EXAMPLES:,} texts of the built-in corpus {table.corpus!r} have "
            f"{len(targets):,} different targets, which are no labels",
            "use corpus listops or tales, or name files: train = FILE, and valid = FILE or split = 0.9",
        )
    return found


def _texts_of(table: DataTable) -> Corpus:
    """The texts of a built-in corpus with what may be their labels."""
    found = examples_of(str(table.corpus), table.options, "labels")
    assert isinstance(found, Corpus)
    return found


def _read(
    model: Loaded, how: Labelling, examples: Sequence[Example]
) -> Iterator[tuple[list[int], Batch, Float[Tensor, "batch labels"]]]:
    """The logits of all texts: the places of those read side by side, which are of like length; their batch; theirs.

    What is watched stays in its order.
    """
    module = model.module
    if listeners.get():
        groups = [list(examples[first : first + TOGETHER]) for first in range(0, len(examples), TOGETHER)]
    else:
        rows = _batching(how).cut(examples, how, max(read_at_once(module.device), how.window))
        groups = [[example for row in batch for example in row] for batch in rows]
    place = {id(example): number for number, example in enumerate(examples)}
    for group in groups:
        batch = how.batch(group).to(module.device)
        yield [place[id(example)] for example in group], batch, module(batch.inputs)


def _batching(how: Labelling) -> ByLength:
    """Which texts are read side by side: of lengths that are rounded there are few, and each has its one batch size."""
    return ByLength() if how.round_to == 1 else FewShapes()


def _by_label(ranked: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Probabilities by label, that of the likeliest class first; what classes of one name have together is its."""
    found: dict[str, float] = {}
    for label, share in ranked:
        found[label] = found.get(label, 0.0) + share
    return found


def _labelling(data: DataTable | None, module: Network, tokenizer: Tokenizer) -> Labelling:
    round_to = 1 if data is None or data.round_to is None else data.round_to
    return Labelling(tokenizer, labels=module.config.labels, window=window_of(module.config, data), round_to=round_to)

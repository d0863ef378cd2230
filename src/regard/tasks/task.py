"""What a model can be for, as one object: its data, how it is taught, how it answers and how it is measured.

A task is made from its options, the member of [task]'s union that its file declares; `TASKS` has them by name and
`register_task` adds one. `regard.train` asks a task for its training data, `Model.run` for its answers, `regard
evaluate` for its figures; none of them knows which task it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from regard.data.batching import Batch
from regard.data.corpus import Examples, Split
from regard.data.stream import POOL, Batches, BatchStream
from regard.decoding.speculative import Draft
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError, InputError, VocabularyError
from regard.models.network import Head, Network, NetworkShape
from regard.tasks.data_table import DataTable
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.recipe import Recipe
from regard.tasks.task_table import TASK_TABLES, TaskTable
from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training.metric import Metric
from regard.training.trainable import Trainable

LONGEST_WORD = 4096
"""Characters a tokenizer is shown at once: learning merges takes the square of a word's length."""

METRIC_EXAMPLES = 200
"""Validation examples that a metric is measured on while training, where a recipe does not say."""

EVERY_SPLIT: tuple[Split, ...] = ("train", "valid", "test")


@runtime_checkable
class Loaded(Protocol):
    """What a task needs of the model that is asked: `regard.Model` has it."""

    @property
    def module(self) -> Network:
        """The network."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """How it reads."""
        ...

    @property
    def task(self) -> "Task[Any]":
        """What it is for."""
        ...

    @property
    def decoding(self) -> DecodingTable:
        """How it answers."""
        ...

    @property
    def data(self) -> DataTable | None:
        """What it was trained on, where that is known."""
        ...

    @property
    def draft(self) -> Draft | None:
        """Who guesses what it writes, where somebody does."""
        ...


@dataclass(frozen=True)
class Answer:
    """What a model says to one text: what `Model.run` returns, what people read, and what `--json` writes."""

    value: Any
    text: str
    record: dict[str, Any]


@dataclass(frozen=True, eq=False)
class InTraining:
    """A model while it is trained, as a task asks it: it is `Loaded`."""

    module: Network
    tokenizer: Tokenizer
    task: "Task[Any]"
    decoding: DecodingTable
    data: DataTable | None
    draft: Draft | None = None


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What the loop trains, on what, and what it measures itself on."""

    trainable: Trainable
    batches: Batches
    validation: list[Batch]
    summary: str
    """How much there is, for people to read."""
    longest: int | None
    """Tokens of the longest text that is read at once, if there is one: `trained_length` of the model."""


@dataclass(frozen=True)
class Measuring:
    """How a model is measured: in which windows, where the task reads in windows; and who is told how far it is."""

    window: int | None = None
    """Tokens read at once; the model's own if None."""
    stride: int | None = None
    """How far apart windows begin; as far as they are long if None."""
    progress: Callable[[int, int], None] = lambda done, total: None

    def refuse_windows(self, task: str) -> None:
        """Raise InputError if a window or a stride is asked for where they mean nothing."""
        for key in ("window", "stride"):
            if getattr(self, key) is not None:
                raise InputError(
                    f"a {key} has no effect on task {task!r}", "it is for language_modelling; leave it out"
                )


USUAL = Measuring()


@dataclass(frozen=True)
class Needs:
    """What a task asks of a network; None: either will do."""

    decodes: bool | None
    source: bool | None = None
    outputs: tuple[Head, ...] = ("tokens",)

    def lacking(self, shape: NetworkShape) -> str | None:
        """What a network of this shape cannot do, or does and should not."""
        if self.decodes is not None and shape.decodes != self.decodes:
            return "it writes no text" if self.decodes else "it reads a text from left to right, to write"
        if self.source is not None and shape.reads_source != self.source:
            return "it reads no source" if self.source else "it reads a source, and there is none"
        if shape.outputs not in self.outputs:
            return f"its head gives {shape.outputs!r}"
        return None

    def remedy(self, shape: NetworkShape) -> str:
        """What would do, where this shape does not: another architecture, of the network that has several."""
        begun = "use" if "architecture" in type(shape).model_fields else "use model=transformer with"
        heads = " or ".join(map(repr, self.outputs))
        if self.decodes is None:
            return f"use model.architecture=encoder or decoder and model.head={heads}"
        if not self.decodes:
            return f"{begun} model.architecture=encoder and model.head={heads}"
        fitting = {True: ("encoder_decoder",), False: ("decoder",), None: ("encoder_decoder", "decoder")}[self.source]
        return f"{begun} model.architecture={' or '.join(fitting)}"


D = TypeVar("D", bound=Examples)


class Task(ABC, Generic[D]):
    """One thing a model can be for. `D` is what its data are: examples by split and index."""

    Table: ClassVar[type[TaskTable]]
    """Its options: the member of [task]'s union that is its own."""
    needs: ClassVar["Needs"]
    """What a network must be able to do for it."""
    example: ClassVar[Any] = None
    """What it is measured on: a named tuple; None where it is not measured."""
    continues: ClassVar[bool] = False
    """Whether its answer goes on with the text: to look at the text it is read alone, unless more is asked for."""
    specials: ClassVar[tuple[str, ...]] = ()
    """Special tokens it needs besides those every tokenizer has."""

    def __init__(self, options: TaskTable | None = None) -> None:
        self.options: Any = self.Table.model_validate({}) if options is None else options

    @property
    def name(self) -> str:
        """What a recipe calls it."""
        return str(self.options.name)

    def check_shape(self, shape: NetworkShape) -> None:
        """Raise ConfigError, with what would do, unless a network of this shape can be for this."""
        lacking = self.needs.lacking(shape)
        if lacking is not None:
            raise ConfigError(
                f"[model] {shape.words} cannot do task {self.name!r}: {lacking}", self.needs.remedy(shape)
            )

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        """The figures `evaluate` gives of a model of these data: what `training.metric` may be besides the loss."""
        return ()

    def check_metric(self, recipe: Recipe) -> None:
        """Raise ConfigError, with what would do, unless the task has the figure that the best model is best by."""
        known = tuple(dict.fromkeys(("loss", *self.metrics(recipe.data))))
        if recipe.training.metric not in known:
            raise ConfigError(
                f"[training] metric {recipe.training.metric!r} is no metric of task {self.name!r} on these data",
                f"use {' or '.join(known)}",
            )

    def metric(self, recipe: Recipe, data: D, module: Network, tokenizer: Tokenizer) -> Metric:
        """What the best model is best by; on some validation examples, answered as the recipe's [decoding] says."""
        name = recipe.training.metric
        if name == "loss":
            return Metric()
        examples = held_out(data, "valid", recipe.training.metric_examples or METRIC_EXAMPLES)
        model = InTraining(module, tokenizer, self, recipe.decoding, recipe.data)
        return Metric(name, lambda: self.evaluate(model, examples)[name])

    @abstractmethod
    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> D:
        """The recipe's data; of files, only those of the splits asked for are read."""

    @abstractmethod
    def texts(self, data: D, sample: int) -> Iterator[str]:
        """What the tokenizer learns from: the texts of so many training examples."""

    def tokenizer(self, recipe: Recipe, data: D) -> Tokenizer:
        """The tokenizer this recipe's data teach, with the special tokens the task needs."""
        table, kind = recipe.tokenizer, KINDS[recipe.tokenizer.kind]
        new = [name for name in self.specials if not (name == Tokenizer.mask and kind.mask != name)]
        texts = (piece for text in self.texts(data, table.sample) for piece in _pieces(text))
        try:
            learnt = kind.train(texts, table.size - len(new))
        except VocabularyError as error:
            raise error.beside(len(new)) from None
        return learnt.with_specials(new) if new else learnt

    def adopt(self, tokenizer: Tokenizer, folder: str) -> Tokenizer:
        """The tokenizer of a folder that training begins in, as this task needs it; it gets no new entries."""
        lacking = [name for name in self.specials if name not in tokenizer.special_ids]
        if Tokenizer.mask in lacking and tokenizer.can_mask:
            lacking.remove(Tokenizer.mask)
        if lacking:
            raise ConfigError(
                f"[model] from: the tokenizer in {folder} has no {lacking[0]}, which task {self.name!r} needs",
                "begin with a model that was trained for it",
            )
        return tokenizer

    def labels(self, data: D) -> tuple[str, ...]:
        """The names of the classes; none where there are none."""
        return ()

    def describe(self, recipe: Recipe, data: D) -> list[str]:
        """What was found in the training file and what becomes of it, in sentences."""
        table, train, valid = recipe.given, data.size("train"), data.size("valid")
        if not table.divided or train is None or valid is None:
            return []
        return [f"{train + valid:,} examples: {train:,} to train on, {valid:,} held out (seed {table.seed or 0})"]

    def shown(self, example: Any) -> dict[str, str]:
        """The parts of an example as texts, for people to read and for tokens to be counted."""
        return {part: str(getattr(example, part)) for part in example._fields}

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """What of these examples is not read as it stands, and why, in sentences."""
        return []

    @abstractmethod
    def training_data(self, recipe: Recipe, data: D, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Everything the loop needs; what cannot be trained on is refused here."""

    def check(self, model: Loaded, text: str) -> None:
        """Refuse, in one sentence, what the model was never taught."""
        if not text.strip():
            raise InputError("the text is empty", "give some")

    @abstractmethod
    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """What the model says to each text."""

    @abstractmethod
    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> Sequence[Any]:
        """Examples of a user's files, to measure on, read as those of `data` are."""

    @abstractmethod
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """The task's figures on these examples."""

    def baselines(self, examples: Sequence[Any]) -> dict[str, dict[str, float]]:
        """The same figures of rules that learn nothing, by name; none unless a task has some."""
        return {}

    def reading(self, model: Loaded, how: Measuring = USUAL) -> dict[str, int]:
        """The numbers its figures go by, such as window and stride; none where nothing is cut."""
        how.refuse_windows(self.name)
        return {}


def held_out(data: Examples, split: Split, most: int | None = 1000) -> list[Any]:
    """The first examples of a held-out split, at most so many where it has no end or `most` says so."""
    size = data.size(split)
    count = size if most is None else most if size is None else min(most, size)
    return [data.example(split, index) for index in range(count or 0)]


def amount(batches: BatchStream, data: Examples) -> str:
    """How much there is to train and to validate on, in a sentence."""
    size, tokens, held = data.size("train"), batches.tokens_per_epoch(), data.size("valid")
    if size is None:
        return f"endless examples to train on, {held:,} to validate on"
    about = "about " if size > POOL else ""
    return f"{size:,} examples to train on, {about}{tokens:,} tokens an epoch; {held:,} to validate on"


def refuse_decoding(task: str, strategy: Strategy | None, max_new_tokens: int | None) -> None:
    """A model that writes no text has no use for a strategy or a limit."""
    if strategy is not None or max_new_tokens is not None:
        what = "a strategy" if strategy is not None else f"a limit of {max_new_tokens} new tokens"
        raise InputError(f"{what} has no effect on task {task!r}, which writes no text", "leave it out")


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces: a word may be a whole line."""
    return (text[start : start + LONGEST_WORD] for start in range(0, len(text), LONGEST_WORD))


TASKS: dict[str, type[Task[Any]]] = {}
"""What models can be for, by the name a recipe's [task] gives."""


def register_task(task: type[Task[Any]]) -> None:
    """Make a task known by the default of its table's `name`; what is in its table may then stand in a recipe."""
    name = task.Table.model_fields["name"].default
    if name in TASKS:
        raise ConfigError(f"task {name!r} is there already", "choose another name")
    TASKS[name], TASK_TABLES[name] = task, task.Table


def task_of(options: TaskTable) -> Task[Any]:
    """The task with these options."""
    return TASKS[options.name](options)

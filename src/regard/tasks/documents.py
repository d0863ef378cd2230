"""Tasks that learn from running text: which files they read, and windows of what is in them."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from regard.data.corpus import Split
from regard.data.sources import read_documents
from regard.data.splits import Document, Splits, divided_documents
from regard.data.stream import Position
from regard.data.windows import Reading, TokenStream, Windows, in_order
from regard.errors import ConfigError, InputError
from regard.models.config import TransformerShape
from regard.models.transformer import Transformer
from regard.tasks.recipe import DataTable, Recipe, Source
from regard.tasks.task import EVERY_SPLIT, Asked, Lesson, Task
from regard.tasks.translation import require_there
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction

WINDOW = 256
"""Tokens read at once where a recipe does not say."""


class OfDocuments(Task[Splits[Document]]):
    """A task whose examples are windows of documents."""

    @abstractmethod
    def reading(self, recipe: Recipe, tokenizer: Tokenizer) -> Reading:
        """What a window becomes."""

    def begins(self, recipe: Recipe) -> bool:
        """Whether every document of the stream begins with a mark; all end with one."""
        return False

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Splits[Document]:
        """The documents of a text file, of JSONL, or a file that is one document."""
        return open_documents(self.name, recipe.given, splits)

    def texts(self, data: Splits[Document], sample: int) -> Iterator[str]:
        """The first training documents."""
        return (document.text for document in data.train[:sample])

    def lesson(self, recipe: Recipe, data: Splits[Document], module: Transformer, tokenizer: Tokenizer) -> Lesson:
        """Windows in a random order to train on, all of the validation text to measure."""
        plan, reading = recipe.training, self.reading(recipe, tokenizer)
        _require_positions(module.config, reading.places)
        batches = Windows.filling(self._stream(recipe, tokenizer, data.train), reading, plan.batch_tokens, plan.seed)
        next(batches.start(Position()))
        valid = in_order(self._stream(recipe, tokenizer, data.valid), reading, plan.batch_tokens)
        return Lesson(TokenPrediction(module, label_smoothing=plan.label_smoothing), batches, valid)

    def read(self, paths: Sequence[Path], recipe: Recipe) -> list[Document]:
        """The documents of a file, read as the recipe's own are."""
        if len(paths) != 1:
            raise InputError(f"{len(paths)} files are given", "give one file of text")
        return [
            Document(text) for text in read_documents(paths[0], "auto" if recipe.data is None else recipe.data.format)
        ]

    def windows(self, model: Asked, examples: Sequence[Document]) -> tuple[TokenStream, Reading]:
        """The documents to measure on as a stream, and how it is read."""
        if not examples:
            raise InputError("there is no text to measure on", "give a file of text, or test data in the recipe")
        return self._stream(model.recipe, model.tokenizer, examples), self.reading(model.recipe, model.tokenizer)

    def _stream(self, recipe: Recipe, tokenizer: Tokenizer, documents: Sequence[Document]) -> TokenStream:
        return TokenStream.of([one.text for one in documents], tokenizer, begin=self.begins(recipe))


def window_of(recipe: Recipe) -> int:
    """How many tokens are read at once."""
    asked = None if recipe.data is None else recipe.data.window
    limit = recipe.model.longest if recipe.model.positions == "learnt" else WINDOW
    return asked or min(WINDOW, limit)


def _require_positions(shape: TransformerShape, places: int) -> None:
    if shape.positions == "learnt" and places > shape.longest:
        raise ConfigError(
            f"a window of {places} tokens reaches further than the {shape.longest} positions that are learnt",
            f"use data.window={shape.longest} or model.longest={places}",
        )


def open_documents(task: str, table: DataTable, splits: Collection[Split]) -> Splits[Document]:
    """The documents that a recipe's [data] names."""
    if table.corpus is not None:
        raise ConfigError(
            f"[data] the built-in corpus {table.corpus!r} has pairs and task {task!r} needs documents",
            "name files: train = FILE, and valid = FILE or split = 0.9",
        )
    given: dict[Split, Source | None] = {"train": table.train, "valid": table.valid, "test": table.test}
    if table.split is not None and "valid" in splits:
        splits = {*splits, "train"}
    read = {split: _documents(table, source) for split, source in given.items() if source and split in splits}
    train, valid = read.get("train", []), read.get("valid", [])
    if table.split is not None and train:
        first, last = divided_documents(train, table.split)
        return Splits(first, last, read.get("test", []))
    return Splits(train, valid, read.get("test", []))


def _documents(table: DataTable, source: Source) -> list[Document]:
    path = table.paths(source)
    if not isinstance(path, Path):
        raise ConfigError(f"[data] {path[0]} and {path[1]} are two files where documents are in one", "give one")
    require_there(path)
    return [Document(text) for text in read_documents(path, table.format)]

"""Tasks that learn from running text: which files they read, and windows of what is in them."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.corpus import Split
from regard.data.sources import read_documents
from regard.data.splits import Splits, TextDocument, hold_out_documents
from regard.data.spooled import Spooled, SpooledDocuments
from regard.data.stream import Position
from regard.data.windows import TokenStream, WindowObjective, Windows, in_order
from regard.errors import InputError
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.files import corpus_examples, one_file, open_files, reading_of, require_positions, window_of
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, Loaded, Task, TrainingData, held_out
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction

ENDLESS = 20_000
"""Documents that are taken of a corpus without end: a stream of tokens has one."""


class OfDocuments(Task[Splits[TextDocument]]):
    """A task whose examples are windows of documents."""

    @abstractmethod
    def objective(self, tokenizer: Tokenizer, window: int) -> WindowObjective:
        """What a window becomes."""

    @property
    def begins(self) -> bool:
        """Whether every document of the stream begins with a special token."""
        return False

    def ends(self, data: DataTable | None) -> bool:
        """Whether every document of the stream ends with a special token."""
        return True

    def file_format(self, data: DataTable | None, path: Path) -> str:
        """How a file to measure on is read: as the recipe's own are."""
        return "auto" if data is None else data.format

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Splits[TextDocument]:
        """The documents of a text file, of a table, of a built-in corpus, or a file that is one document."""
        own = corpus_examples(recipe.given, "documents")
        if own is None:
            return open_files(recipe.given, splits, one_file(self.name, _read), hold_out_documents)
        read = {split: held_out(own, split, ENDLESS if own.size(split) is None else None) for split in splits}
        return Splits(read.get("train", ()), read.get("valid", ()), read.get("test", ()))

    def texts(self, data: Splits[TextDocument], sample: int) -> Iterator[str]:
        """The first training documents."""
        return (document.text for document in data.train[:sample])

    def describe(self, recipe: Recipe, data: Splits[TextDocument]) -> list[str]:
        """How much of the file's end is held out."""
        train, valid = (sum(len(one.text) for one in part) for part in (data.train, data.valid))
        held = f"{train + valid:,} characters: {train:,} to train on, the last {valid:,} held out"
        return [held] if recipe.given.divided else []

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """Nothing: texts stand in a row, which windows are cut from."""
        window = window_of(recipe.model, recipe.data)
        return [f"texts stand in a row and are read in windows of {window:,} tokens; none is left out"]

    def training_data(
        self, recipe: Recipe, data: Splits[TextDocument], module: Network, tokenizer: Tokenizer
    ) -> TrainingData:
        """Windows in a random order to train on, all of the validation text to measure."""
        window = window_of(module.config, recipe.data)
        plan, objective = recipe.training, self.objective(tokenizer, window)
        require_positions(recipe, module.config, objective.places)
        train, held = (self._stream(recipe.data, tokenizer, one) for one in (data.train, data.valid))
        batches = Windows.filling(train, objective, plan.batch_tokens, plan.seed)
        next(batches.start(Position()))
        valid = in_order(held, objective, plan.batch_tokens)
        summary = f"{len(train):,} tokens an epoch in {batches.epoch:,} windows; {len(held):,} tokens to validate on"
        trainable = TokenPrediction(module, label_smoothing=plan.label_smoothing)
        return TrainingData(trainable, batches, valid, summary, window)

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> Sequence[TextDocument]:
        """The documents of a file, read as the recipe's own are."""
        if len(paths) != 1:
            raise InputError(f"{len(paths)} files are given", "give one file of text")
        return _read(paths[0], self.file_format(data, paths[0]), reading_of(data)[1])

    def windows(self, model: Loaded, examples: Sequence[TextDocument]) -> tuple[TokenStream, WindowObjective]:
        """The documents to measure on as a stream, and how it is read."""
        if not examples:
            raise InputError("there is no text to measure on", "give a file of text, or test data in the recipe")
        window = window_of(model.module.config, model.data)
        return self._stream(model.data, model.tokenizer, examples), self.objective(model.tokenizer, window)

    def _stream(self, data: DataTable | None, tokenizer: Tokenizer, documents: Sequence[TextDocument]) -> TokenStream:
        texts = documents.texts if isinstance(documents, SpooledDocuments) else [one.text for one in documents]
        return TokenStream.of(texts, tokenizer, begin=self.begins, end=self.ends(data))


def _read(path: Path, format: str, columns: Mapping[str, str]) -> Sequence[TextDocument]:
    found = read_documents(path, format, columns)
    return SpooledDocuments(found) if isinstance(found, Spooled) else [TextDocument(text) for text in found]

"""Summarisation: a text in, what it says in few words out; measured by ROUGE, beside what costs nothing.

Of a text that is longer than `data.window`, its beginning is read.
"""

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from regard.data.batching import Inputs
from regard.data.corpus import Corpus, Pair, Split
from regard.errors import InputError, LengthWarning
from regard.metrics.rouge import KINDS, lead, rouge
from regard.models.network import Network, NetworkShape
from regard.tasks.data_table import DataTable
from regard.tasks.files import corpus_examples, require_positions, window_of
from regard.tasks.pairs import open_pairs, read_pair_files
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, USUAL, Loaded, Measuring, TrainingData
from regard.tasks.text_to_text import TextToText, TextToTextTable
from regard.text.tokenizer import Tokenizer

SUMMED_UP = ("text", "summary")


class SummarisationTable(TextToTextTable):
    """A text in, its summary out."""

    name: Literal["summarisation"] = Field("summarisation", description="texts with their summaries")

    parts = SUMMED_UP
    files = '`data=["articles.csv"]` (columns text and summary), or .tsv or .jsonl, or a file of each'
    data_keys = frozenset({"window", "seed"})


class Summarisation(TextToText):
    """A text in, its summary out."""

    Table = SummarisationTable
    options: SummarisationTable

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Corpus:
        """Texts with summaries, from files, or a built-in corpus that has them."""
        own = corpus_examples(recipe.given, "summaries")
        return own if isinstance(own, Corpus) else open_pairs(recipe.given, splits, SUMMED_UP)

    def longest_source(self, shape: NetworkShape, data: DataTable | None) -> int | None:
        """The window without the special token after it; all of a text where a loaded model knows no limit."""
        if data is None and shape.position_limit is None:
            return None
        return window_of(shape, data) - 1

    def training_data(self, recipe: Recipe, data: Corpus, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Texts, cut to the window, and their summaries."""
        require_positions(recipe, module.config, window_of(module.config, recipe.data))
        return super().training_data(recipe, data, module, tokenizer)

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The texts, cut to the window, and where the decoder begins."""
        limit = self.longest_source(model.module.config, model.data)
        longest = max(len(model.tokenizer.encode(text)) for text in texts)
        if limit is not None and longest > limit:
            warnings.warn(
                f"a text of {longest:,} tokens is longer than the {limit:,} this model reads: "
                "its beginning is summed up",
                LengthWarning,
                stacklevel=2,
            )
        return super().prompt(model, texts)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return KINDS

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Pair]:
        """Texts with summaries of one file or of two."""
        return read_pair_files(paths, data, SUMMED_UP)

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """ROUGE-1, ROUGE-2 and ROUGE-L, each the mean F1."""
        how.refuse_windows(self.name)
        if not examples:
            raise InputError("there are no texts to measure on", "give a file, or test data in the recipe")
        pairs: Sequence[Pair] = examples
        outputs = self.answered(model, [pair.source for pair in pairs], how.progress)
        return rouge(outputs, [pair.target for pair in pairs])

    def baselines(self, examples: Sequence[Any]) -> dict[str, dict[str, float]]:
        """The first sentence of each text in place of its summary, and the whole text."""
        wanted = [pair.target for pair in examples]
        return {
            "first_sentence": rouge([lead(pair.source) for pair in examples], wanted),
            "whole_text": rouge([pair.source for pair in examples], wanted),
        }

"""Translation in the wide sense: a text in, a text out. Also what `copy`, `reverse`, `sort` and `dates` are."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from regard.data.corpus import Corpus, Pair, Split
from regard.data.sources import PAIR
from regard.errors import InputError
from regard.metrics.text import BleuTokenizer, bleu, chrf, exact_match
from regard.tasks.data_table import DataTable
from regard.tasks.pairs import open_corpus, read_pair_files
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, USUAL, Loaded, Measuring
from regard.tasks.text_to_text import TextToText, TextToTextTable
from regard.text.tokenizer import Tokenizer


class TranslationTable(TextToTextTable):
    """A text in, a text out."""

    name: Literal["translation"] = Field("translation", description="texts with their translations")
    bleu: BleuTokenizer = Field("13a", description="BLEU's tokenizer; none for texts that are tokenised already")

    parts = PAIR
    files = '`data=["english.txt", "french.txt"]`, or one file: pairs.tsv, pairs.csv or pairs.jsonl'
    data_keys = frozenset({"batches", "seed"})

    def idle(self, corpus: str | None) -> dict[str, str]:
        exact = corpus is not None and self.bleu != "13a"
        return {"bleu": "leave it out: a built-in corpus is measured by exact matches"} if exact else {}


class Translation(TextToText):
    """A text in, a text out."""

    Table = TranslationTable
    options: TranslationTable

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Corpus:
        """A built-in corpus, or pairs from files."""
        return open_corpus(recipe.given, splits)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        """Of a built-in corpus, whose questions have one answer each, exact matches alone."""
        return ("exact_match",) if data is not None and data.corpus else ("exact_match", "bleu", "chrf")

    def check(self, model: Loaded, text: str) -> None:
        """No empty text, and of a built-in corpus, what it teaches."""
        super().check(model, text)
        if model.data is not None and model.data.corpus is not None:
            open_corpus(model.data).check(text)

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Pair]:
        """Pairs of one file or of two."""
        return read_pair_files(paths, data)

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Where every question has one answer, the share of right ones; else BLEU and chrF too.

        Of a corpus that asks for several things, also the share for each.
        """
        how.refuse_windows(self.name)
        pairs: Sequence[Pair] = examples
        if not pairs:
            raise InputError("there are no pairs to measure on", "give a file of pairs, or test data in the recipe")
        outputs = self.answered(model, [pair.source for pair in pairs], how.progress)
        references = [pair.target for pair in pairs]
        found = {"exact_match": exact_match(outputs, references)}
        if "bleu" in self.metrics(model.data):
            return found | {"bleu": bleu(outputs, references, self.options.bleu), "chrf": chrf(outputs, references)}
        return found | _by_part(model, pairs, outputs)


def _by_part(model: Loaded, pairs: Sequence[Pair], outputs: Sequence[str]) -> dict[str, float]:
    """Exact matches of each thing that a corpus asks for, where it tells several apart."""
    if model.data is None or model.data.corpus is None:
        return {}
    corpus = open_corpus(model.data)
    parts: dict[str, list[bool]] = {}
    for pair, output in zip(pairs, outputs, strict=True):
        if (part := corpus.part(pair.source)) is not None:
            parts.setdefault(part, []).append(output == pair.target)
    return {f"exact_match_{part}": sum(right) / len(right) for part, right in sorted(parts.items())}


def train_tokenizer(corpus: Corpus, size: int, sample: int, kind: str = "bpe") -> Tokenizer:
    """A tokenizer learnt from both sides of the first training examples."""
    table = {"size": size, "sample": sample, "kind": kind}
    return Translation().tokenizer(Recipe.model_validate({"tokenizer": table}), corpus)

"""Translation in the wide sense: a text in, a text out. Also what `copy`, `reverse`, `sort` and `dates` are."""

import os.path
from collections.abc import Collection, Iterator
from pathlib import Path

from regard.data.corpus import Corpus, Pair, Split, corpus
from regard.data.objectives import Continuation, Objective, SourceToTarget
from regard.data.packing import Packed
from regard.data.sources import PairList, read_pairs
from regard.data.stream import Batching, BatchStream, ByLength
from regard.errors import ConfigError, FileError
from regard.models.config import TransformerShape
from regard.tasks.recipe import DataTable, Recipe, Source
from regard.text.opening import KINDS
from regard.text.tokenizer import Tokenizer

LONGEST_WORD = 4096
"""Characters a tokenizer is shown at once."""


def objective(shape: TransformerShape, tokenizer: Tokenizer) -> Objective:
    """How this architecture turns a source into a target."""
    if shape.architecture == "encoder":
        raise ConfigError(
            "architecture 'encoder' gives one output per input token and cannot translate",
            "use 'encoder-decoder' or 'decoder'",
        )
    return SourceToTarget(tokenizer) if shape.architecture == "encoder-decoder" else Continuation(tokenizer)


def open_corpus(table: DataTable, splits: Collection[Split] = ("train", "valid", "test")) -> Corpus:
    """The corpus a recipe's [data] describes; of files, only those of the splits asked for are read."""
    if table.corpus is not None:
        return corpus(table.corpus, table.options)
    if table.format == "text":
        raise ConfigError(
            "[data] format 'text' has documents and task 'translation' needs pairs",
            "use parallel, tsv or jsonl, or auto",
        )
    given: dict[Split, Source | None] = {"train": table.train, "valid": table.valid, "test": table.test}
    read = {split: _pairs(table, source) for split, source in given.items() if source and split in splits}
    return PairList(read.get("train", []), read.get("valid", []), read.get("test", []))


def _pairs(table: DataTable, source: Source) -> list[Pair]:
    paths = table.paths(source)
    for path in [paths] if isinstance(paths, Path) else paths:
        if not os.path.lexists(path):
            raise FileError(
                f"{path} does not exist", "check the path, or name the folder of the data with --set data.folder=FOLDER"
            )
    return read_pairs(paths, table.format)


def batch_stream(recipe: Recipe, corpus: Corpus, how: Objective) -> BatchStream:
    """The batches a recipe trains on."""
    batching: Batching = Packed() if recipe.data.batches == "packed" else ByLength()
    return BatchStream(corpus, how, recipe.training.batch_tokens, recipe.training.seed, batching)


def held_out(corpus: Corpus, split: Split, most: int = 1000) -> list[Pair]:
    """The first examples of a held-out split, at most so many."""
    size = corpus.size(split)
    return [corpus.example(split, index) for index in range(most if size is None else min(most, size))]


def train_tokenizer(corpus: Corpus, size: int, sample: int, kind: str = "bpe") -> Tokenizer:
    """A tokenizer learnt from both sides of the first training examples."""
    known = corpus.size("train")
    count = sample if known is None else min(sample, known)
    pairs = (corpus.example("train", index) for index in range(count))
    return KINDS[kind].train((piece for pair in pairs for text in pair for piece in _pieces(text)), size)


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces: learning merges takes the square of a word's length, and a word may be a whole line."""
    return (text[start : start + LONGEST_WORD] for start in range(0, len(text), LONGEST_WORD))

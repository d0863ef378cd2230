"""Translation in the wide sense: a text in, a text out. Also what `copy`, `reverse`, `sort` and `dates` are."""

from pathlib import Path

from regard.data.corpus import Corpus, Pair, Split, corpus
from regard.data.objectives import Continuation, Objective, SourceToTarget
from regard.data.sources import PairList, read_pairs
from regard.errors import ConfigError
from regard.models.config import TransformerShape
from regard.tasks.recipe import DataTable, Source
from regard.text.tokenizer import Tokenizer


def objective(shape: TransformerShape, tokenizer: Tokenizer) -> Objective:
    """How this architecture turns a source into a target."""
    if shape.architecture == "encoder":
        raise ConfigError(
            "architecture 'encoder' gives one output per input token and cannot translate",
            "use 'encoder-decoder' or 'decoder'",
        )
    return SourceToTarget(tokenizer) if shape.architecture == "encoder-decoder" else Continuation(tokenizer)


def open_corpus(table: DataTable) -> Corpus:
    """The corpus a recipe's [data] describes."""
    if table.corpus is not None:
        return corpus(table.corpus, table.options)
    assert table.train is not None
    assert table.valid is not None
    test = [] if table.test is None else _pairs(table.test, table.format)
    return PairList(_pairs(table.train, table.format), _pairs(table.valid, table.format), test)


def _pairs(source: Source, format: str) -> list[Pair]:
    return read_pairs(Path(source) if isinstance(source, str) else (Path(source[0]), Path(source[1])), format)


def held_out(corpus: Corpus, split: Split, most: int = 1000) -> list[Pair]:
    """The first examples of a held-out split, at most so many."""
    size = corpus.size(split)
    return [corpus.example(split, index) for index in range(most if size is None else min(most, size))]


def train_tokenizer(corpus: Corpus, size: int, sample: int) -> Tokenizer:
    """A tokenizer learnt from both sides of the first training examples."""
    known = corpus.size("train")
    count = sample if known is None else min(sample, known)
    pairs = (corpus.example("train", index) for index in range(count))
    return Tokenizer.train((text for pair in pairs for text in pair), size)

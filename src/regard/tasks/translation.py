"""Translation in the wide sense: a text in, a text out. Also what `copy`, `reverse`, `sort` and `dates` are."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from regard.data.batching import Inputs
from regard.data.corpus import Corpus, Pair, Split
from regard.data.objectives import Continuation, Objective, SourceToTarget
from regard.data.packing import Packed
from regard.data.sentinels import gaps
from regard.data.sources import PAIR
from regard.data.stream import Batching, BatchStream, ByLength, Position, by_length
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError, InputError
from regard.metrics.text import BleuTokenizer, bleu, chrf, exact_match
from regard.models.network import Network, NetworkShape
from regard.tasks.data_table import DataTable
from regard.tasks.generation import Generation, filled_answer, refuse_stream
from regard.tasks.pairs import open_corpus, read_pair_files
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, USUAL, Answer, Loaded, Measuring, Needs, TrainingData, amount, held_out
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction


class TranslationTable(TaskTable):
    """A text in, a text out."""

    name: Literal["translation"] = Field("translation", description="texts with their translations")
    bleu: BleuTokenizer = Field("13a", description="BLEU's tokenizer; none for texts that are tokenised already")
    prefix: str = Field("", description="put before every source, as T5 is told what to do")

    parts = PAIR
    files = '`data=["english.txt", "french.txt"]`, or one file: pairs.tsv, pairs.csv or pairs.jsonl'
    data_keys = frozenset({"batches", "seed"})
    writes = True

    def idle(self, corpus: str | None) -> dict[str, str]:
        exact = corpus is not None and self.bleu != "13a"
        return {"bleu": "leave it out: a built-in corpus is measured by exact matches"} if exact else {}


class Translation(Generation[Corpus]):
    """A text in, a text out."""

    Table = TranslationTable
    options: TranslationTable
    needs = Needs(decodes=True)
    example = Pair

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Corpus:
        """A built-in corpus, or pairs from files."""
        return open_corpus(recipe.given, splits)

    def texts(self, data: Corpus, sample: int) -> Iterator[str]:
        """Both sides of the first training examples."""
        return (text for pair in held_out(data, "train", sample) for text in pair)

    def training_data(self, recipe: Recipe, data: Corpus, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Targets from sources, in batches by length or packed."""
        plan, how = recipe.training, objective(module.config, tokenizer, self.options.prefix)
        batches = batch_stream(recipe, data, how)
        next(batches.start(Position()))
        refuse_beyond_positions(module.config, batches)
        valid = by_length(how.encode(held_out(data, "valid")), how, plan.batch_tokens)
        trainable = TokenPrediction(module, label_smoothing=plan.label_smoothing)
        held = [how.batch(batch) for batch in valid]
        return TrainingData(trainable, batches, held, amount(batches, data), batches.longest())

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        """Of a built-in corpus, whose questions have one answer each, exact matches alone."""
        return ("exact_match",) if data is not None and data.corpus else ("exact_match", "bleu", "chrf")

    def check(self, model: Loaded, text: str) -> None:
        """No empty text, and of a built-in corpus, what it teaches."""
        super().check(model, text)
        if model.data is not None and model.data.corpus is not None:
            open_corpus(model.data).check(text)

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The sources, and where the decoder begins."""
        return objective(model.module.config, model.tokenizer, self.options.prefix).prompt(texts)

    def answer(self, model: Loaded, text: str, found: Hypothesis) -> Answer:
        """What the model wrote; where the text has gaps that the model knows, as T5 does, the text with them filled."""
        if gaps(text, model.tokenizer):
            return filled_answer(model, text, self.written(model, found), found.score)
        return super().answer(model, text, found)

    def stream(self, model: Loaded, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Pieces of the answer as they are chosen; not of a text with gaps."""
        if gaps(text, model.tokenizer):
            refuse_stream()
        return super().stream(model, text, strategy, max_new_tokens)

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Pair]:
        """Pairs of one file or of two."""
        return read_pair_files(paths, data)

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Where every question has one answer, the share of right ones; else BLEU and chrF too."""
        how.refuse_windows(self.name)
        pairs: Sequence[Pair] = examples
        if not pairs:
            raise InputError("there are no pairs to measure on", "give a file of pairs, or test data in the recipe")
        outputs = self.answered(model, [pair.source for pair in pairs], how.progress)
        references = [pair.target for pair in pairs]
        found = {"exact_match": exact_match(outputs, references)}
        if "bleu" in self.metrics(model.data):
            found |= {"bleu": bleu(outputs, references, self.options.bleu), "chrf": chrf(outputs, references)}
        return found


def objective(shape: NetworkShape, tokenizer: Tokenizer, prefix: str = "") -> Objective:
    """How such a network turns a source into a target."""
    return (SourceToTarget if shape.reads_source else Continuation)(tokenizer, prefix)


def batch_stream(recipe: Recipe, corpus: Corpus, how: Objective) -> BatchStream:
    """The batches a recipe trains on."""
    batching: Batching = Packed() if recipe.given.batches == "packed" else ByLength()
    return BatchStream(corpus, how, recipe.training.batch_tokens, recipe.training.seed, batching)


def refuse_beyond_positions(shape: NetworkShape, batches: BatchStream) -> None:
    """Raise ConfigError for an example that reaches beyond what the network has positions for."""
    limit = shape.position_limit
    reach = None if limit is None else batches.reach()
    if limit is not None and reach is not None and reach > limit:
        raise ConfigError(
            f"the longest example has {reach} tokens and this network takes {limit}",
            f"raise its limit (of learned positions, model.max_positions={reach}) or leave such long examples out",
        )


def train_tokenizer(corpus: Corpus, size: int, sample: int, kind: str = "bpe") -> Tokenizer:
    """A tokenizer learnt from both sides of the first training examples."""
    table = {"size": size, "sample": sample, "kind": kind}
    return Translation().tokenizer(Recipe.model_validate({"tokenizer": table}), corpus)

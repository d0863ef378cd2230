"""Tasks of pairs: a text in, a text of its own out. What translation and summarisation have in common."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from regard.data.batching import Inputs
from regard.data.corpus import Corpus, Pair
from regard.data.objectives import Continuation, Objective, SourceToTarget
from regard.data.packing import Packed
from regard.data.sentinels import gaps
from regard.data.stream import Batching, BatchStream, ByLength, Position, by_length
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError
from regard.models.network import Network, NetworkShape
from regard.tasks.data_table import DataTable
from regard.tasks.generation import Generation, filled_answer, refuse_stream
from regard.tasks.recipe import Recipe
from regard.tasks.task import Answer, Loaded, Needs, TrainingData, amount, held_out
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction


class TextToTextTable(TaskTable):
    """A text in, a text out."""

    prefix: str = Field("", description="put before every source, as T5 is told what to do")

    writes = True


class TextToText(Generation[Corpus]):
    """A text in, a text out."""

    options: TextToTextTable
    needs = Needs(decodes=True)
    example = Pair

    def texts(self, data: Corpus, sample: int) -> Iterator[str]:
        """Both sides of the first training examples."""
        return (text for pair in held_out(data, "train", sample) for text in pair)

    def longest_source(self, shape: NetworkShape, data: DataTable | None) -> int | None:
        """Tokens of a source that are read; None: all, however many."""
        return None

    def objective(self, shape: NetworkShape, tokenizer: Tokenizer, data: DataTable | None) -> Objective:
        """How a network of this shape reads these data."""
        return objective(shape, tokenizer, self.options.prefix, self.longest_source(shape, data))

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """Sources that are longer than what is read, and pairs that no batch holds."""
        longest, said = self.longest_source(recipe.model, recipe.data), []
        sources, targets = (
            [len(ids) for ids in tokenizer.encode_batch([one[side] for one in examples])] for side in (0, 1)
        )
        if longest is not None and (cut := sum(length > longest for length in sources)):
            said.append(f"{cut:,} sources are longer than {longest:,} tokens, and are cut there")
        room = recipe.training.batch_tokens
        if over := sum(max(pair) >= room for pair in zip(sources, targets, strict=True)):
            said.append(f"{over:,} are too long for a batch of {room:,} tokens: training refuses them")
        return said

    def training_data(self, recipe: Recipe, data: Corpus, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Targets from sources, in batches by length or packed."""
        plan, how = recipe.training, self.objective(module.config, tokenizer, recipe.data)
        batches = batch_stream(recipe, data, how)
        next(batches.start(Position()))
        refuse_beyond_positions(module.config, batches)
        valid = by_length(how.encode(held_out(data, "valid")), how, plan.batch_tokens)
        trainable = TokenPrediction(module, label_smoothing=plan.label_smoothing)
        held = [how.batch(batch) for batch in valid]
        return TrainingData(trainable, batches, held, amount(batches, data), batches.longest())

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The sources, and where the decoder begins."""
        return self.objective(model.module.config, model.tokenizer, model.data).prompt(texts)

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


def objective(
    shape: NetworkShape, tokenizer: Tokenizer, prefix: str = "", longest_source: int | None = None
) -> Objective:
    """How such a network turns a source into a target."""
    return (SourceToTarget if shape.reads_source else Continuation)(tokenizer, prefix, longest_source)


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

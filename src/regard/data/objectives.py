"""From pairs of texts to batches: what the model reads and what it must predict.

SourceToTarget   encoder reads `source <eos>`, decoder reads `<bos> target`, predicts `target <eos>`
Continuation     decoder reads `source <bos> target`, predicts `target <eos>` after `<bos>`
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.sentinels import with_gaps
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Example:
    """A pair as ids."""

    source: list[int]
    target: list[int]


@dataclass(frozen=True)
class Objective(ABC):
    """Turns texts into ids, ids into batches, and a source into the prompt its target continues.

    Law: the model's next-token predictions after `prompt` are the ones `batch` trained.
    """

    tokenizer: Tokenizer
    prefix: str = ""
    """What stands before every source, such as T5's `translate English to German: `."""
    longest_source: int | None = None
    """Tokens of a source that are read, the prefix's too; the rest is cut off. None: all are read."""

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """All pairs as ids, the two sides each in one call."""
        sources = self.sources([pair.source for pair in pairs])
        targets = with_gaps([pair.target for pair in pairs], self.tokenizer)
        return [Example(source, target) for source, target in zip(sources, targets, strict=True)]

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of sources, the prefix before each."""
        rows = with_gaps([self.prefix + text for text in texts], self.tokenizer)
        return [row[: self.longest_source] for row in rows]

    @abstractmethod
    def cost(self, example: Example) -> int:
        """How many columns the example fills, with its special tokens; what batches are measured in."""

    @abstractmethod
    def batch(self, examples: Sequence[Example]) -> Batch:
        """Examples side by side."""

    @abstractmethod
    def prompt(self, sources: Sequence[str]) -> Inputs:
        """What the model reads before it generates."""


class SourceToTarget(Objective):
    """For an encoder–decoder."""

    def cost(self, example: Example) -> int:
        """The longer side: the rectangle of a batch is as wide as that."""
        return max(len(example.source), len(example.target)) + 1

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Source, shifted target, target."""
        token = self.tokenizer
        source = Padded.of([[*example.source, token.eos_id] for example in examples], fill=token.pad_id)
        tokens = Padded.of([[token.bos_id, *example.target] for example in examples], fill=token.pad_id)
        targets = Padded.of([[*example.target, token.eos_id] for example in examples], fill=IGNORED)
        return Batch(Inputs(tokens, source), targets.ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """The source for the encoder, `<bos>` for the decoder."""
        token = self.tokenizer
        encoded = [[*ids, token.eos_id] for ids in self.sources(sources)]
        return Inputs(Padded.of([[token.bos_id]] * len(encoded)), Padded.of(encoded, fill=token.pad_id))


class Continuation(Objective):
    """For a decoder alone: the source is the beginning of the text and is not itself predicted."""

    def cost(self, example: Example) -> int:
        """Both sides in one row."""
        return len(example.source) + len(example.target) + 1

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Source and target in one row; only the target's tokens count."""
        token = self.tokenizer
        rows = [[*example.source, token.bos_id, *example.target] for example in examples]
        targets = [[IGNORED] * len(example.source) + [*example.target, token.eos_id] for example in examples]
        return Batch(Inputs(Padded.of(rows, fill=token.pad_id)), Padded.of(targets, fill=IGNORED).ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """`source <bos>`, padded on the left so that all rows go on at the same column."""
        token = self.tokenizer
        rows = [[*ids, token.bos_id] for ids in self.sources(sources)]
        return Inputs(Padded.of(rows, fill=token.pad_id, side="left"))

"""Span corruption: an encoder–decoder that writes what is missing from a text (T5's pre-training)."""

from collections.abc import Iterator, Sequence
from typing import Any

from regard.data.batching import Inputs, Padded
from regard.data.corruption import SpanCorruption
from regard.data.sentinels import GAP, SENTINELS
from regard.data.splits import Document, Splits
from regard.data.windows import in_order
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.errors import InputError
from regard.tasks.documents import OfDocuments
from regard.tasks.files import window_of
from regard.tasks.gaps import filled, refuse_stream
from regard.tasks.language import MEASURED, measured
from regard.tasks.recipe import Recipe
from regard.tasks.task import Answer, Asked
from regard.tasks.writing import Writing
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction


class Denoising(OfDocuments, Writing[Splits[Document]]):
    """A text with gaps in, the text with the gaps filled out."""

    name = "denoising"
    architectures = ("encoder-decoder",)
    example = Document
    specials = SENTINELS

    def reading(self, recipe: Recipe, tokenizer: Tokenizer) -> SpanCorruption:
        """Spans of every window are cut out."""
        return SpanCorruption(tokenizer, window_of(recipe))

    def ends(self) -> bool:
        """Nothing stands between documents: a mark cut into a target would teach to stop before its end."""
        return False

    def check(self, recipe: Recipe, text: str) -> None:
        """There must be a gap, and none twice."""
        super().check(recipe, text)
        gaps = GAP.findall(text)
        if not gaps:
            raise InputError(
                "the text has no gap to fill", f"write {SENTINELS[0]}, {SENTINELS[1]} … where words are missing"
            )
        if len(set(gaps)) < len(gaps):
            raise InputError(f"{max(gaps, key=gaps.count)} comes twice", "give every gap a number of its own")

    def prompt(self, model: Asked, texts: Sequence[str]) -> Inputs:
        """The texts with their gaps, and where the decoder begins."""
        token = model.tokenizer
        rows = [[*token.encode_marked(text, SENTINELS), token.eos_id] for text in texts]
        return Inputs(Padded.of([[token.bos_id]] * len(rows)), Padded.of(rows, fill=token.pad_id))

    def answer(self, model: Asked, text: str, found: Hypothesis) -> Answer:
        """The text with what the model wrote in its gaps."""
        return filled(text, self.written(model, found), found.score, model.tokenizer)

    def stream(self, model: Asked, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Refused: gaps are filled when all of them are written."""
        refuse_stream()

    def evaluate(self, model: Asked, examples: Sequence[Any]) -> dict[str, float]:
        """Loss per token of what was cut out, in nats."""
        stream, reading = self.windows(model, examples)
        total, count = measured(TokenPrediction(model.module), in_order(stream, reading, MEASURED))
        return {"loss": total / max(count, 1)}

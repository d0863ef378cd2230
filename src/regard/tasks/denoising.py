"""Span corruption: an encoder–decoder that writes what is missing from a text (T5's pre-training)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from regard.data.batching import Inputs, Padded
from regard.data.corruption import SENTINELS, SpanCorruption
from regard.data.splits import Document, Splits
from regard.data.windows import in_order
from regard.decoding.strategies import Strategy
from regard.errors import InputError
from regard.tasks.documents import OfDocuments
from regard.tasks.files import window_of
from regard.tasks.language import MEASURED, measured
from regard.tasks.recipe import Recipe
from regard.tasks.task import Answer, Asked
from regard.tasks.writing import Writing
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction

GAP = re.compile("|".join(map(re.escape, SENTINELS)))


class Denoising(OfDocuments, Writing[Splits[Document]]):
    """A text with gaps in, the text with the gaps filled out."""

    name = "denoising"
    architectures = ("encoder-decoder",)
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

    def answers(
        self, model: Asked, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """The texts with what the model wrote in their gaps."""
        found = self.hypotheses(model, texts, strategy, max_new_tokens)
        answers = []
        for text, one in zip(texts, found, strict=True):
            spans = {gap: span for gap, span in spans_of(one.ids, model.tokenizer).items() if gap in GAP.findall(text)}
            output = GAP.sub(lambda gap, spans=spans: spans.get(gap.group(), "").strip(), text)  # type: ignore[misc]
            answers.append(Answer(output, output, {"output": output, "spans": spans, "score": one.score}))
        return answers

    def stream(self, model: Asked, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Gaps are filled when all of them are written."""
        raise InputError("a text with gaps is filled at the end and cannot stream", "leave --stream out")

    def evaluate(self, model: Asked, examples: Sequence[Any]) -> dict[str, float]:
        """Loss per token of what was cut out, in nats."""
        stream, reading = self.windows(model, examples)
        total, count = measured(TokenPrediction(model.module), in_order(stream, reading, MEASURED))
        return {"loss": total / max(count, 1)}


def spans_of(ids: Sequence[int], tokenizer: Tokenizer) -> dict[str, str]:
    """What stands after each sentinel, up to the next; ids before the first are nobody's."""
    names = {tokenizer.special_ids[name]: name for name in SENTINELS if name in tokenizer.special_ids}
    spans: dict[str, list[int]] = {}
    now: list[int] = []
    for token in ids:
        if token in names:
            now = spans.setdefault(names[token], [])
        else:
            now.append(token)
    return {name: tokenizer.decode(span) for name, span in spans.items()}

"""Span corruption: an encoder–decoder that writes what is missing from a text (T5's pre-training)."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from regard.data.batching import Inputs, Padded
from regard.data.corruption import SpanCorruption
from regard.data.sentinels import GAP, SENTINELS
from regard.data.splits import Splits, TextDocument
from regard.data.windows import in_order
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.errors import InputError
from regard.tasks.data_table import DataTable
from regard.tasks.document_task import OfDocuments
from regard.tasks.generation import Generation, filled_answer, refuse_stream
from regard.tasks.language_modelling import MEASURED, measured
from regard.tasks.task import USUAL, Answer, Loaded, Measuring, Needs
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction


class DenoisingTable(TaskTable):
    """A text with gaps in, the text with the gaps filled out."""

    name: Literal["denoising"] = Field("denoising", description="spans that were cut out of running text")

    parts = ("text",)
    files = '`data=["book.txt"]`'
    data_keys = frozenset({"window"})
    writes = True


class Denoising(OfDocuments, Generation[Splits[TextDocument]]):
    """A text with gaps in, the text with the gaps filled out."""

    Table = DenoisingTable
    options: DenoisingTable
    needs = Needs(decodes=True, source=True)
    example = TextDocument
    specials = SENTINELS

    def objective(self, tokenizer: Tokenizer, window: int) -> SpanCorruption:
        """Spans of every window are cut out."""
        return SpanCorruption(tokenizer, window)

    def ends(self, data: DataTable | None) -> bool:
        """Nothing stands between documents: a special token cut into a target would teach to stop before its end."""
        return False

    def check(self, model: Loaded, text: str) -> None:
        """There must be a gap, and none twice."""
        super().check(model, text)
        gaps = GAP.findall(text)
        if not gaps:
            raise InputError(
                "the text has no gap to fill", f"write {SENTINELS[0]}, {SENTINELS[1]} … where words are missing"
            )
        if len(set(gaps)) < len(gaps):
            raise InputError(f"{max(gaps, key=gaps.count)} comes twice", "give every gap a number of its own")

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The texts with their gaps, and where the decoder begins."""
        token = model.tokenizer
        rows = [[*token.encode_naming(text, SENTINELS), token.eos_id] for text in texts]
        return Inputs(Padded.of([[token.bos_id]] * len(rows)), Padded.of(rows, fill=token.pad_id))

    def answer(self, model: Loaded, text: str, found: Hypothesis) -> Answer:
        """The text with what the model wrote in its gaps."""
        return filled_answer(model, text, self.written(model, found), found.score)

    def stream(self, model: Loaded, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Refused: gaps are filled when all of them are written."""
        refuse_stream()

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("loss",)

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Loss per token of what was cut out, in nats."""
        how.refuse_windows(self.name)
        stream, objective = self.windows(model, examples)
        total, count = measured(TokenPrediction(model.module), in_order(stream, objective, MEASURED), how.progress)
        return {"loss": total / max(count, 1)}

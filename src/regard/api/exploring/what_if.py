"""What becomes of the answer without some heads or edges, and why a score is what it is, for the page."""

from typing import Annotated, Any, Literal

from pydantic import Field

from regard.api.exploring.reading import ExploredText
from regard.errors import InputError
from regard.views.effects import edge_effects_record, head_effects_record, what_if_record
from regard.views.exploring.recorded import OfLayer, PageQuestion

MOST_TOKENS = 512
"""Of a text whose heads and edges are switched off one by one: the model reads it once for each."""


class OfAnswer(PageQuestion):
    """The answer, and what a head gives that is switched off."""

    ablation: Literal["zero", "mean"] = "zero"


class OfCuts(OfAnswer):
    """Heads and edges, as the command line writes them: `encoder.1.self:3`, `encoder.1.self:3:5:2`."""

    without: Annotated[list[Annotated[str, Field(max_length=100)]], Field(min_length=1, max_length=1000)]


class OfEdges(OfLayer):
    """One row of one head, of which each edge is cut."""

    head: int = Field(ge=0)
    row: int = Field(ge=0)


class OfScore(OfEdges):
    """One edge, whose score is split."""

    key: int = Field(ge=0)


def answer_of(reading: ExploredText) -> dict[str, Any]:
    """What the model answered, as its interventions are asked."""
    written = reading.new_tokens if reading.model.task.continues else None
    return {"target": reading.target, "max_new_tokens": written or None}


def require_short(reading: ExploredText) -> None:
    """Refuse a text that is too long to be read once for each head, edge or vector."""
    count = len(reading.model.tokenizer.encode(reading.text))
    if count > MOST_TOKENS:
        raise InputError(
            f"the text has {count:,} tokens and would be read once for each of its parts",
            f"give up to {MOST_TOKENS} tokens, or switch off only what you name",
        )


def head_effects_of(reading: ExploredText, asked: OfAnswer) -> dict[str, Any]:
    """What switching off each head does."""
    require_short(reading)
    return head_effects_record(reading.model.head_effects(reading.text, ablation=asked.ablation, **answer_of(reading)))


def edge_effects_of(reading: ExploredText, asked: OfEdges) -> dict[str, Any]:
    """What cutting each edge of a row does."""
    require_short(reading)
    return edge_effects_record(
        reading.model.edge_effects(reading.text, asked.layer, asked.row, head=asked.head, **answer_of(reading))
    )


def what_if_of(reading: ExploredText, asked: OfCuts) -> dict[str, Any]:
    """The answer without these heads and edges."""
    return what_if_record(
        reading.model.what_if(reading.text, asked.without, ablation=asked.ablation, **answer_of(reading))
    )


def why_of(reading: ExploredText, asked: OfScore) -> dict[str, Any]:
    """One score, by where its parts came from."""
    found = reading.model.why(reading.text, asked.layer, asked.head, asked.row, asked.key, **answer_of(reading))
    return {
        "score": found.score,
        "bias": found.bias,
        "rounding": found.rounding,
        "by_query": found.by_query(),
        "by_key": found.by_key(),
        "pairs": found.pairs(8),
    }

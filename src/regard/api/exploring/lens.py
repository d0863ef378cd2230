"""What a model would decide earlier, which vectors carry the answer, and attention in three ways, for the page."""

from dataclasses import asdict
from typing import Any

from regard.api.exploring.reading import ExploredText
from regard.api.exploring.what_if import answer_of, require_short
from regard.errors import InputError
from regard.inspection.maps import labels
from regard.views.exploring.recorded import OfLayer, PageQuestion

LONGEST_OTHER = 10_000
"""Characters of a text that is patched."""
MOST_SHOWN = 64
"""Tokens of a map that is drawn with a cell for each weight."""


class OfOther(PageQuestion):
    """Another text, of as many tokens."""

    other: str


def lens_of(reading: ExploredText, asked: PageQuestion) -> dict[str, Any]:
    """Layer by layer, what each decision would be if the model ended there."""
    return asdict(reading.model.logit_lens(reading.text, **answer_of(reading)))


def patching_of(reading: ExploredText, asked: OfOther) -> dict[str, Any]:
    """Which vectors of this text bring its answer back when the other is read."""
    require_short(reading)
    if len(asked.other) > LONGEST_OTHER:
        raise InputError(f"the second text has {len(asked.other):,} characters", "give one as long as the first")
    reading.model.check(asked.other)
    found = reading.model.patching(reading.text, asked.other, target=reading.target)
    pieces = reading.tokenizer.pieces
    stacks = [
        {
            "layers": one.layers,
            "tokens": pieces(one.tokens),
            "other": pieces(one.other_tokens),
            "recovered": one.recovered.tolist(),
        }
        for one in found.stacks
    ]
    told = {"chosen": found.chosen, "instead": found.other, "decision": found.decision}
    return {**told, "difference": found.difference, "other_difference": found.other_difference, "stacks": stacks}


def flow_of(reading: ExploredText, asked: OfLayer) -> dict[str, Any]:
    """The raw weights of a layer beside attention rollout and gradient × attention."""
    if max(map(len, labels(reading.part(), asked.layer, reading.tokenizer))) > MOST_SHOWN:
        raise InputError("a cell for each weight has no room here", f"give a text of up to {MOST_SHOWN} tokens")
    found = reading.model.attention_flow(reading.text, asked.layer, **answer_of(reading))
    rows, keys = labels(reading.part(), asked.layer, reading.tokenizer)
    maps = {"raw": found.raw, "rollout": found.rollout, "gradient": found.gradient}
    return {
        "answer": found.answer,
        "rows": rows[: len(found.raw)],
        "keys": keys[: found.raw.shape[1]],
        **{name: one.tolist() for name, one in maps.items()},
    }

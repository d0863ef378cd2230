"""Texts with gaps, filled with what a model wrote: `the <extra_id_0> by` and `<extra_id_0> rose` make `the rose by`."""

from collections.abc import Sequence
from typing import NoReturn

from regard.data.sentinels import GAP, SENTINELS, gaps
from regard.errors import InputError
from regard.tasks.task import Answer
from regard.text.tokenizer import Tokenizer


def filled(text: str, written: Sequence[int], score: float, tokenizer: Tokenizer) -> Answer:
    """The text with what was written in its gaps."""
    held = gaps(text, tokenizer)
    spans = {gap: span for gap, span in spans_of(written, tokenizer).items() if gap in held}
    output = GAP.sub(lambda gap: spans.get(gap[0], "").strip() if gap[0] in held else gap[0], text)
    return Answer(output, output, {"output": output, "spans": spans, "score": score})


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


def refuse_stream() -> NoReturn:
    """Gaps are filled when all of them are written."""
    raise InputError("a text with gaps is filled at the end and cannot stream", "leave --stream out")

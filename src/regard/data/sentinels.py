"""The tokens that stand for gaps in a text, `<extra_id_0>` and on: texts that are read with them, and filled again.

`the <extra_id_0> by` and `<extra_id_0> rose` make `the rose by`.
"""

import re
from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))
"""What stands where a span was; T5 has as many."""
GAP = re.compile("|".join(map(re.escape, SENTINELS)))


def gaps(text: str, tokenizer: Tokenizer) -> list[str]:
    """The sentinels that stand in a text, of those the tokenizer has; one that has none is not T5's way."""
    if tokenizer.special_ids.keys().isdisjoint(SENTINELS):
        return []
    return [name for name in GAP.findall(text) if name in tokenizer.special_ids]


def with_gaps(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Ids of texts, their gaps being sentinels where the tokenizer has these: to others they are text."""
    rows = tokenizer.encode_batch(texts)
    held = [gaps(text, tokenizer) for text in texts]
    return [
        tokenizer.encode_naming(text, SENTINELS) if names else row
        for text, names, row in zip(texts, held, rows, strict=True)
    ]


def filled(text: str, written: Sequence[int], tokenizer: Tokenizer) -> tuple[str, dict[str, str]]:
    """The text with what was written in its gaps, and what stands in each."""
    held = gaps(text, tokenizer)
    spans = {gap: span for gap, span in spans_of(written, tokenizer).items() if gap in held}
    return GAP.sub(lambda gap: spans.get(gap[0], "").strip() if gap[0] in held else gap[0], text), spans


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

"""The tokens that stand for gaps in a text, `<extra_id_0>` and on, and texts that are read with them."""

import re
from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))
"""What stands where a span was; T5 has as many."""
GAP = re.compile("|".join(map(re.escape, SENTINELS)))


def gaps(text: str, tokenizer: Tokenizer) -> list[str]:
    """The sentinels that stand in a text, of those the tokenizer has."""
    found = GAP.findall(text)
    return [name for name in found if name in tokenizer.special_ids] if found else []


def with_gaps(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Ids of texts, their gaps being sentinels where the tokenizer has these: to others they are text."""
    rows = tokenizer.encode_batch(texts)
    if tokenizer.special_ids.keys().isdisjoint(SENTINELS):
        return rows
    held = [gaps(text, tokenizer) for text in texts]
    return [
        tokenizer.encode_marked(text, SENTINELS) if names else row
        for text, names, row in zip(texts, held, rows, strict=True)
    ]

"""What a model does inside, measured: each function takes a `Model` and gives a plain record that views draw."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.data.grammar import sentences
from regard.errors import InputError
from regard.inspection.arcs import find_arcs
from regard.inspection.head_report import HeadReport, joined, report_heads

if TYPE_CHECKING:
    from regard.api.model import Model

SENTENCES = 40
"""Of the small grammar."""


def heads_of(model: "Model", texts: Sequence[str] | None = None) -> HeadReport:
    """Every head's measures on texts; where none are given, on a small English grammar that knows its own arcs."""
    if texts is not None:
        if isinstance(texts, str) or not texts:
            raise InputError("heads are measured on texts", "give a list of one or more")
        seen = joined([model.look(text) for text in texts])
        read = "1 text" if len(texts) == 1 else f"{len(texts)} texts"
        return report_heads(seen, model.module, model.tokenizer, None, read)
    parsed = sentences(SENTENCES)
    seen = joined([model.look(one.text) for one in parsed])
    grammar = find_arcs(seen, model.tokenizer, parsed)
    return report_heads(seen, model.module, model.tokenizer, grammar, f"{SENTENCES} sentences of a small grammar")

"""What a model does inside, measured: each function takes a model and gives a plain record that views draw."""

from collections.abc import Callable, Sequence

from regard.data.grammar import sentences
from regard.errors import InputError
from regard.inspection.arcs import find_arcs
from regard.inspection.capture import Recording
from regard.inspection.head_report import HeadReport, joined, report_heads
from regard.tasks.task import Loaded

SENTENCES = 40
"""Of the small grammar."""


Look = Callable[[str], Recording]
"""How a model is watched while it reads a text."""


def heads_of(model: Loaded, look: Look, texts: Sequence[str] | None = None) -> HeadReport:
    """Every head's measures on texts; where none are given, on a small English grammar that knows its own arcs."""
    if texts is not None:
        if isinstance(texts, str) or not texts:
            raise InputError("heads are measured on texts", "give a list of one or more")
        seen = joined([look(text) for text in texts])
        read = "1 text" if len(texts) == 1 else f"{len(texts)} texts"
        return report_heads(seen, model.module, model.tokenizer, None, read)
    parsed = sentences(SENTENCES)
    seen = joined([look(one.text) for one in parsed])
    grammar = find_arcs(seen, model.tokenizer, parsed)
    return report_heads(seen, model.module, model.tokenizer, grammar, f"{SENTENCES} sentences of a small grammar")

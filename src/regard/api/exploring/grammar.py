"""What every head finds of a small English grammar, and of random tokens that come twice, for the page's overview.

Neither is of the text that the page shows: the model reads sentences that know their own arcs (`data/grammar.py`).
"""

from typing import Any

from regard.api.exploring.reading import ExploredText
from regard.views.exploring.recorded import PageQuestion


def grammar_of(reading: ExploredText, asked: PageQuestion) -> dict[str, Any]:
    """Each head's share of each relation's arcs, beside that of the best fixed offset for them."""
    report = reading.model.heads()
    assert report.grammar is not None
    shares: dict[tuple[str, int], dict[str, float]] = {}
    for one in report.grammar.shares:
        shares.setdefault((one.layer, one.head), {})[one.relation] = one.share
    repeated = {(one.layer, one.head): one.repeated for one in report.heads}
    relations = [
        {"name": one.relation, "arcs": one.arcs, "offset": one.offset, "share": one.share}
        for one in report.grammar.baselines
    ]
    heads = [
        {"layer": layer, "head": head, "repeated": repeated[layer, head], "shares": found}
        for (layer, head), found in shares.items()
    ]
    return {"read": report.read, "relations": relations, "heads": heads}

"""Which learning rate is best for a rung of the ladder: what `rungs.BEST` comes from.

Measured on validation data: the test data are the ladder's own.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.api.model import Model
from regard.compare import rungs
from regard.compare.climb import Climb, ClimbListener, Entry
from regard.tasks.pairs import open_corpus
from regard.tasks.task import held_out
from regard.training.interrupt import Interrupt


def search(
    names: Sequence[str] | None,
    rates: Sequence[float] | None,
    folder: Path,
    changes: list[str],
    listener: ClimbListener,
    interrupt: Interrupt,
) -> list[dict[str, Any]]:
    """A record for every rung and rate, of each rung the best first."""
    tried: dict[str, tuple[str, float]] = {}
    entries: list[Entry] = []
    for name in names or list(rungs.MODELS):
        for rate in rates or rungs.RATES:
            entry = replace(rungs.rung(name, rate, changes), name=f"{name}-{rate:g}")
            tried[entry.name] = name, rate
            entries.append(entry)
    found = Climb(folder, entries, listener, interrupt).run({"exact_match": exact_match})
    records = [
        {
            "rung": name,
            "learning_rate": rate,
            "exact_match": found[entry]["exact_match"],
            "validation_loss": found[entry]["training"]["validation_loss"],
        }
        for entry, (name, rate) in tried.items()
    ]
    order = list(dict.fromkeys(name for name, _ in tried.values()))
    return sorted(
        records, key=lambda one: (order.index(one["rung"]), -float(one["exact_match"]), one["validation_loss"])
    )


def exact_match(model: Model) -> float:
    """On validation data."""
    assert model.data is not None
    return model.evaluate(held_out(open_corpus(model.data), "valid", None))["exact_match"]

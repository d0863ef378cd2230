"""A comparison of recipes as it is shown: the table, the curves and the bars."""

from collections.abc import Sequence

from regard.compare.recipes import Compared, Comparison, Spread
from regard.compare.shown import ComparisonView
from regard.views.comparison import Bars, ComparisonPanel, Curve, CurveLines

WHOLE = {"parameters": "parameters", "tokens_per_second": "tokens/s", "seconds": "seconds"}
PERCENT = ("bleu", "chrf")
"""Figures that go from 0 to 100."""


def shown(found: Comparison) -> ComparisonView:
    """Everything of a comparison that is shown."""
    over = f"means over {found.seeds} seeds, ± the standard deviation" if found.seeds > 1 else "one seed"
    header = ["", *(name.replace("_", " ") for name in found.metrics), "validation loss", *WHOLE.values()]
    bars = [_bars(found.compared, name, words) for name, words in _barred(found).items()]
    panels = [
        ComparisonPanel("Validation loss", [CurveLines("step", "loss", [_curve(one) for one in found.compared])]),
        ComparisonPanel("On held-out data", bars[: len(bars) - 2]),
        ComparisonPanel("What training takes", bars[len(bars) - 2 :]),
    ]
    rows = [_row(one, found.metrics) for one in found.compared]
    title = f"{found.task.replace('_', ' ').capitalize()}: {len(found.compared)} recipes"
    return ComparisonView(title, f"{found.data}; {over}", "", header, rows, panels, found.record())


def _barred(found: Comparison) -> dict[str, str]:
    """What has bars: at most three figures of the task, then size and speed."""
    metrics = {name: name.replace("_", " ") for name in found.metrics[:3]}
    return metrics | {"parameters": "parameters", "tokens_per_second": "tokens a second"}


def _curve(one: Compared) -> Curve:
    steps, means = list(one.losses), [spread.mean for spread in one.losses.values()]
    deviations = [spread.deviation for spread in one.losses.values()]
    if any(deviation is None for deviation in deviations):
        return Curve(one.name, steps, means)
    around = [(mean, deviation or 0.0) for mean, deviation in zip(means, deviations, strict=True)]
    return Curve(one.name, steps, means, [mean - far for mean, far in around], [mean + far for mean, far in around])


def _bars(compared: Sequence[Compared], name: str, words: str) -> Bars:
    spreads = {one.name: one.figures[name] for one in compared if name in one.figures}
    deviations = {key: one.deviation or 0.0 for key, one in spreads.items()}
    values = {key: one.mean for key, one in spreads.items()}
    whole = name in WHOLE
    return Bars(words, values, deviations if any(deviations.values()) else None, ",.0f" if whole else ",.3g")


def _row(one: Compared, metrics: Sequence[str]) -> list[str]:
    names = (*metrics, "validation_loss", *WHOLE)
    return [one.name, *(_cell(name, one.figures.get(name)) for name in names)]


def _cell(name: str, found: Spread | None) -> str:
    if found is None:
        return ""
    form = ",.0f" if name in WHOLE else ".2f" if name in PERCENT else ".4f"
    mean = format(found.mean, form)
    return mean if found.deviation is None or name == "parameters" else f"{mean} ± {format(found.deviation, form)}"

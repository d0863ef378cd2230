"""A comparison of recipes as it is shown: the table, the curves and the bars."""

from collections.abc import Mapping, Sequence

from regard.compare.recipes import Compared, Comparison, Spread
from regard.compare.shown import ComparisonView
from regard.views.comparison import Bars, ComparisonPanel, Curve, CurveLines

WHOLE = {"parameters": "parameters", "tokens_per_second": "tokens/s", "seconds": "seconds", "peak_bytes": "peak MB"}
MEGABYTE = 10**6
TAKEN = {"parameters": "parameters", "tokens_per_second": "tokens a second", "peak_bytes": "peak memory, MB"}
"""What has bars beside the figures of the task."""
PERCENT = ("bleu", "chrf")
"""Figures that go from 0 to 100."""


def shown(found: Comparison) -> ComparisonView:
    """Everything of a comparison that is shown."""
    over = f"means over {found.seeds} seeds, ± the standard deviation" if found.seeds > 1 else "one seed"
    header = ["", *(name.replace("_", " ") for name in found.metrics), "validation loss", *WHOLE.values()]
    quality = {name: name.replace("_", " ") for name in found.metrics[:3]}
    panels = [
        ComparisonPanel("Validation loss", [CurveLines("step", "loss", [_curve(one) for one in found.compared])]),
        ComparisonPanel("On held-out data", _all_bars(found.compared, quality)),
        ComparisonPanel("What training takes", _all_bars(found.compared, TAKEN)),
    ]
    rows = [_row(one, found.metrics) for one in found.compared]
    title = f"{found.task.replace('_', ' ').capitalize()}: {len(found.compared)} recipes"
    return ComparisonView(title, f"{found.data}; {over}", "", header, rows, panels, found.record())


def _all_bars(compared: Sequence[Compared], named: Mapping[str, str]) -> list[Bars]:
    """Those that anything is known of: memory is not, on some machines."""
    known = {name: words for name, words in named.items() if any(name in one.figures for one in compared)}
    return [_bars(compared, name, words) for name, words in known.items()]


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
    if name == "peak_bytes":
        values, deviations = ({key: one / MEGABYTE for key, one in each.items()} for each in (values, deviations))
    whole = name in WHOLE
    return Bars(words, values, deviations if any(deviations.values()) else None, ",.0f" if whole else ",.3g")


def _row(one: Compared, metrics: Sequence[str]) -> list[str]:
    names = (*metrics, "validation_loss", *WHOLE)
    return [one.name, *(_cell(name, one.figures.get(name)) for name in names)]


def _cell(name: str, found: Spread | None) -> str:
    if found is None:
        return ""
    form = ",.0f" if name in WHOLE else ".2f" if name in PERCENT else ".4f"
    unit = MEGABYTE if name == "peak_bytes" else 1
    mean = format(found.mean / unit, form)
    if found.deviation is None or name == "parameters":
        return mean
    return f"{mean} ± {format(found.deviation / unit, form)}"

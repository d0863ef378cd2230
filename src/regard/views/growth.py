"""How attention mechanisms grow with length, as curves: time and memory, both axes logarithmic."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from regard.views.comparison import ComparisonPanel, Curve, CurveLines, draw_panels

MEGABYTE = 10**6
DIRECTIONS = {"forward": "Forward", "forward+backward": "Forward and gradients"}


def draw_growth(rows: Sequence[Mapping[str, Any]], title: str, subtitle: str = "") -> Figure:
    """A row of panels for each kind of layer and direction that was measured."""
    panels = []
    for what in dict.fromkeys(row["what"] for row in rows if "tokens" in row and "milliseconds" in row):
        layer, _, direction = what.rpartition(", ")
        there = [row for row in rows if row["what"] == what and "milliseconds" in row]
        lengths = sorted({row["tokens"] for row in there})
        drawings = [
            CurveLines("tokens", words, _curves(there, key, unit), log="xy", ticks=lengths)
            for words, key, unit in (("milliseconds", "milliseconds", 1), ("peak memory, MB", "peak_bytes", MEGABYTE))
            if any(key in row for row in there)
        ]
        kind = "causal" if "causal" in layer else "bidirectional"
        panels.append(ComparisonPanel(f"{DIRECTIONS.get(direction, direction)}, {kind}", drawings))
    return draw_panels(title, subtitle, panels)


def _curves(rows: Sequence[Mapping[str, Any]], key: str, unit: int) -> list[Curve]:
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    curves = []
    for name in names:
        own = sorted((row["tokens"], row[key] / unit) for row in rows if row["contestant"] == name and key in row)
        if own:
            curves.append(Curve(name, [tokens for tokens, _ in own], [value for _, value in own]))
    return curves

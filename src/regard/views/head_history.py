"""Heads while they form, as a table, curves over the steps and a record."""

from typing import Any

from matplotlib.figure import Figure

from regard.inspection.head_history import HeadHistory
from regard.inspection.heads import HeadMeasures
from regard.views.columns import aligned
from regard.views.comparison import ComparisonPanel, Curve, CurveLines, draw_panels
from regard.views.heads import heads_record

SHOWN = {
    "induction": "what came next last time, in the texts",
    "repeated": "what came next last time, on random tokens that come twice",
    "previous": "the token before",
    "sink": "the first token",
    "same": "the same word",
}
"""What is drawn of each head, over the steps."""
MOST = 12
"""Heads that a panel has curves for: those that come to most."""


def head_history_record(found: HeadHistory) -> dict[str, Any]:
    """Every number at every step, for programs."""
    pairs = zip(found.steps, found.reports, strict=True)
    return {"snapshots": [{"step": step, **heads_record(report)} for step, report in pairs]}


def head_history_text(found: HeadHistory) -> str:
    """Each head's character at every step, and since when it has it."""
    rows = [["head", *(f"step {step}" for step in found.steps), "since"]]
    for one in found.reports[-1].heads:
        characters = [report.of(one.layer, one.head).character for report in found.reports]
        born = found.born(one.layer, one.head)
        rows.append([_named(one), *characters, "" if born is None else f"step {born}"])
    return "\n".join([f"Measured on {found.reports[-1].read}.", "", *aligned(rows, left=range(len(found.steps) + 1))])


def draw_head_history(found: HeadHistory) -> Figure:
    """A panel for each measure: the share of every head over the steps."""
    panels = []
    for measure, said in SHOWN.items():
        curves = []
        for one in found.reports[-1].heads:
            values = found.of(one.layer, one.head, measure)
            kept = [(step, value) for step, value in zip(found.steps, values, strict=True) if value is not None]
            if kept:
                curves.append(Curve(_named(one), [step for step, _ in kept], [value for _, value in kept]))
        most = sorted(curves, key=lambda curve: -max(curve.y))[:MOST]
        if most:
            kept_in_order = [curve for curve in curves if curve in most]
            panels.append(ComparisonPanel(said, [CurveLines("step", "share", kept_in_order, percent=True)]))
    title = f"{len(found.reports[-1].heads)} heads over {found.steps[-1]:,} steps"
    note = "The sink is measured first and taken out of the others; a share says where a head reads, not what follows."
    return draw_panels(title, f"measured on {found.reports[-1].read}", panels, note)


def _named(one: HeadMeasures) -> str:
    return f"{one.layer}, head {one.head}"

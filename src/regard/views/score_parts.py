"""Why a query attends to a key, as bars that add up to the printed score, as a table and as a record."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from regard.inspection.score_parts import ScoreParts
from regard.views.columns import aligned
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, label, plain_style
from regard.views.steps import BAR, BAR_BELOW_ZERO

MOST = 14
"""Parts that are named; the others are told together."""
PAIRS = 8
ROW = 0.26  # inches
MEANING = (
    "The score is the sum of the bars; norms are frozen at their value, so a bar says where the number came from, "
    "not what the score would be without that part."
)


def score_parts_record(found: ScoreParts) -> dict[str, Any]:
    """Every number, for programs: the parts of either side, the pairs of the largest parts, and the whole table."""
    return {
        "layer": found.layer,
        "head": found.head,
        "query": found.query,
        "key": found.key,
        "score": found.score,
        "position_bias": found.bias,
        "rounding": found.rounding,
        "by_query": [{"part": name, "score": value} for name, value in found.by_query()],
        "by_key": [{"part": name, "score": value} for name, value in found.by_key()],
        "pairs": [{"query": one, "key": other, "score": value} for one, other, value in found.pairs(PAIRS)],
        "query_parts": found.query_parts,
        "key_parts": found.key_parts,
        "table": found.table.tolist(),
    }


def score_parts_text(found: ScoreParts, query: str, key: str) -> str:
    """The parts of either side beside each other, then the pairs."""
    sides = [_shown(found.by_query()), _shown(found.by_key())]
    rows = [["from the query's", "score", "from the key's", "score"]]
    for at in range(max(map(len, sides))):
        cells = [side[at] if at < len(side) else None for side in sides]
        rows.append([text for one in cells for text in (("", "") if one is None else (one[0], f"{one[1]:+.4f}"))])
    total = f"{float(found.table.sum()):+.4f}"
    rows.append(["all parts", total, "all parts", total])
    lines = [_title(found, query, key), "", *aligned(rows, left=(0, 2)), "", "pairs of the largest parts"]
    lines += [f"  {value:+.4f}  {one} × {other}" for one, other, value in found.pairs(PAIRS)]
    return "\n".join([*lines, "", _sum(found), MEANING])


def draw_score_parts(found: ScoreParts, query: str, key: str) -> Figure:
    """Bars of the query's parts at the left, of the key's at the right."""
    with plain_style():
        figure = blank_page()
        for left, side, said in ((0.0, found.by_query(), "the query’s"), (5.6, found.by_key(), "the key’s")):
            shown = _shown(side)
            height = ROW * len(shown)
            axes = figure.add_axes((left, -height, 3.0, height))
            places, values = np.arange(len(shown)), [value for _, value in shown]
            axes.barh(places, values, 0.7, color=[BAR if value >= 0 else BAR_BELOW_ZERO for value in values])
            axes.axvline(0, color=QUIET, linewidth=0.6)
            axes.set_yticks(places, labels=[name for name, _ in shown], size=9)
            axes.invert_yaxis()
            axes.set_title(f"from {said} parts", size=11, color=TEXT, loc="left")
            axes.tick_params(length=0, labelsize=9, labelcolor=TEXT)
            axes.grid(axis="x", color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
            for spine in axes.spines.values():
                spine.set_visible(False)
        frame(figure, _title(found, query, key), _sum(found), MEANING)
        return figure


def _shown(side: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The largest, and the others together."""
    if len(side) <= MOST:
        return side
    rest = side[MOST - 1 :]
    return [*side[: MOST - 1], (f"{len(rest)} others", sum(value for _, value in rest))]


def _title(found: ScoreParts, query: str, key: str) -> str:
    return (
        f"why {label(query)} ({found.query}) looks at {label(key)} ({found.key}) in {found.layer}, head {found.head}: "
        f"q·k · scale = {found.score:.4f}"
    )


def _sum(found: ScoreParts) -> str:
    said = f"parts {float(found.table.sum()):.6f} + rounding of the run {found.rounding:.1e} = {found.score:.6f}"
    return f"{said}; relative positions add {found.bias:+.4f}" if found.bias else said

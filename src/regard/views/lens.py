"""The logit lens, activation patching, and attention beside rollout and gradient, as tables, figures and records."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.inspection.flow import Flow
from regard.inspection.lens import LogitLens, Patching
from regard.views.columns import aligned
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, label, plain_style
from regard.views.steps import SIGNED

MOST = 40
"""Tokens that a figure has columns for, and a table rows."""
COLUMNS = 8
"""Decisions that a table has columns for."""
LENS = "Each layer’s stream through the final norm and the head: what the head reads there, not what the layer knows."
PATCHING = (
    "1: this one vector brings the first text’s answer back; 0: nothing. It shows that the vector is enough in this "
    "pair of texts, not that nothing else would do."
)
FLOW = {
    "raw": "raw weights: what a row reads here, not what the token carries by now, nor what becomes of it",
    "rollout": "rollout: what could have come from each input token if values and feed-forward did nothing; "
    "the same whatever is decided",
    "gradient": "gradient × attention: the slope of log p(answer) along the weight; for large changes cut the edge",
}


def lens_record(found: LogitLens) -> dict[str, Any]:
    """Every number, for programs."""
    return asdict(found)


def patching_record(found: Patching, names: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Every number, for programs; `names` are the tokens of each stack's first text."""
    stacks = [
        {"layers": one.layers, "tokens": tokens, "recovered": one.recovered.tolist()}
        for one, tokens in zip(found.stacks, names, strict=True)
    ]
    kept = {"chosen": found.chosen, "other": found.other, "decision": found.decision}
    return kept | {"difference": found.difference, "other_difference": found.other_difference, "stacks": stacks}


def flow_record(found: Flow, rows: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    """Every number, for programs; `keys` are the layer's, and of rollout the tokens it began with."""
    maps = {name: getattr(found, name).tolist() for name in FLOW}
    return {"layer": found.layer, "answer": found.answer, "rows": rows, "keys": keys, **maps}


def lens_text(found: LogitLens) -> str:
    """A row for each layer, a column for each decision: the likeliest, and the place of what was decided."""
    shown = range(min(len(found.decided), COLUMNS))
    rows = [["layer", *(label(found.decided[at]) for at in shown)]]
    for layer, cells in zip(found.layers, found.cells, strict=True):
        told = [f"{label(cells[at].likeliest[0].name)} {cells[at].likeliest[0].probability:.2f}" for at in shown]
        ranks = ["" if cells[at].rank == 1 else f" (#{cells[at].rank})" for at in shown]
        rows.append([layer, *(one + rank for one, rank in zip(told, ranks, strict=True))])
    more = [f"The first {COLUMNS} of {len(found.decided)} decisions."] if len(found.decided) > COLUMNS else []
    note = f"In brackets the place of what the model decided in the end, where it is not the first. {LENS}"
    return "\n".join([*aligned(rows, left=range(COLUMNS + 1)), "", *more, note])


def patching_text(found: Patching, names: Sequence[Sequence[str]]) -> str:
    """A table for each stack: tokens down, layers across."""
    lines = [
        f"logit of {label(found.chosen)} less that of {label(found.other)}: {found.difference:.3f} in the first text, "
        f"{found.other_difference:.3f} in the second"
    ]
    for stack, tokens in zip(found.stacks, names, strict=True):
        rows = [["token", *stack.layers]]
        for at, token in list(enumerate(tokens))[:MOST]:
            rows.append([f"{at} {label(token)}", *(f"{value:.2f}" for value in stack.recovered[:, at])])
        lines += ["", *aligned(rows)]
        if len(tokens) > MOST:
            lines.append(f"The first {MOST} of {len(tokens)} tokens.")
    return "\n".join([*lines, "", PATCHING])


def flow_text(found: Flow, rows: Sequence[str], keys: Sequence[str]) -> str:
    """For each row the key that each of the three ways names first."""
    table = [["row", *FLOW]]
    for at, row in list(enumerate(rows))[:MOST]:
        named = []
        for name in FLOW:
            values = getattr(found, name)[at]
            most = int(np.argmax(values))
            named.append(f"{label(keys[most])} {values[most]:+.3f}")
        table.append([f"{at} {label(row)}", *named])
    lines = [f"{found.layer}: what each row's largest key is, in three ways", "", *aligned(table, left=range(4))]
    return "\n".join([*lines, "", *(f"{said}." for said in FLOW.values())])


def draw_lens(found: LogitLens) -> Figure:
    """Layers up, decisions across: the likeliest token in every cell, darker where what was decided is likelier."""
    shown = range(min(len(found.decided), MOST))
    table = np.array([[np.exp(cells[at].log_probability) for at in shown] for cells in found.cells])[::-1]
    with plain_style():
        figure = blank_page()
        axes = figure.add_axes((0.0, 0.0, max(0.8 * len(shown), 2.0), 0.34 * len(found.layers)))
        axes.imshow(table, cmap="Blues", norm=Normalize(0, 1.4), aspect="auto")
        for up, cells in enumerate(reversed(found.cells)):
            for at in shown:
                axes.text(at, up, label(cells[at].likeliest[0].name)[:9], ha="center", va="center", size=8, color=TEXT)
        axes.set_yticks(range(len(found.layers)), labels=list(reversed(found.layers)), size=9)
        _ticks(axes, [found.decided[at] for at in shown])
        said = "what each layer would decide, darker where it is what the model decided in the end"
        frame(figure, "logit lens", said, LENS)
        return figure


def draw_patching(found: Patching, names: Sequence[Sequence[str]]) -> Figure:
    """Layers up, tokens across, a map for each stack."""
    with plain_style():
        figure = blank_page()
        top = 0.0
        for stack, tokens in zip(found.stacks, names, strict=True):
            shown = min(len(tokens), MOST)
            height = 0.34 * len(stack.layers)
            axes = figure.add_axes((0.0, top - height, max(0.45 * shown, 2.0), height))
            axes.imshow(stack.recovered[::-1, :shown], cmap=SIGNED, norm=Normalize(-1, 1), aspect="auto")
            axes.set_yticks(range(len(stack.layers)), labels=list(reversed(stack.layers)), size=9)
            _ticks(axes, list(tokens[:shown]))
            top -= height + 1.1
        title = f"what brings {label(found.chosen)} back, in place of {label(found.other)}"
        said = f"logit difference {found.difference:.2f} in the first text, {found.other_difference:.2f} in the second"
        frame(figure, title, said, PATCHING)
        return figure


def draw_flow(found: Flow, rows: Sequence[str], keys: Sequence[str]) -> Figure:
    """The three maps of one layer beside each other."""
    with plain_style():
        figure = blank_page()
        down, across = min(len(rows), MOST), min(len(keys), MOST)
        width, left = 0.22 * across + 0.4, 0.0
        for name, said in FLOW.items():
            values: NDArray[Any] = getattr(found, name)[:down, :across]
            axes = figure.add_axes((left, 0.0, width, 0.22 * down + 0.2))
            size = max(float(np.abs(values).max()), 1e-12)
            signed = name == "gradient"
            colours: str | Colormap = SIGNED if signed else "Blues"
            axes.imshow(values, cmap=colours, norm=Normalize(-size if signed else 0, size), aspect="auto")
            axes.set_title(said.split(":")[0], size=11, color=TEXT, loc="left")
            axes.set_yticks(
                range(down), labels=[label(one) for one in rows[:down]] if left == 0.0 else [""] * down, size=8
            )
            _ticks(axes, list(keys[:across]))
            left += width + 0.35
        answer = " ".join(label(one) for one in found.answer[:12])
        frame(figure, f"{found.layer}, in three ways", f"the answer is “{answer}”", ". ".join(FLOW.values()) + ".")
        return figure


def _ticks(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), labels=[label(one) for one in names], size=8, rotation=60, ha="right")
    axes.tick_params(length=0, labelcolor=TEXT)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.yaxis.label.set_color(QUIET)

"""What switching heads off and cutting edges does, as tables, figures and records: before and after, or one by one.

Changes are of the log-probability of the answer, in nats: below 0, the answer has become less likely without.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.inspection.what_if import Decision, EdgeEffects, HeadEffects, WhatIf
from regard.views.columns import aligned
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, label, plain_style, printable
from regard.views.steps import BAR, BAR_BELOW_ZERO, SIGNED

MOST = 24
"""Decisions, or edges, that a table and a figure have room for."""
FEW = 3
"""Likeliest options told of each decision."""
CELL = 0.55  # inches
NATS = "in nats: below 0, the answer is less likely without; e^change is the factor of its probability"
ALONE = "each is switched off alone: effects do not add up, since other heads take over"


def what_if_record(found: WhatIf) -> dict[str, Any]:
    """Every number, for programs."""
    decisions = [asdict(one) | {"change": one.change} for one in found.decisions]
    answers = None if found.answers is None else {"before": found.answers[0], "after": found.answers[1]}
    return asdict(found) | {"decisions": decisions, "answers": answers, "change": found.change}


def head_effects_record(found: HeadEffects) -> dict[str, Any]:
    """Every number, for programs."""
    return asdict(found)


def edge_effects_record(found: EdgeEffects) -> dict[str, Any]:
    """Every number, for programs."""
    return asdict(found)


def what_if_text(found: WhatIf) -> str:
    """What was changed, the answers, and a row for each decision."""
    lines = [f"Without {_named(found)}.", ""]
    if found.answers is not None:
        before, after = found.answers
        lines += [f"  before  {printable(before)}", f"  after   {printable(after)}", ""]
    rows = [["decided", "log p before", "after", "change", "likeliest after"]]
    for one in found.decisions[:MOST]:
        likely = ", ".join(f"{label(option.name)} {option.probability:.3f}" for option in one.likeliest_after[:FEW])
        rows.append([label(one.chosen), f"{one.before:.3f}", f"{one.after:.3f}", f"{one.change:+.3f}", likely])
    lines += aligned(rows, left=(0, 4))
    if len(found.decisions) > MOST:
        lines.append(f"… and {len(found.decisions) - MOST} more.")
    return "\n".join([*lines, "", f"The whole answer: {found.change:+.3f} {NATS}."])


def head_effects_text(found: HeadEffects) -> str:
    """A row for each layer, then the heads that matter most."""
    grid = _grid(found)
    heads = max(len(row) for row in grid.values())
    rows = [["layer", *(f"head {at}" for at in range(heads))]]
    for layer, row in grid.items():
        rows.append([layer, *(f"{one:+.3f}" for one in row), *[""] * (heads - len(row))])
    worst = sorted(found.heads, key=lambda one: one.change)[:FEW]
    told = ", ".join(f"{one.layer}:{one.head} {one.change:+.3f}" for one in worst)
    changed = sum(not one.kept for one in found.heads)
    lines = [
        f"The answer {_answer(found.answer)}, log p {found.log_probability:.3f}, without each head ({_how(found)}).",
        "",
    ]
    lines += [*aligned(rows), "", f"Most: {told}. Without {changed} of {len(found.heads)} the answer is another one."]
    return "\n".join([*lines, f"Change of its log-probability {NATS}; {ALONE}."])


def edge_effects_text(found: EdgeEffects, keys: tuple[str, ...], row: str) -> str:
    """A row for each key, with its weight and what cutting it does."""
    rows = [["key", "", "weight", "change", "answer"]]
    shown = sorted(found.edges, key=lambda one: -abs(one.change))[:MOST]
    for one in sorted(shown, key=lambda one: one.key):
        kept = "kept" if one.kept else "another"
        rows.append([str(one.key), label(keys[one.key]), f"{one.weight:.4f}", f"{one.change:+.4f}", kept])
    lines = [
        f"From {label(row)}, row {found.query} of {_where(found)}: each edge cut alone, {_renormalised(found)}.",
        "",
    ]
    lines += aligned(rows, left=(1, 4))
    if len(found.edges) > len(shown):
        lines.append(f"The {len(shown)} of the largest effects, of {len(found.edges)}.")
    return "\n".join([*lines, "", f"Change of the log-probability of {_answer(found.answer)} {NATS}."])


def draw_what_if(found: WhatIf) -> Figure:
    """The probability of every decision, before and after; of a single one, that of all its likeliest options."""
    names, before, after = _bars(found)
    with plain_style():
        figure = blank_page()
        axes = figure.add_axes((0.0, 0.0, max(0.62 * len(names), 3.0), 3.2))
        places = np.arange(len(names))
        axes.bar(places - 0.2, before, 0.38, color=LINE, label="before")
        axes.bar(places + 0.2, after, 0.38, color=BAR, label="after")
        axes.set_xticks(places, labels=[label(name) for name in names], size=10, rotation=45, ha="right")
        axes.set_ylabel("probability", size=11, color=TEXT)
        axes.set_ylim(0, 1.02)
        _plain(axes)
        axes.legend(frameon=False, fontsize=10, loc="upper left", bbox_to_anchor=(1.02, 1.0))
        said = "" if found.answers is None else f"before: {found.answers[0]}\nafter: {found.answers[1]}"
        note = f"The whole answer: {found.change:+.3f} {NATS}."
        frame(figure, f"without {_named(found)}", said, note)
        return figure


def draw_head_effects(found: HeadEffects) -> Figure:
    """A map of all layers and heads: brown where the answer needs the head, blue where it is better off without."""
    grid = _grid(found)
    heads = max(len(row) for row in grid.values())
    table = np.full((len(grid), heads), np.nan)
    for at, row in enumerate(grid.values()):
        table[at, : len(row)] = row
    with plain_style():
        figure = blank_page()
        axes = figure.add_axes((0.0, 0.0, CELL * heads, 0.6 * CELL * len(grid)))
        size = max(float(np.nanmax(np.abs(table))), 1e-9)
        drawn = axes.imshow(table, cmap=SIGNED, norm=Normalize(-size, size), aspect="auto")
        axes.set_xticks(range(heads), labels=[str(at) for at in range(heads)], size=10)
        axes.set_yticks(range(len(grid)), labels=list(grid), size=10)
        axes.set_xlabel("head", size=11, color=TEXT)
        if table.size <= 200:
            for (y, x), value in np.ndenumerate(table):
                if not np.isnan(value):
                    colour = "white" if abs(value) > 0.7 * size else TEXT
                    axes.text(x, y, f"{value:+.2f}", ha="center", va="center", size=7, color=colour)
        axes.tick_params(length=0, labelcolor=TEXT)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(drawn, cax=figure.add_axes((CELL * heads + 0.2, 0.0, 0.12, 0.6 * CELL * len(grid))))
        bar.ax.tick_params(length=0, labelsize=9, labelcolor=QUIET)
        bar.outline.set_visible(False)
        title = "what the answer loses without each head"
        said = f"{_answer(found.answer)}, log p {found.log_probability:.3f}; {_how(found)}"
        frame(figure, title, said, f"Change of the answer’s log-probability {NATS}; {ALONE}.")
        return figure


def draw_edge_effects(found: EdgeEffects, keys: tuple[str, ...], row: str) -> Figure:
    """For every key its weight, and below it what cutting the edge does."""
    shown = sorted(sorted(found.edges, key=lambda one: -abs(one.change))[:MOST], key=lambda one: one.key)
    with plain_style():
        figure = blank_page()
        width, places = max(0.42 * len(shown), 3.0), np.arange(len(shown))
        above = figure.add_axes((0.0, 2.2, width, 1.7))
        above.bar(places, [one.weight for one in shown], 0.7, color=LINE)
        above.set_ylabel("weight", size=11, color=TEXT)
        above.set_xticks([])
        below = figure.add_axes((0.0, 0.0, width, 2.0))
        changes = [one.change for one in shown]
        below.bar(places, changes, 0.7, color=[BAR if one >= 0 else BAR_BELOW_ZERO for one in changes])
        below.axhline(0, color=QUIET, linewidth=0.6)
        below.set_ylabel("change without it", size=11, color=TEXT)
        below.set_xticks(places, labels=[label(keys[one.key]) for one in shown], size=10, rotation=45, ha="right")
        for axes in (above, below):
            _plain(axes)
        said = f"from {label(row)}, row {found.query}; each edge cut alone, {_renormalised(found)}"
        note = f"Change of the log-probability of {_answer(found.answer)} {NATS}."
        frame(figure, f"weights of {_where(found)}, and what they do", said, note)
        return figure


def _bars(found: WhatIf) -> tuple[list[str], list[float], list[float]]:
    def shares(one: Decision) -> tuple[dict[str, float], dict[str, float]]:
        return (
            {option.name: option.probability for option in one.likeliest_before},
            {option.name: option.probability for option in one.likeliest_after},
        )

    if len(found.decisions) == 1:
        [one] = found.decisions
        before, after = shares(one)
        before[one.chosen], after[one.chosen] = float(np.exp(one.before)), float(np.exp(one.after))
        both = [name for name in before if name in after]  # one beyond the likeliest has no number
        return both, [before[name] for name in both], [after[name] for name in both]
    shown = found.decisions[:MOST]
    return (
        [one.chosen for one in shown],
        [float(np.exp(one.before)) for one in shown],
        [float(np.exp(one.after)) for one in shown],
    )


def _plain(axes: Any) -> None:
    axes.tick_params(length=0, labelsize=10, labelcolor=TEXT)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _named(found: WhatIf) -> str:
    named = []
    for name, weight in zip(found.without, found.cut, strict=True):
        named.append(name if weight is None else f"{name} (weight {weight:.3f})")
    how = []
    if any(weight is None for weight in found.cut):
        how.append(_how(found))
    if any(weight is not None for weight in found.cut):
        how.append(_renormalised(found))
    return f"{', '.join(named)}: {'; '.join(how)}"


def _how(found: WhatIf | HeadEffects) -> str:
    return "its output zero" if found.ablation == "zero" else "its output the mean over the text"


def _renormalised(found: WhatIf | EdgeEffects) -> str:
    return "the others of the row grow to 1 again" if found.renormalise else "the others of the row stay as they are"


def _where(found: EdgeEffects) -> str:
    return f"{found.layer}, {'all heads' if found.head is None else f'head {found.head}'}"


def _answer(names: tuple[str, ...]) -> str:
    shown = " ".join(label(name) for name in names[:MOST])
    return f"“{shown}{' …' if len(names) > MOST else ''}”"


def _grid(found: HeadEffects) -> dict[str, list[float]]:
    grid: dict[str, list[float]] = {}
    for one in found.heads:
        grid.setdefault(one.layer, []).append(one.change)
    return grid

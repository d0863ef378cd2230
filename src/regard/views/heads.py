"""What kind of head each head is, as a table, a scatter and a record.

In the figure every head is a point: how spread out its rows are to the right, how far it looks upwards, its colour what
it does more than anything else that has a name. The sink is taken out of all three (`inspection/heads.py`).
"""

from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from regard.inspection.arcs import ArcShare, GrammarReport
from regard.inspection.head_report import HeadReport
from regard.inspection.heads import HeadMeasures
from regard.views.columns import aligned
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, plain_style

COLOURS = {
    "sink": "#98a1b2",
    "previous token": "#234798",
    "next token": "#3a9bb0",
    "induction": "#c4622d",
    "same word": "#3c8d5a",
    "mixed": "#d5d9e2",
}
COLUMNS = ("sink", "special", "entropy", "distance", "previous", "following", "same", "induction", "repeated")
NAMED = 60
"""More heads than this are named in the figure only where they have a character."""
MEANING = (
    "sink: share to the first token; special: to other special tokens; the rest is of what is left without both. "
    "repeated: induction on random tokens that come twice. A share says where a head reads, not what it does with it."
)


def heads_text(report: HeadReport) -> str:
    """A row for each head, then what the heads find of the grammar."""
    rows = [["head", "character", *COLUMNS]]
    for one in report.heads:
        rows.append([_name(one), one.character, *(_number(getattr(one, column)) for column in COLUMNS)])
    lines = [f"Measured on {report.read}.", "", *aligned(rows, left=(0, 1)), "", MEANING]
    if report.grammar is not None:
        lines += ["", *_grammar_lines(report.grammar)]
    return "\n".join(lines)


def heads_record(report: HeadReport) -> dict[str, Any]:
    """Every number, for programs."""
    heads = [asdict(one) | {"character": one.character} for one in report.heads]
    return {"read": report.read, "heads": heads, "grammar": report.grammar and asdict(report.grammar)}


def draw_heads(report: HeadReport) -> Figure:
    """Every head as a point; of attention between two texts alone, its sink share takes the place of the distance."""
    far = any(one.distance is not None for one in report.heads)
    with plain_style():
        figure = blank_page()
        axes = figure.add_axes((0.0, 0.0, 7.0, 5.0))
        for character, colour in COLOURS.items():
            some = [one for one in report.heads if one.character == character and _place(one, far) is not None]
            if not some:
                continue
            across, up = zip(*(_place(one, far) or (0.0, 0.0) for one in some), strict=True)
            edge = QUIET if character == "mixed" else colour
            axes.scatter(across, up, s=60, color=colour, edgecolors=edge, linewidths=0.6, label=character, zorder=3)
            if len(report.heads) <= NAMED or character != "mixed":
                for one, x, y in zip(some, across, up, strict=True):
                    axes.annotate(_short(one), (x, y), (4, 4), textcoords="offset points", size=7, color=QUIET)
        axes.set_xlabel("entropy of its rows, nats", size=11, color=TEXT)
        axes.set_ylabel("mean distance, tokens" if far else "share of the first token", size=11, color=TEXT)
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelsize=10, labelcolor=TEXT)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=10)
        frame(figure, f"{len(report.heads)} heads", f"measured on {report.read}", _note(report))
        return figure


def _place(one: HeadMeasures, far: bool) -> tuple[float, float] | None:
    up = one.distance if far else one.sink
    return None if one.entropy is None or up is None else (one.entropy, up)


def _name(one: HeadMeasures) -> str:
    return f"{one.layer}, head {one.head}"


def _short(one: HeadMeasures) -> str:
    stack, index, kind = [*one.layer.split("."), "", ""][:3]
    return f"{stack[:1]}{index}{'×' if kind == 'cross' else ''}.{one.head}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _note(report: HeadReport) -> str:
    found = report.grammar
    if found is None:
        return MEANING
    said = [
        f"{one.relation}: {_found(found.best(one.relation))}, always {one.offset:+d} words {one.share:.0%}"
        for one in found.baselines
    ]
    return f"{MEANING} Of the grammar’s arcs the best head finds, and a fixed offset: {'; '.join(said)}."


def _found(best: ArcShare) -> str:
    return f"{best.layer}, head {best.head} {best.share:.0%}"


def _grammar_lines(grammar: GrammarReport) -> list[str]:
    rows = [["relation", "arcs", "best head", "finds", "best fixed offset", "finds"]]
    for known in grammar.baselines:
        best = grammar.best(known.relation)
        where = f"{best.layer}, head {best.head}"
        rows.append(
            [known.relation, f"{known.arcs}", where, f"{best.share:.0%}", f"{known.offset:+d}", f"{known.share:.0%}"]
        )
    below = [one.relation for one in grammar.baselines if grammar.best(one.relation).share <= one.share]
    told = [f"No head finds more than a fixed offset does of: {', '.join(below)}."] if below else []
    told.append("The best head of many was chosen on these arcs: on others it finds fewer.")
    return [*aligned(rows, left=(0, 2)), "", *told]

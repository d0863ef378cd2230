"""Several trainings side by side: panels of lines with bands and of bars with spread, a sentence under each.

What is drawn is plain records, so that one picture serves every comparison.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, plain_style, printable
from regard.views.training_curves import COLOURS

ACROSS, WIDTH, HEIGHT = 2, 6.2, 3.1  # panels in a row; inches of a panel's drawing
GAP, BETWEEN = 1.25, 0.95  # between columns, at the least; inside a panel
BELOW, SAYING = 1.15, 1.75  # under a panel, for its axis; and for its sentence
LETTER = 0.085  # inches of a name, for each letter
CHARACTERS = 96
"""Of a sentence, on a line."""
FADED = 0.15
CROWDED = 6
"""Curves whose names still stand inside a drawing."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Numbers = Sequence[float] | Sequence[int]

NARROW = 0.02
"""Of its height an axis up has at least this part of what stands on it."""


@dataclass(frozen=True)
class Curve:
    """One entry's line, with a band where there is one."""

    name: str
    x: Numbers
    y: Numbers
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class CurveLines:
    """A drawing of curves."""

    across: str
    up: str
    curves: Sequence[Curve]
    log: str = ""
    """Which axes are logarithmic: `x`, `y`, `xy` or none."""
    percent: bool = False
    ticks: Numbers | None = None
    """Where the axis across has numbers, if not where matplotlib puts them."""
    span: tuple[float, float] | None = None
    """What the axis up reaches over, where several drawings are to be compared."""
    level: tuple[str, float] | None = None
    """A number to compare the curves with, as a broken line with its name."""


@dataclass(frozen=True)
class Bars:
    """A drawing of one number for each entry."""

    across: str
    values: Mapping[str, float]
    spread: Mapping[str, float] | None = None
    figures: str = ",.0f"
    """How the numbers beside the bars are written."""


@dataclass(frozen=True)
class ComparisonPanel:
    """One or several drawings side by side, with a title, and a sentence on what they show."""

    title: str
    drawings: Sequence[CurveLines | Bars]
    sentence: str = ""


def draw_panels(title: str, subtitle: str, panels: Sequence[ComparisonPanel], note: str = "") -> Figure:
    """All panels on a page; an entry has the same colour in all of them."""
    names = list(dict.fromkeys(name for panel in panels for drawing in panel.drawings for name in _names(drawing)))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    crowded = any(
        isinstance(one, CurveLines) and len(one.curves) > CROWDED for panel in panels for one in panel.drawings
    )
    across = WIDTH + max(GAP, 0.4 + LETTER * max(map(len, names), default=0)) + crowded * BETWEEN
    down = HEIGHT + (SAYING if any(panel.sentence for panel in panels) else BELOW)
    named: set[str] = set()
    with plain_style():
        figure = blank_page()
        for number, panel in enumerate(panels):
            row, column = divmod(number, ACROSS)
            drawn = _draw_panel(figure, panel, (column * across, -row * down - HEIGHT), colours)
            _name_curves(drawn, named)
        frame(figure, printable(title), subtitle, note)
        return figure


def _name_curves(drawn: Sequence[Axes], named: set[str]) -> None:
    """A legend in a drawing that has a curve no drawing before it named; of many curves beside the panel."""
    for axes in drawn:
        handles, names = axes.get_legend_handles_labels()
        if not set(names) - named:
            continue
        named |= set(names)
        if len(names) > CROWDED:
            beside = drawn[-1].legend(handles, names, frameon=False, fontsize=9, labelcolor=TEXT, loc="upper left")
            beside.set_bbox_to_anchor((1.0, 1.02))
        else:
            axes.legend(frameon=False, fontsize=9, labelcolor=TEXT)


def _names(drawing: CurveLines | Bars) -> list[str]:
    return list(drawing.values) if isinstance(drawing, Bars) else [curve.name for curve in drawing.curves]


def _draw_panel(
    figure: Figure, panel: ComparisonPanel, at: tuple[float, float], colours: Mapping[str, str]
) -> list[Axes]:
    """The drawings of a panel, its title and its sentence."""
    left, bottom = at
    drawn: list[Axes] = []
    count = len(panel.drawings)
    width = (WIDTH - BETWEEN * (count - 1)) / count
    for number, drawing in enumerate(panel.drawings):
        axes = figure.add_axes((left + number * (width + BETWEEN), bottom, width, HEIGHT))
        drawn.append(axes)
        if isinstance(drawing, CurveLines):
            _draw_lines(axes, drawing, colours)
        else:
            _draw_bars(axes, drawing, colours, named=number == 0)
        axes.tick_params(length=0, labelsize=9, labelcolor=QUIET)
        axes.set_xlabel(printable(drawing.across), size=9, color=QUIET)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.text(left, bottom + HEIGHT + 0.1, printable(panel.title), size=12, weight="bold", color=TEXT, va="bottom")
    if panel.sentence:
        wrapped = textwrap.fill(printable(panel.sentence), CHARACTERS)
        figure.text(left, bottom - 0.5, wrapped, size=9.5, color=TEXT, va="top", linespacing=1.35)
    return drawn


def _widen(axes: Axes) -> None:
    """An axis up on which what differs by rounding alone looks alike, with whole numbers beside it."""
    low, high = axes.get_ylim()
    middle = (low + high) / 2
    if high - low < NARROW * abs(middle):
        axes.set_ylim(middle - NARROW * abs(middle), middle + NARROW * abs(middle))
    axes.ticklabel_format(axis="y", useOffset=False)


def _draw_lines(axes: Axes, drawing: CurveLines, colours: Mapping[str, str]) -> None:
    for curve in drawing.curves:
        colour, name = colours[curve.name], printable(curve.name)
        axes.plot(curve.x, curve.y, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=name)
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=FADED, linewidth=0)
    if "x" in drawing.log:
        axes.set_xscale("log", base=2)
    if "y" in drawing.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(which="minor", length=0)
    else:
        _widen(axes)
    if drawing.span is not None:
        axes.set_ylim(*drawing.span)
    if drawing.level is not None:
        name, value = drawing.level
        axes.axhline(value, color=QUIET, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        label = axes.annotate(printable(name), (1, value), (-2, -3), axes.get_yaxis_transform(), "offset points")
        label.set(size=8.5, color=QUIET, ha="right", va="top")
    if drawing.percent:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    if drawing.ticks is not None:
        axes.set_xticks(drawing.ticks, [short_count(tick) for tick in drawing.ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(printable(drawing.up), size=9, color=QUIET)
    axes.grid(color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def short_count(value: float | int) -> str:
    """A number of tokens as a narrow axis has it.

    >>> short_count(512), short_count(16384), short_count(1000)
    ('512', '16k', '1,000')
    """
    return f"{value / 1024:.0f}k" if value >= 1024 and value % 1024 == 0 else f"{value:,.0f}"


def power_of_ten(value: float) -> str:
    """A number as an axis has it, whose text is not TeX.

    >>> power_of_ten(0.01), power_of_ten(100.0), power_of_ten(1e-9)
    ('0.01', '100', '10⁻⁹')
    """
    if 1e-3 <= value < 1e6:
        return f"{value:,.0f}" if value >= 1 else f"{value:g}"
    mantissa, exponent = f"{value:.0e}".split("e")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa} · {power}"


def _draw_bars(axes: Axes, drawing: Bars, colours: Mapping[str, str], *, named: bool) -> None:
    names = list(drawing.values)
    values = [drawing.values[name] for name in names]
    spread = None if drawing.spread is None else [drawing.spread[name] for name in names]
    axes.barh(names, values, xerr=spread, color=[colours[name] for name in names], height=0.6, ecolor=QUIET)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(range(len(names)), [printable(name) for name in names] if named else [""] * len(names))
    farthest = max((value + (spread[place] if spread else 0) for place, value in enumerate(values)), default=0) or 1
    axes.set_xlim(min(0, *values), farthest * 1.45)
    for place, value in enumerate(values):
        beside = max(value, 0) + (spread[place] if spread else 0) + farthest * 0.03
        axes.text(beside, place, format(value, drawing.figures), size=9, color=TEXT, va="center")

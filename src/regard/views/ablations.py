"""What each part of a network is there for: small panels with a sentence under each, as a picture or a page.

What is drawn are plain records: curves over a size, or bars, of which some are what stands to be compared with.
"""

import base64
import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, plain_style, printable
from regard.views.training_curves import COLOURS

ACROSS, WIDTH, HEIGHT = 3, 4.1, 2.5  # panels in a row; inches of a panel's drawing
GAP, BELOW = 1.0, 2.2  # between columns; under a panel, for its axis and its sentence
CHARACTERS = 64
"""Of a sentence, on a line."""
KEPT, REMOVED = COLOURS[0], COLOURS[1]


@dataclass(frozen=True)
class AblationCurves:
    """A figure over a size, for several conditions."""

    across: str
    up: str
    x: Sequence[float]
    y: Mapping[str, Sequence[float]]
    log: bool = False
    """Whether the figure's axis is logarithmic, as the one across always is; else it is a share of 0 to 1."""
    level: float | None = None
    """A share that is to be reached."""


@dataclass(frozen=True)
class AblationBars:
    """A share for each condition; several of a kind have one colour."""

    up: str
    values: Mapping[str, float]
    removed: Sequence[str] = ()
    """The conditions in which something was taken away."""


@dataclass(frozen=True)
class AblationPanel:
    """One drawing with its title and what it says."""

    title: str
    drawing: AblationCurves | AblationBars
    sentence: str


def draw_ablations(title: str, subtitle: str, panels: Sequence[AblationPanel], note: str = "") -> Figure:
    """All panels on one page."""
    with plain_style():
        figure = blank_page()
        for number, panel in enumerate(panels):
            row, column = divmod(number, ACROSS)
            left, bottom = column * (WIDTH + GAP), -row * (HEIGHT + BELOW) - HEIGHT
            axes = figure.add_axes((left, bottom, WIDTH, HEIGHT))
            if isinstance(panel.drawing, AblationCurves):
                _draw_curves(axes, panel.drawing)
            else:
                _draw_bars(axes, panel.drawing)
            axes.tick_params(length=0, labelsize=9, labelcolor=QUIET)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
            above = bottom + HEIGHT + 0.1
            figure.text(left, above, printable(panel.title), size=12, weight="bold", color=TEXT, va="bottom")
            wrapped = textwrap.fill(printable(panel.sentence), CHARACTERS)
            figure.text(left, bottom - 0.62, wrapped, size=9.5, color=TEXT, va="top", linespacing=1.35)
        frame(figure, printable(title), subtitle, note)
        return figure


def _draw_curves(axes: Axes, drawing: AblationCurves) -> None:
    for number, (name, values) in enumerate(drawing.y.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(drawing.x, values, color=colour, linewidth=1.5, marker="o", markersize=3.5, label=printable(name))
    axes.set_xscale("log", base=2)
    axes.set_xticks(drawing.x, [f"{tick:,.0f}" for tick in drawing.x])
    axes.xaxis.set_minor_locator(NullLocator())
    if drawing.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        _shares(axes)
    if drawing.level is not None:
        axes.axhline(drawing.level, color=QUIET, linewidth=0.9, linestyle="--")
    axes.set_xlabel(printable(drawing.across), size=9, color=QUIET)
    axes.set_ylabel(printable(drawing.up), size=9, color=QUIET)
    axes.grid(color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=TEXT)


def _draw_bars(axes: Axes, drawing: AblationBars) -> None:
    names = list(drawing.values)
    colours = [REMOVED if name in drawing.removed else KEPT for name in names]
    values = [drawing.values[name] for name in names]
    axes.bar(range(len(names)), values, color=colours, width=0.62)
    for place, value in enumerate(values):
        axes.text(place, value + 0.02, f"{100 * value:.0f} %", size=9, color=TEXT, ha="center", va="bottom")
    lines = [textwrap.fill(printable(name), max(60 // len(names), 8)) for name in names]
    axes.set_xticks(range(len(names)), lines)
    _shares(axes)
    axes.set_ylim(0, 1.12)
    axes.set_ylabel(printable(drawing.up), size=9, color=QUIET)


def _shares(axes: Axes) -> None:
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1f2430; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
img {{ max-width: 100% }}
table {{ border-collapse: collapse; margin: 0.5rem 0 1.5rem }}
td, th {{ border-bottom: 1px solid #d5d9e2; padding: 0.2rem 1rem 0.2rem 0; text-align: left; font-weight: normal }}
td:last-child {{ text-align: right; font-variant-numeric: tabular-nums }}
p.quiet {{ color: #667085 }}
</style>
<h1>{title}</h1>
<p class="quiet">{subtitle}</p>
<img alt="{alt}" src="data:image/png;base64,{picture}">
{sections}
<p class="quiet">{note}</p>
</html>
"""


@dataclass(frozen=True)
class AblationSection:
    """What a page says of one part in words and numbers."""

    title: str
    sentences: Sequence[str]
    rows: Sequence[tuple[str, str]]


def ablations_page(
    title: str, subtitle: str, panels: Sequence[AblationPanel], sections: Sequence[AblationSection], note: str = ""
) -> str:
    """One HTML file that fetches nothing: the picture, then every part with its sentences and numbers."""
    stream = io.BytesIO()
    with plain_style():
        draw_ablations("", "", panels).savefig(stream, format="png", dpi=130, metadata={"Software": None})
    return _PAGE.format(
        title=html.escape(printable(title)),
        subtitle=html.escape(printable(subtitle)),
        alt=html.escape(" ".join(f"{panel.title}: {panel.sentence}" for panel in panels), quote=True),
        picture=base64.b64encode(stream.getvalue()).decode("ascii"),
        sections="\n".join(_section(section) for section in sections),
        note=html.escape(printable(note)),
    )


def _section(section: AblationSection) -> str:
    words = "".join(f"<p>{html.escape(printable(sentence))}</p>" for sentence in section.sentences)
    cells = (f"<tr><td>{html.escape(what)}</td><td>{html.escape(value)}</td></tr>" for what, value in section.rows)
    return f"<h2>{html.escape(printable(section.title))}</h2>{words}<table>{''.join(cells)}</table>"

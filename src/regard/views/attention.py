"""Attention weights as figures: every token named, nothing shown on a screen.

A scale goes from 0 to 1 or, where no weight reaches a half, to the largest: attention that is spread out shows too.
Heads share one; their mean has its own, which the words above it say where it ends elsewhere.

    draw_alignment              one large map, as figure 3 of Bahdanau et al. (2014) draws it
    draw_heads                  all heads of a layer, side by side
    draw_alignment_with_heads   the first at the left, the second at the right: a slide
    save_figure                 .png, .svg or .pdf, complete or not at all, the same bytes for the same figure

Everything is measured in inches, from the size of one cell, rightwards and downwards from the first corner.
"""

import itertools
import math
import operator
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.inspection.maps import AttentionMap
from regard.views.figure import QUIET, TEXT, blank_page, frame, label, plain_style, printable, save_figure

__all__ = [
    "AttentionMap",
    "draw_alignment",
    "draw_alignment_with_heads",
    "draw_heads",
    "label",
    "save_figure",
]

PRINTED_FROM = 0.05  # of the scale; a smaller weight is colour only
MOST_PRINTED_CELLS = 200
CAPTION = 0.36  # inches below a panel, for its name
PANEL_GAP = 0.22
SMALLEST_PANEL = 0.6
DIFFUSE_BELOW = 0.5  # where no weight reaches this the scale ends at the largest
LINEAR_UP_TO = 32  # with more columns a weight is spread so thin that a linear scale would look empty

COLOURS = LinearSegmentedColormap.from_list(
    "regard", ["#f5f7fb", "#c8d6ee", "#8aa8db", "#4a74c2", "#234798", "#0e2058"]
)


@dataclass(frozen=True)
class _Cell:
    """The size of one cell of a map, in inches, and of the type beside it, in points."""

    width: float
    height: float
    type_size: float

    @classmethod
    def fitting(cls, map: AttentionMap, within: float, largest: float, type_size: float = 13.0) -> "_Cell":
        """Square cells that fit `within` inches; only a map far longer than wide has oblong ones."""
        rows, columns = len(map.rows), len(map.columns)
        side = min(largest, within / rows, within / columns)
        width = min(within / columns, max(side, 0.25))
        height = min(within / rows, max(side, 0.25))
        return cls(width, height, float(np.clip(min(width, height) * 72 * 0.55, 8, type_size)))

    def times(self, factor: float) -> "_Cell":
        """The same cell, larger or smaller."""
        return _Cell(self.width * factor, self.height * factor, self.type_size)

    def every(self, room: float) -> int:
        """How many cells share one tick, when a cell gives `room` inches to its label."""
        needed = self.type_size * 1.2 / 72 / room - 1e-9
        powers = itertools.accumulate(itertools.repeat(10), operator.mul, initial=1)
        return next(step * power for power in powers for step in (1, 2, 5) if step * power >= needed)


def draw_alignment(map: AttentionMap, note: str = "") -> Figure:
    """One large map: the mean over the heads, with the weights printed in the cells where they fit."""
    with plain_style():
        figure = blank_page()
        width, height = _draw_mean(figure, map, _Cell.fitting(map, within=9.0, largest=0.85))
        _add_colour_bar(figure, _mean(map)[None], left=width + 0.3, height=height)
        frame(figure, map.title, _heads_in_words(map), note)
        return figure


def draw_heads(map: AttentionMap) -> Figure:
    """Every head of a layer as a small map, on one colour scale; the outer panels name the tokens."""
    with plain_style():
        figure = blank_page()
        cell = _Cell.fitting(map, within=2.8, largest=0.42, type_size=11.0)
        grid = _grid(map, cell, wide=1.6)
        width, height = _draw_panels(figure, map, cell, grid, named=True)
        _add_colour_bar(figure, map.weights, left=width + 0.3, height=height)
        frame(figure, map.title, "", "")
        return figure


def draw_alignment_with_heads(map: AttentionMap, note: str = "") -> Figure:
    """The mean over the heads, large, and beside it the heads it is the mean of, which share a colour scale."""
    if len(map.weights) == 1:
        return draw_alignment(map, note)
    with plain_style():
        figure = blank_page()
        large = _Cell.fitting(map, within=7.0, largest=0.85)
        width, height = _draw_mean(figure, map, large)
        right = _draw_panels_around(figure, map, large, width, height)
        _add_colour_bar(figure, map.weights, left=right + 0.3, height=height)
        end = _end(_scale(_mean(map)))
        other = f", its darkest cell {end:.2g}; the scale at the right is the heads'"
        frame(figure, map.title, _heads_in_words(map) + (other if end < _end(_scale(map.weights)) else ""), note)
        return figure


def _draw_mean(figure: Figure, map: AttentionMap, cell: _Cell) -> tuple[float, float]:
    """The mean over the heads with its upper left corner at 0, 0; returns its width and height."""
    mean = _mean(map)
    scale = _scale(mean)
    axes = _draw_map(figure, mean, cell, scale, left=0.0, top=0.0)
    _name_columns(axes, map, cell)
    _name_rows(axes, map, cell)
    if mean.size <= MOST_PRINTED_CELLS and min(cell.width, cell.height) >= 0.4:
        _print_values(axes, mean, scale, size=min(cell.type_size, 12 * cell.width / 0.6))
    return mean.shape[1] * cell.width, mean.shape[0] * cell.height


def _draw_panels_around(figure: Figure, map: AttentionMap, large: _Cell, width: float, height: float) -> float:
    """The heads at the right of the large map, as tall all together; below it where it is too flat."""
    heads = len(map.weights)
    down = max(min(_grid(map, large, wide=0.75)[1], int(height / (SMALLEST_PANEL + CAPTION))), 1)
    across = math.ceil(heads / down)
    factor = (height / down - CAPTION) / height
    if factor * height >= SMALLEST_PANEL and across * (factor * width + PANEL_GAP) <= max(width, 8.0):
        return _draw_panels(figure, map, large.times(factor), (across, down), left=width + 0.7)[0]
    across = math.ceil(math.sqrt(heads / 2))
    panel = max((width + PANEL_GAP) / across - PANEL_GAP, SMALLEST_PANEL)
    grid = across, math.ceil(heads / across)
    return max(width, _draw_panels(figure, map, large.times(panel / width), grid, top=height + 0.5)[0])


def _draw_panels(
    figure: Figure,
    map: AttentionMap,
    cell: _Cell,
    grid: tuple[int, int],
    *,
    left: float = 0.0,
    top: float = 0.0,
    named: bool = False,
) -> tuple[float, float]:
    """The heads in rows from `left`, `top`; returns where they end at the right and at the bottom."""
    across, down = grid
    width, height = len(map.columns) * cell.width, len(map.rows) * cell.height
    pitch = max(width, SMALLEST_PANEL) + PANEL_GAP  # the names below narrow panels need room too
    scale = _scale(map.weights)
    for head, weights in enumerate(map.weights):
        row, column = divmod(head, across)
        x, y = left + column * pitch, top + row * (height + CAPTION)
        axes = _draw_map(figure, weights, cell, scale, left=x, top=y)
        axes.set_title(f"head {head}", y=0.0, pad=-5.0, va="top", size=10, color=QUIET)
        if named and row == 0:
            _name_columns(axes, map, cell)
        if named and column == 0:
            _name_rows(axes, map, cell)
    return left + (across - 1) * pitch + width, top + down * (height + CAPTION)


def _grid(map: AttentionMap, cell: _Cell, wide: float) -> tuple[int, int]:
    """How many panels across and down: few holes, and all together about `wide` times as wide as tall."""
    heads = len(map.weights)
    shape = len(map.columns) * cell.width / (len(map.rows) * cell.height)

    def ugliness(across: int) -> float:
        down = math.ceil(heads / across)
        holes = across * down - heads
        return 0.5 * holes + abs(math.log(shape * across / down / wide))

    across = min(range(1, heads + 1), key=ugliness)
    return across, math.ceil(heads / across)


def _draw_map(figure: Figure, weights: NDArray[Any], cell: _Cell, scale: Normalize, *, left: float, top: float) -> Axes:
    """One heat map without words, its upper left corner `top` inches below 0."""
    rows, columns = weights.shape
    width, height = columns * cell.width, rows * cell.height
    axes = figure.add_axes((left, -top - height, width, height))
    axes.imshow(weights, cmap=COLOURS, norm=scale, aspect="auto")
    axes.tick_params(which="both", length=0, pad=4, labelsize=cell.type_size, labelcolor=TEXT)
    axes.set_xticks([])
    axes.set_yticks([])
    if min(cell.width, cell.height) >= 0.12:  # a line between cells, while there is room for one
        axes.set_xticks(np.arange(0.5, columns - 1), minor=True)
        axes.set_yticks(np.arange(0.5, rows - 1), minor=True)
        axes.grid(which="minor", color="white", linewidth=min(2.0, 4.0 * min(cell.width, cell.height)))
    return axes


def _name_columns(axes: Axes, map: AttentionMap, cell: _Cell) -> None:
    """The attended tokens along the top: level where they fit, else slanted, upright when there are many."""
    names = [label(token) for token in map.columns]
    level = max(_width(name, cell.type_size) for name in names) <= 0.92 * cell.width
    angle = 0 if level else 45 if len(names) <= 16 else 90
    at = range(0, len(names), 1 if level else cell.every(cell.width))
    shown = [names[place] if at.step == 1 else f"{place}  {names[place]}" for place in at]
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set_xticks(list(at), labels=shown, rotation=angle, rotation_mode="anchor", parse_math=False)
    axes.tick_params(axis="x", pad=4 if level else 7)
    for text in axes.get_xticklabels():
        text.set_horizontalalignment("center" if level else "left")
        text.set_verticalalignment("bottom" if level else "center")
    axes.set_xlabel(printable(map.columns_axis), size=10, color=QUIET, labelpad=8)


def _name_rows(axes: Axes, map: AttentionMap, cell: _Cell) -> None:
    """The attending tokens down the left side."""
    at = range(0, len(map.rows), cell.every(cell.height))
    names = [label(map.rows[place]) for place in at]
    shown = names if at.step == 1 else [f"{name}  {place}" for place, name in zip(at, names, strict=True)]
    axes.set_yticks(list(at), labels=shown, parse_math=False)
    axes.set_ylabel(printable(map.rows_axis), size=10, color=QUIET, labelpad=8)


def _print_values(axes: Axes, weights: NDArray[Any], scale: Normalize, size: float) -> None:
    """The numbers in the cells, light on dark and dark on light; the strongest of each row in bold."""
    colours = COLOURS(scale(weights))
    end = _end(scale)
    digits = 2 if end > 0.1 else 3
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= PRINTED_FROM * end:
            strongest = column == weights[row].argmax()
            axes.text(
                column,
                row,
                f"{weight:.{digits}f}",
                size=size,
                weight="bold" if strongest else "normal",
                color=_readable_on(colours[row, column]),
                ha="center",
                va="center_baseline",
            )


def _readable_on(background: NDArray[Any]) -> str:
    """White or black, whichever contrasts more with a colour (relative luminance as WCAG 2 defines it)."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in background[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _mean(map: AttentionMap) -> NDArray[Any]:
    mean: NDArray[Any] = map.weights.mean(axis=0, dtype=np.float64)
    return mean


def _scale(weights: NDArray[Any]) -> Normalize:
    """Weights as colours, to 1 or to the largest; by their square root in a long row, where weights of 0.01 matter."""
    most = float(weights.max())
    end = most if 0 < most < DIFFUSE_BELOW else 1.0
    return Normalize(0.0, end) if weights.shape[-1] <= LINEAR_UP_TO else PowerNorm(0.5, 0.0, end)


def _end(scale: Normalize) -> float:
    """The largest weight that has a colour of its own."""
    return float(scale.vmax or 1.0)


def _add_colour_bar(figure: Figure, weights: NDArray[Any], *, left: float, height: float) -> None:
    """The scale beside a map of this height; arrow heads for weights beyond 0 or 1 (an approximation's)."""
    height = min(max(height, 2.0), 3.0)
    scale = _scale(weights)
    below, above = bool(weights.min() < -1e-3), bool(weights.max() > 1 + 1e-3)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    axes = figure.add_axes((left, -height, 0.14, height))
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=axes, extend=extend[below, above])
    linear = type(scale) is Normalize
    ticks = [0, 0.25, 0.5, 0.75, 1] if linear else [0, 0.05, 0.2, 0.5, 1]
    end = _end(scale)
    bar.set_ticks([end * tick for tick in ticks])
    bar.ax.yaxis.set_major_formatter("{x:.4g}" if end == 1 else "{x:.2g}")
    bar.ax.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    bar.outline.set_visible(False)
    lines = ["attention weight"] if linear else ["attention weight", "(square-root scale)"]
    lines += [] if end == 1 else [f"(scale ends at the largest, {end:.2g})"]
    bar.set_label("\n".join(lines), size=10, color=QUIET, labelpad=8)


def _heads_in_words(map: AttentionMap) -> str:
    heads = len(map.weights)
    return f"mean of {heads} heads" if heads > 1 else ""


def _width(text: str, size: float) -> float:
    """About how many inches a text takes."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return (len(text) * 0.64 + wide * 0.4) * size / 72

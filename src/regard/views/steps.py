"""The four steps of scaled dot-product attention, with one token's numbers in one head (Vaswani et al. 2017, eq. 1).

    scores q·k   →   divide by √d (and add a bias)   →   softmax over what may be seen   →   weighted sum of the values

`steps_text` is a table for a terminal, `draw_steps` a slide. Both show every key, or the 12 of the largest weights and
what the others come to together. A record whose numbers do not follow from each other is refused: it teaches nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.cells import cell_len

from regard.errors import InputError
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, label, plain_style

MOST_KEYS = 12
MOST_NUMBERS = 16
"""So many numbers of an output vector are drawn, half as many are printed."""
TOLERANCE = 1e-3

ROW, PANEL, GAP, NUMBER = 0.4, 2.0, 0.42, 0.62  # inches
BAR, BAR_BELOW_ZERO = "#4a74c2", "#c77b4f"
SIGNED = LinearSegmentedColormap.from_list("regard signed", ["#a4471a", "#e8b596", "#f5f7fb", "#8aa8db", "#234798"])


@dataclass(frozen=True, eq=False)
class FourSteps:
    """One row of one head: query `[d]`, key `[keys, d]`, values `[keys, d_v]`, and every number in between.

    `raw` is q·k, or what another similarity gives where it is not `dotted`; `raw * scale + bias` where `allowed`, −∞
    elsewhere, is what softmax turns into `weights`.
    """

    token: str
    keys: tuple[str, ...]
    query: NDArray[Any]
    key: NDArray[Any]
    raw: NDArray[Any]
    scale: float
    bias: NDArray[Any]
    allowed: NDArray[Any]
    weights: NDArray[Any]
    values: NDArray[Any]
    output: NDArray[Any]
    title: str
    dotted: bool = True

    def __post_init__(self) -> None:
        self._check_shapes()
        weights = self.weights.astype(np.float64)
        if weights.any() and abs(weights.sum() - 1) > TOLERANCE:
            raise InputError(
                f"the weights of {self.token!r} sum to {weights.sum():.4f}, not to 1",
                "pass one whole row of a softmax, or all zeros for a token that may look at nothing",
            )
        if self.dotted:
            self._check_step("scores q·k", self.raw, self.key.astype(np.float64) @ self.query, relative=1e-2)
        self._check_step("softmax weights", weights, self.exponentials / max(self.exponentials.sum(), 1e-300))
        self._check_step("output", self.output, weights @ self.values.astype(np.float64), relative=1e-2)

    @property
    def scaled(self) -> NDArray[Any]:
        """The second step: scores times the scale, plus the bias, −∞ where the key may not be seen."""
        scores = self.raw.astype(np.float64) * self.scale + self.bias
        return np.where(self.allowed, scores, -np.inf)

    @property
    def exponentials(self) -> NDArray[Any]:
        """`exp(s − largest s)`: what the weights are in proportion to."""
        if not self.allowed.any():
            return np.zeros(len(self.keys))
        exponentials: NDArray[Any] = np.exp(self.scaled - self.scaled.max())
        return exponentials

    @property
    def shown(self) -> list[int]:
        """The keys to show: all in their order if they are few, else those of the largest weights, largest first."""
        count = len(self.keys)
        if count <= MOST_KEYS:
            return list(range(count))
        return [int(at) for at in np.argsort(-self.weights, kind="stable")[:MOST_KEYS]]

    def _check_shapes(self) -> None:
        keys, width = len(self.keys), len(self.query)
        wanted = {"query": (width,), "key": (keys, width), "output": (self.values.shape[-1],)}
        wanted |= dict.fromkeys(("raw", "bias", "allowed", "weights"), (keys,))
        wanted["values"] = (keys, self.values.shape[-1])
        for name, shape in wanted.items():
            found = getattr(self, name)
            if found.shape != shape or 0 in shape:
                raise InputError(
                    f"{name} of shape {list(found.shape)} for {keys} keys of width {width}",
                    f"pass {name} as {list(shape)}, with at least one key",
                )
            if not np.isfinite(found).all():
                raise InputError(
                    f"{name} holds numbers that are not finite",
                    "look where they come from; of a key that may not be seen say so in `allowed`",
                )
        if self.allowed.dtype != np.bool_:
            raise InputError(
                f"`allowed` holds {self.allowed.dtype}", "pass True for a key that may be seen, else False"
            )

    def _check_step(self, name: str, found: NDArray[Any], follows: NDArray[Any], relative: float = 0.0) -> None:
        """Numbers must follow from the step before, up to rounding (which a half-precision run has much of)."""
        apart = float(np.abs(found - follows).max())
        if apart > TOLERANCE + relative * float(np.abs(follows).max()):
            raise InputError(
                f"the {name} of {self.token!r} differ by {apart:.4g} from what the step before gives",
                "pass the query, keys, mask and bias of the same layer, head and row",
            )


def steps_text(record: FourSteps) -> str:
    """The steps as a table in plain text, numbers to three decimals, with the sums that prove them."""
    biased = bool(record.bias.any())
    masked = not bool(record.allowed.all())
    score = "q·k" if record.dotted else "score"
    heading = ["key", score, _scaling(record), *(["+ bias"] if biased else []), *(["mask"] if masked else [])]
    rows = [[*heading, "exp", "weight"]]
    rows += [_table_row(record, at, biased, masked) for at in record.shown]
    blank = [""] * (len(heading) - 1)
    others = _others(record)
    if others:
        exponentials, weight = record.exponentials[others].sum(), record.weights[others].sum()
        rows.append([f"{len(others)} others", *blank, f"{exponentials:.3f}", f"{weight:.3f}"])
    rows.append(["sum", *blank, f"{record.exponentials.sum():.3f}", f"{record.weights.sum():.3f}"])
    first = record.output[: MOST_NUMBERS // 2]
    more = f" … ({len(record.output)} numbers)" if len(record.output) > len(first) else ""
    return "\n".join(
        [
            f"{record.title}: what {label(record.token)} attends to",
            "",
            *_aligned(rows),
            "",
            "exp is exp(s − largest s) of the score s before it; weight = exp ÷ its sum",
            f"output = Σ weight × value = {'  '.join(f'{number:.3f}' for number in first)}{more}",
        ]
    )


def draw_steps(record: FourSteps) -> Figure:
    """The steps from left to right: scores, scaled, softmax, weighted sum; one row for every key."""
    with plain_style():
        figure = blank_page()
        shown, others = record.shown, _others(record)
        scaled = record.raw.astype(np.float64) * record.scale + record.bias
        names = ["1  scores", "2  scaled", "3  softmax"]
        score = "query · key" if record.dotted else "of query and key"
        formulas = [score, _scaling(record) + (" + bias" if record.bias.any() else ""), "exp(s) ÷ Σ exp(s)"]
        steps = [record.raw[shown], scaled[shown], record.weights[shown]]
        if others:
            steps[2] = np.append(steps[2], record.weights[others].sum())
        for place, (name, formula, numbers) in enumerate(zip(names, formulas, steps, strict=True)):
            axes = _panel(figure, place * (PANEL + GAP), PANEL, len(shown) + bool(others))
            _head(axes, name, formula)
            hidden = ~record.allowed[shown] if place else np.zeros(len(shown), dtype=bool)
            _bars(axes, numbers, hidden, from_zero_to_one=place == 2)
            if place == 0:
                _name_keys(axes, record, shown, len(others))
        _weighted_sum(figure, record, left=3 * (PANEL + GAP))
        frame(figure, record.title, f"what {label(record.token)} attends to", "")
        return figure


def _others(record: FourSteps) -> list[int]:
    """The keys that are not shown one by one."""
    return sorted(set(range(len(record.keys))) - set(record.shown))


def _scaling(record: FourSteps) -> str:
    width = len(record.query)
    return f"÷ √{width}" if np.isclose(record.scale, width**-0.5, rtol=1e-3) else f"× {record.scale:.3g}"


def _table_row(record: FourSteps, at: int, biased: bool, masked: bool) -> list[str]:
    """One key's numbers, a word where it is masked."""
    name = label(record.keys[at]) if len(record.keys) <= MOST_KEYS else f"{label(record.keys[at])}  {at}"
    scaled = float(record.raw[at]) * record.scale
    row = [name, f"{record.raw[at]:.3f}", f"{scaled:.3f}"]
    if biased:
        row.append(f"{scaled + record.bias[at]:.3f}")
    if masked:
        row.append("" if record.allowed[at] else "masked")
    return [*row, f"{record.exponentials[at]:.3f}", f"{record.weights[at]:.3f}"]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Names to the left, numbers to the right, a rule below the heading and above the sum."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *numbers = (" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0] + first, *(blank + cell for blank, cell in zip(numbers, row[1:], strict=True))]))
    rule = "─" * cell_len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def _panel(figure: Figure, left: float, width: float, rows: int, top: float = 0.0) -> Axes:
    """A panel of some rows without a frame; row 0 is at its top."""
    height = rows * ROW
    axes = figure.add_axes((left, -top - height, width, height))
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=12, labelcolor=TEXT, pad=6)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _head(axes: Axes, name: str, formula: str) -> None:
    axes.set_title(name, loc="left", size=13, weight="bold", color=TEXT, pad=26)
    axes.annotate(formula, (0, 1), (0, 8), "axes fraction", "offset points", size=11, color=QUIET, va="bottom")


def _bars(axes: Axes, numbers: NDArray[Any], hidden: NDArray[Any], *, from_zero_to_one: bool) -> None:
    """A bar and its number for each row; a masked one has a word in place of both."""
    seen = np.append(~hidden, np.ones(len(numbers) - len(hidden), dtype=bool))
    drawn = np.where(seen, numbers, 0.0)
    low, high = (0.0, 1.0) if from_zero_to_one else (min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0))
    sides = (low < 0) + (high > 0)
    room = NUMBER * max(high - low, 1e-9) / (PANEL - sides * NUMBER)  # for the numbers beside the bars
    axes.set_xlim(low - (room if low < 0 else 0), high + (room if high > 0 else 0) or 1.0)
    axes.axvline(0, color=LINE, linewidth=1, zorder=0)
    for row, number in enumerate(drawn):
        if not seen[row]:
            axes.text(0.02 * room, row, " masked", size=10, color=QUIET, style="italic", va="center_baseline")
            continue
        colour = BAR if number >= 0 else BAR_BELOW_ZERO
        axes.barh(row, number, height=0.62, color=colour)
        side = "left" if number >= 0 else "right"
        text = f" {number:.2f} ".replace("-", "−")
        axes.text(number, row, text, size=11, color=TEXT, va="center_baseline", ha=side)


def _name_keys(axes: Axes, record: FourSteps, shown: list[int], others: int) -> None:
    """The keys at the left, with their places where they are not in order."""
    names = [label(record.keys[at]) + ("" if not others else f"  {at}") for at in shown]
    if others:
        names.append(f"{others} others")
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)


def _weighted_sum(figure: Figure, record: FourSteps, left: float) -> None:
    """Each key's weight times its value, one cell a number, and below it their sum: the output."""
    numbers = min(len(record.output), MOST_NUMBERS)
    products = record.weights[:, None].astype(np.float64) * record.values
    rows, others = [products[at] for at in record.shown], _others(record)
    if others:
        rows.append(products[others].sum(axis=0))
    table, output = np.stack(rows)[:, :numbers], record.output[None, :numbers].astype(np.float64)
    largest = max(float(np.abs(table).max()), float(np.abs(output).max()), 1e-9)
    width = max(numbers * 0.2, PANEL)
    scale = Normalize(-largest, largest)
    part = f"the first {numbers} of {len(record.output)} numbers" if numbers < len(record.output) else ""
    for place, cells in enumerate((table, output)):
        axes = _panel(figure, left, width, len(cells), top=place * (len(table) * ROW + 0.3))
        axes.set_xlim(-0.5, numbers - 0.5)
        axes.imshow(cells, cmap=SIGNED, norm=scale, aspect="auto")
        axes.set_xticks(np.arange(0.5, numbers - 1), minor=True)
        axes.set_yticks(np.arange(0.5, len(cells) - 1), minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="minor", length=0)
        if place == 0:
            _head(axes, "4  weighted sum", "weight × value" + (f", {part}" if part else ""))
        else:
            axes.set_yticks([0], labels=["output"])
    bar = figure.colorbar(
        ScalarMappable(scale, SIGNED),
        cax=figure.add_axes((left + width + 0.2, -len(table) * ROW, 0.12, len(table) * ROW)),
    )
    bar.ax.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    bar.outline.set_visible(False)

"""How trainings went: what metrics.jsonl holds of one or several runs, as curves over the steps.

Loss has one panel, in training and validation; every other figure one of its own. A long run's steps are put together,
so that a curve has a few hundred points: means of losses and rates, medians of speeds, which have outliers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.errors import InputError
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, plain_style, printable

MOST_POINTS = 300
MOST_RUNS = 12
ACROSS, WIDTH, HEIGHT, GAP = 2, 5.0, 2.7, 0.85  # panels in a row; inches
COLOURS = (
    *("#234798", "#d1600f", "#1f8a5b", "#a3228f", "#7a6a00", "#0f8ea8", "#b3202c", "#5b4fd0"),
    *("#5c3a1e", "#e08fb0", "#8fb339", "#4a5560", "#e0b400", "#00c2b2"),
)
NAMES = {"rate": "learning rate", "tokens_per_second": "tokens per second"}
HELD_OUT = "validation_"


@dataclass(frozen=True)
class TrainingRun:
    """A run's name and its lines of metrics.jsonl, each with its step."""

    name: str
    lines: Sequence[Mapping[str, float]]

    def curve(self, key: str) -> tuple[Float64[np.ndarray, "points"], Float64[np.ndarray, "points"]]:
        """The steps that have a figure, and the figure there; several steps together where there are many."""
        found = [(line["step"], line[key]) for line in self.lines if key in line]
        steps, values = np.array(found, dtype=np.float64).reshape(-1, 2).T
        together = -(-len(found) // MOST_POINTS)
        if together <= 1 or key.startswith(HELD_OUT):
            return steps, values
        begins = range(0, len(found), together)
        middle = np.median if key == "tokens_per_second" else np.mean
        points = [float(middle(values[begin : begin + together])) for begin in begins]
        return np.array([steps[begin : begin + together].mean() for begin in begins]), np.array(points)


def draw_runs(runs: Sequence[TrainingRun]) -> Figure:
    """A panel for the loss and one for every other figure that a run has, a colour for each run."""
    if not 1 <= len(runs) <= MOST_RUNS:
        raise InputError(f"{len(runs)} runs cannot be told apart in one picture", f"give 1 to {MOST_RUNS}")
    with plain_style():
        figure = blank_page()
        panels = _panels(runs)
        for number, keys in enumerate(panels):
            row, column = divmod(number, ACROSS)
            place = (column * (WIDTH + GAP), -row * (HEIGHT + GAP) - HEIGHT, WIDTH, HEIGHT)
            _draw_panel(figure.add_axes(place), runs, keys)
        figure.axes[0].legend(frameon=False, fontsize=9, labelcolor=TEXT)
        title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
        together = max(-(-len(run.lines) // MOST_POINTS) for run in runs)
        note = f"Each point of a curve is up to {together} steps." if together > 1 else ""
        frame(figure, printable(title), "", note)
        return figure


def _panels(runs: Sequence[TrainingRun]) -> list[list[str]]:
    """The figures of each panel: first the losses, then the metrics of validation, then all else."""
    keys = list(dict.fromkeys(key for run in runs for line in run.lines for key in line if key != "step"))
    losses = [key for key in ("loss", HELD_OUT + "loss") if key in keys]
    others = [key for key in keys if key not in losses]
    others.sort(key=lambda key: not key.startswith(HELD_OUT))  # stable: else in the file's order
    return [losses, *([key] for key in others)] if losses else [[key] for key in others]


def _draw_panel(axes: Axes, runs: Sequence[TrainingRun], keys: list[str]) -> None:
    for number, run in enumerate(runs):
        for key in keys:
            steps, values = run.curve(key)
            held_out = key.startswith(HELD_OUT)
            name = f"{run.name}, validation" if held_out and len(keys) > 1 else run.name
            axes.plot(
                steps,
                values,
                color=COLOURS[number % len(COLOURS)],
                linestyle=("--" if held_out else "-") if number < len(COLOURS) else ":",
                marker="o" if held_out or len(steps) == 1 else None,
                markersize=3.5,
                linewidth=1.4,
                label=printable(name),
            )
    names = [NAMES.get(key, key.replace("_", " ")) for key in keys]
    axes.set_title(names[0], loc="left", size=11, color=TEXT)
    axes.set_xlabel("step", size=9, color=QUIET)
    axes.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    axes.grid(color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

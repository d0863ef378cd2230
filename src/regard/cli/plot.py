"""`regard plot`: how trainings went, as a picture."""

import os
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.look import refuse_existing
from regard.cli.output import to_json


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, as `regard train` writes them.")],
    to: Annotated[Path, typer.Option(help="A picture, .png, .svg or .pdf.")] = Path("training.png"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: the last figures of every run.")] = False,
) -> None:
    """Plot training runs: loss, validation loss, learning rate and speed of one run or several, over the steps.

    Example: `regard plot runs/dates runs/numbers --to training.png`
    """
    from regard.training.journal import read_metrics
    from regard.views.figure import check_format, draw_to
    from regard.views.training_curves import TrainingRun, draw_runs

    check_format(to)
    refuse_existing(to, force)
    found = [TrainingRun(name, read_metrics(folder)) for name, folder in zip(_names(runs), runs, strict=True)]
    draw_to(to, lambda: draw_runs(found))
    if as_json:
        last = {run.name: {key: value for line in run.lines for key, value in line.items()} for run in found}
        typer.echo(to_json({"file": str(to), "runs": last}))
        return
    steps = ", ".join(f"{run.name} ({run.lines[-1]['step']:.0f} steps)" for run in found)
    typer.echo(f"{to} shows {steps}")


def _names(runs: list[Path]) -> list[str]:
    """What tells the folders apart: their own names, or their paths where two have the same."""
    short = [Path(os.path.abspath(run)).name for run in runs]
    return short if len(set(short)) == len(short) else [str(run) for run in runs]

"""`regard train`: a recipe in, a model folder out."""

from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from regard.cli.options import Quiet
from regard.cli.output import to_json


class Track(StrEnum):
    """What else keeps a run's figures."""

    TENSORBOARD = "tensorboard"


def train(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped recipe.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key, such as training.steps=100; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The model folder; runs/RECIPE if absent.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's last state.")] = False,
    track: Annotated[Track | None, typer.Option(help="Keep the figures for this as well, in RUN/tensorboard.")] = None,
    quiet: Quiet = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda: sets training.device.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16: sets training.precision.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object when it is done.")] = False,
) -> None:
    """Train a model from a recipe.

    Ctrl-C finishes the step, saves, and says how to go on; a second one stops at once. With --resume, --set may change
    how a run goes on (training.steps, training.learning_rate …), not what it is.

    Example: `regard train dates --set training.steps=500 --out runs/dates`
    """
    from regard import api
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.training.progress import ProgressBar, console
    from regard.training.resume import latest

    given = {"training.device": device, "training.precision": precision, "training.track": track and track.value}
    changes = [*(changes or []), *(f"{key}={value}" for key, value in given.items() if value is not None)]
    keep_freed_memory()
    begun = perf_counter()
    folder = out or Path("runs") / Path(recipe).stem
    with listening() as interrupt, ProgressBar(folder, console(quiet)) as listener:
        api.train(recipe, folder, changes=changes, resume=resume, listener=listener, interrupt=interrupt)
    if as_json:
        progress = latest(folder)
        record = {"folder": str(folder), "steps": progress.step, f"validation_{progress.metric}": progress.best}
        typer.echo(to_json(record | {"seconds": round(perf_counter() - begun, 1)}))
        return
    typer.echo(f"{folder} holds the model; ask it with: regard run {folder}")

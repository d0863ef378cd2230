"""`regard train`: a recipe and files in, a model folder out."""

from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from regard.cli.options import Plugin, Quiet
from regard.cli.output import to_json
from regard.errors import InputError

NO_RECIPE = "there is none; `regard list recipes` names those that are shipped"


class TrainCommand(TyperCommand):
    """A command whose `--data` takes all that follows it up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--data a b` becomes `--data a --data b`, which is what click reads."""
        written: list[str] = []
        inside = False
        for place, arg in enumerate(args):
            if arg == "--":
                written += args[place:]
                break
            if arg.startswith("-") and arg != "-":
                inside = arg == "--data" or arg.startswith("--data=")
            elif inside and written[-1] != "--data":
                written.append("--data")
            written.append(arg)
        return super().parse_args(ctx, written)


class Track(StrEnum):
    """What else keeps a run's figures."""

    TENSORBOARD = "tensorboard"


Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="FILE [FILE]",
        help="Your own files in place of the recipe's data: one (text, TSV, CSV, JSONL), or SOURCE TARGET with as "
        "many lines each. Some of it is held out to validate on.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change one key, such as training.steps=100; without a value (data.valid=) the key goes back to its "
        "default. May be repeated. `regard list keys` has them all.",
    ),
]


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A TOML file, or the name of a shipped recipe; with --resume, the folder's own if absent."),
    ] = None,
    data: Data = None,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="The model folder; runs/RECIPE if absent.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the folder's last state; nothing else need be said again.")
    ] = False,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print every key with its meaning, sizes and an estimate of time; train nothing."),
    ] = False,
    track: Annotated[Track | None, typer.Option(help="Keep the figures for this as well, in RUN/tensorboard.")] = None,
    quiet: Quiet = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda: sets training.device.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16: sets training.precision.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object when it is done.")] = False,
    plugin: Plugin = None,
) -> None:
    """Train a model from a recipe, on its data or on yours.

    Ctrl-C finishes the step, saves, and says how to go on; a second one stops at once. With --resume, --set may change
    how a run goes on (training.steps, training.learning_rate …), not what it is.

    Example: `regard train translation --data english.txt french.txt`, `regard train dates --set training.steps=500`
    """
    from regard import api
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.training.progress import ProgressBar, console
    from regard.training.resume import latest

    given = {"training.device": device, "training.precision": precision, "training.track": track and track.value}
    changes = [*(changes or []), *(f"{key}={value}" for key, value in given.items() if value is not None)]
    keep_freed_memory()
    if show:
        _show(recipe, data, changes, as_json, "--resume" if resume else "--out" if out is not None else None)
        return
    begun = perf_counter()
    folder = _folder(recipe, out, resume)
    with listening() as interrupt, ProgressBar(folder, console(quiet)) as listener:
        api.train(recipe, folder, changes=changes, data=data, resume=resume, listener=listener, interrupt=interrupt)
    if as_json:
        progress = latest(folder)
        record = {"folder": str(folder), "steps": progress.step, f"validation_{progress.metric}": progress.best}
        typer.echo(to_json(record | {"seconds": round(perf_counter() - begun, 1)}))
        return
    typer.echo(f"{folder} holds the model; ask it with: regard run {folder}")


def _folder(recipe: str | None, out: Path | None, resume: bool) -> Path:
    if out is not None:
        return out
    if recipe is None:
        if resume:
            raise InputError("--resume needs the folder of a run", "give it with --out")
        raise typer.BadParameter(NO_RECIPE, param_hint="RECIPE")
    return Path("runs") / Path(recipe).stem


def _show(
    recipe: str | None, data: list[str] | None, changes: list[str] | None, as_json: bool, useless: str | None
) -> None:
    """TOML that could be trained from, with what is known besides as comments after it."""
    from regard import api
    from regard.tasks.keys import explained

    if useless is not None:
        raise InputError(f"{useless} has no effect with --show, which writes nothing", f"leave {useless} out")
    if recipe is None:
        raise typer.BadParameter(NO_RECIPE, param_hint="RECIPE")
    found = api.preview(recipe, changes=changes, data=data)
    if as_json:
        typer.echo(to_json(found.record()))
        return
    typer.echo(explained(found.recipe))
    for sentence in found.sentences():
        typer.echo(f"# {sentence}")

"""`regard train`: a recipe in, a model folder out."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped recipe.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key, such as training.steps=100; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The model folder; runs/RECIPE if absent.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's last state.")] = False,
) -> None:
    """Train a model from a recipe.

    Example: `regard train dates --set training.steps=500 --out runs/dates`
    """
    from regard import api
    from regard.cli.progress import ProgressBar
    from regard.training.memory import keep_freed_memory

    keep_freed_memory()
    folder = out or Path("runs") / Path(recipe).stem
    with ProgressBar() as listener:
        api.train(recipe, folder, changes=changes, resume=resume, listener=listener)
    typer.echo(f"{folder} holds the model; ask it with: regard run {folder}")

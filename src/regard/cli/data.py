"""`regard data show`: what a recipe reads, before anything is trained."""

from typing import Annotated

import typer

from regard.cli.options import Plugin
from regard.cli.output import to_json
from regard.cli.train import TrainCommand

app = typer.Typer(no_args_is_help=True, help="The data of a recipe.")


@app.callback()
def _group() -> None:
    """The data of a recipe."""


@app.command(cls=TrainCommand)
def show(
    recipe: Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped recipe.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Your own files in place of the recipe's: one, or SOURCE TARGET.", metavar="FILE..."),
    ] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: table.key=value.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Print what a recipe reads: examples in each split, their lengths in tokens, some of them, and what is cut.

    Nothing is trained but the tokenizer, and nothing is written.

    Example: `regard data show classify --data reviews.csv`
    """
    from regard.api.data_report import report_data

    found = report_data(recipe, changes=changes, data=data)
    if as_json:
        typer.echo(to_json(found.record()))
    else:
        typer.echo("\n".join(found.sentences()))

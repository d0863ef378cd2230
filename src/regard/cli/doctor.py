"""`regard doctor`: the laws that a correct model obeys, each with the number and what it may be."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Plugin, Precision, Quiet
from regard.cli.output import to_json


def doctor(
    model: Annotated[Path, typer.Argument(help="A model folder, Regard's or Hugging Face's.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="LAW", help="Only this law; may be repeated.")
    ] = None,
    quiet: Quiet = False,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Examine a model: padding, batching, caching, causality, gradients, its file, its tokenizer and more.

    Every law is measured and told with its tolerance. Of a broken one you see the smallest input that breaks it and the
    likely cause; the exit code is then 1.

    Example: `regard doctor runs/demo`, or one law alone: `regard doctor runs/demo --only caching`
    """
    from rich.console import Console

    from regard import api
    from regard.training.progress import console
    from regard.views.checkup import checkup_table

    with console(quiet).status("reading the model") as status:
        found = api.doctor(
            model,
            only=only,
            device=device,
            precision=precision,
            told=lambda law: status.update(f"examining: {law}"),
        )
    if as_json:
        typer.echo(to_json(found.to_dict()))
    else:
        Console(soft_wrap=False).print(checkup_table(found), highlight=False)
    if not found.healthy:
        raise typer.Exit(1)

"""`regard convert`: other libraries' models as Regard's, Regard's as Hugging Face's."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Plugin, adapters
from regard.errors import FileError


class Target(StrEnum):
    """Whose files to write."""

    HUGGINGFACE = "huggingface"
    REGARD = "regard"


def convert(
    source: Annotated[Path, typer.Argument(help="A model folder, Regard's or Hugging Face's, or llama2.c's .bin.")],
    destination: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    to: Annotated[Target, typer.Option(help="Whose files to write.")] = Target.REGARD,
    adapter: Annotated[
        str | None, typer.Option(metavar="NAME=FOLDER", help="An adapter of the model: it is merged into its weights.")
    ] = None,
    plugin: Plugin = None,
) -> None:
    """Read a model from one kind of folder and write it as another.

    What is written for Hugging Face is loaded by `transformers` and by engines that read its files. An adapter, whether
    SOURCE is its folder or --adapter names it, is merged into the weights of its base.

    Example: `regard convert runs/gpt-shakespeare shakespeare-hf --to huggingface`
    """
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise FileError(f"{destination} is not empty", "choose a new folder")
    from regard.api import load
    from regard.interop.writing import write_folder

    model = load(source, "cpu", adapters=adapters(None if adapter is None else [adapter]))
    model = next(iter(model.adapters.values()), model)
    if to == Target.REGARD:
        model.save(destination)
        typer.echo(f"{destination} holds the model; ask it with: regard run {destination}")
        return
    family = write_folder(destination, model)
    typer.echo(f"{destination} holds a {family} model that transformers loads")

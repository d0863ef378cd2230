"""The options that several verbs share."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr, only errors.")]


def _load(paths: list[str] | None) -> list[str] | None:
    from regard.plugins import load_plugin

    for path in paths or []:
        load_plugin(path)
    return paths


Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        callback=_load,
        is_eager=True,
        help="A Python file of yours that registers parts, such as a mechanism. May be repeated.",
    ),
]
"""Loaded while the command line is read, before anything asks for what it registers; a verb does nothing with it."""
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda; auto: a GPU where there is one.")]
Precision = Annotated[
    str, typer.Option("--precision", help="auto, float32, bfloat16 or int8; auto: that of the file's weights.")
]


Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=FOLDER",
        help="Answer through this adapter of the model, which is its base; several may be named, and each answers.",
    ),
]


def adapters(given: list[str] | None) -> dict[str, str]:
    """Folders by name of `--adapter NAME=FOLDER`."""
    found: dict[str, str] = {}
    for one in given or ():
        name, equals, folder = one.partition("=")
        if not (name and equals and folder):
            raise InputError(f"--adapter {one} does not name an adapter", "write it as --adapter NAME=FOLDER")
        if name in found:
            raise InputError(f"two adapters are named {name!r}", "give each a name of its own")
        found[name] = folder
    return found


def where(model: "Model") -> dict[str, str]:
    """On what a model computes and in what numbers, for `--json`."""
    return {"device": str(model.device), "precision": model.precision}

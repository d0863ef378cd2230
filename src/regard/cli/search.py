"""`regard search`: the lines of a file of your own that are nearest in meaning to a query."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Plugin, Precision, where
from regard.cli.output import to_json
from regard.errors import InputError

POOLINGS = ("mean", "first", "max")


def search(
    model: Annotated[Path, typer.Argument(help="A model folder: an encoder, best one that was trained on sentences.")],
    file: Annotated[
        Path, typer.Argument(help="A text, of which each line is looked at, or a table with a text in each row.")
    ],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    top: Annotated[int, typer.Option(min=1, help="So many lines are shown, the nearest first.")] = 10,
    pooling: Annotated[
        str | None, typer.Option(help="What stands for a text: mean, first or max; as the model says if absent.")
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Find the lines that mean what a query means: the cosine of their vectors, and the line's number.

    The file may be of any size: it is read line by line, and nothing of it is kept but the nearest.

    Example: `regard search path/to/MiniLM notes.txt "when is the rent due"`
    """
    if pooling not in (None, *POOLINGS):
        raise InputError(f"--pooling {pooling} is unknown", f"use {', '.join(POOLINGS)}")
    from regard import api
    from regard.api.nearest import lines_of, nearest

    loaded = api.load(model, device, precision)
    found = nearest(loaded, lines_of(file), query, top, pooling)
    notes = list(found.notes)
    if found.cut:
        notes.append(f"{found.cut:,} of {found.lines:,} lines are longer than what the model reads, and were cut there")
    if as_json:
        results = [{"line": one.line, "score": one.score, "text": one.text} for one in found.found]
        record = {"query": query, "lines": found.lines, "cut": found.cut, "results": results, "notes": notes}
        typer.echo(to_json(record | where(loaded)))
        return
    for note in notes:
        print(f"regard: {note}", file=sys.stderr)
    for one in found.found:
        typer.echo(f"{one.score:.4f}\t{one.line}\t{one.text}")

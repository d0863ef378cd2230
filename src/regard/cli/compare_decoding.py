"""`regard compare decoding`: what temperature, top-k, top-p and the width of a beam do to a model's answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.look import refuse_existing
from regard.cli.options import Device, Plugin, Precision, Quiet
from regard.cli.output import to_json
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.compare.decoding import Prompts


def decoding(
    model: Annotated[Path, typer.Argument(help="A model folder; one that writes texts.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="Prompts, a line each (.txt), or examples; the model's held-out data if absent."),
    ] = None,
    prompts: Annotated[int, typer.Option(min=2, help="At most so many prompts.")] = 32,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Length limit of an answer.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of sampling.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder of the table, the picture and the page.")] = Path(
        "runs/compare-decoding"
    ),
    to: Annotated[Path | None, typer.Option(help="Write the figure here as well: .png, .svg, .pdf or .html.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --to write over a file that is there.")] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Turn temperature, top-k, top-p and beam width one at a time, and draw what that does to a model's answers.

    Four panels of curves: likelihood, diversity (distinct-2), repetition, and the task's own figure where answers have
    references; a sentence under each, from this run's numbers. Table, PNG, page and JSON are in the folder.

    Example: `regard compare decoding runs/demo`, or with prompts of your own: `regard compare decoding MODEL lines.txt`
    """
    from regard import api
    from regard.compare.decoding import sweep
    from regard.compare.decoding_page import shown
    from regard.training.progress import MeasuringBar, console

    if to is not None:
        _check(to, force)
    loaded = api.load(model, device, precision)
    _ = loaded.writer  # refuses where no text is written
    with MeasuringBar(console(quiet)) as progress:
        found = sweep(loaded, _prompts(loaded, model, data, prompts), max_new_tokens, seed, progress)
    view = shown(found)
    paths = view.write(out, "decoding")
    if to is not None:
        view.save(to)
        paths.append(to)
    if as_json:
        typer.echo(to_json({**view.record, "files": [str(path) for path in paths]}))
        return
    typer.echo(view.table())
    for panel in view.panels:
        typer.echo(f"\n{panel.title}\n{panel.sentence}")
    typer.echo(f"\n{' '.join(map(str, paths))}")


def _check(to: Path, force: bool) -> None:
    """What cannot be drawn to is refused before anything is decoded."""
    from regard.views.figure import check_format
    from regard.views.html import SUFFIXES, check_html_name

    check_html_name(to) if to.suffix.lower() in SUFFIXES else check_format(to)
    refuse_existing(to, force)


def _prompts(model: "Model", folder: Path, data: list[Path] | None, most: int) -> "Prompts":
    """What is decoded, and what to call it."""
    from regard.compare.decoding import Prompts, beginnings
    from regard.tasks.files import read_by_name
    from regard.tasks.own_data import own_examples

    if data and len(data) == 1 and data[0].suffix == ".txt":
        lines = [line for line in data[0].read_text(encoding="utf-8").splitlines() if line.strip()]
        return Prompts(tuple(lines[:most]), (), str(data[0]))
    if data:
        examples, name = model.task.read(data, read_by_name(model.data, data)), " and ".join(map(str, data))
    elif model.recipe is None or model.recipe.data is None:
        raise InputError(f"{folder} has no data of its own", "give a file of prompts, prompts.txt, one a line")
    else:
        examples, name = own_examples(model.task, model.recipe, None if model.task.continues else most)
    if not model.task.continues:
        return Prompts(tuple(one.source for one in examples[:most]), tuple(examples[:most]), name)
    cut = (paragraph for one in examples for paragraph in one.text.split("\n"))
    return Prompts(beginnings(list(cut), most), (), f"the first words of texts of {name}")

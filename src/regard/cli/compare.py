"""`regard compare`: several trainings side by side, in one table and one figure."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli import compare_ablations, compare_decoding
from regard.cli.look import refuse_existing
from regard.cli.options import Device, Plugin, Quiet
from regard.cli.output import to_json

if TYPE_CHECKING:
    from regard.compare.climb import ClimbListener
    from regard.compare.shown import ComparisonView
    from regard.training.interrupt import Interrupt

app = typer.Typer(
    help="Train several networks and set them side by side: the ladder from RNN to Transformer, or any recipes.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
To = Annotated[Path | None, typer.Option(help="Write the figure here as well: a .png, .svg or .pdf, or a page, .html.")]
Force = Annotated[bool, typer.Option("--force", help="Let --to write over a file that is there.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one key of every recipe, such as training.steps=100. May be repeated."),
]


@app.command()
def history(
    out: Annotated[Path, typer.Option(help="The folder of the rungs and of what is measured.")] = Path("runs/history"),
    to: To = None,
    force: Force = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Climb from the plain RNN over LSTM, GRU and attention to the Transformer, on one task and one budget.

    One figure: exact match against length, the gradient against distance, operations in sequence and time against
    length, and what training takes; a sentence under each, from this run's numbers. Table, PNG, page and JSON are in
    the folder. Ctrl-C keeps what is done, and the same command goes on. At most 20 minutes on two CPU cores.

    Example: `regard compare history`, or `regard compare history --device cuda --out runs/history-gpu`
    """
    from regard.compare.climb import Climb
    from regard.compare.history import history as climb_history
    from regard.compare.history import ladder
    from regard.compare.history_page import shown
    from regard.devices import usable_device

    _refuse(to, force)
    entries = ladder([f"training.device={usable_device(device).type}"])
    with _climbing(quiet) as (listener, interrupt):
        found = climb_history(Climb(out, entries, listener, interrupt))
    _tell(shown(found), out, "history", to, as_json)


@app.command()
def recipes(
    names: Annotated[list[str], typer.Argument(metavar="RECIPE...", help="TOML files, or names of shipped recipes.")],
    over: Annotated[
        list[str] | None,
        typer.Option(help="Train each with several values of a key, such as model.positions=rotary,alibi."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds each is trained with.")] = 1,
    changes: Set = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs and of what is measured.")] = Path("runs/compare"),
    to: To = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Train recipes of one task, or one with several values of a key, and compare them on held-out data.

    Figures are means over the seeds, with the standard deviation where there are several. Table, PNG, page and JSON
    are in the folder. Ctrl-C keeps what is done, and the same command goes on.

    Example: `regard compare recipes copy --over model.positions=rotary,alibi --seeds 3`
    """
    from regard.compare.climb import Climb
    from regard.compare.recipes import compare, contestants
    from regard.compare.recipes_page import shown

    _refuse(to, force)
    compared = contestants(names, over or [], seeds, changes or [])
    with _climbing(quiet) as (listener, interrupt):
        found = compare(compared, Climb(out, [one.entry for one in compared], listener, interrupt))
    _tell(shown(found), out, "recipes", to, as_json)


@app.command(hidden=True)
def rates(
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUNG]...", help="All of the ladder if absent.")] = None,
    rate: Annotated[list[float] | None, typer.Option(help="May be repeated; the usual three if absent.")] = None,
    changes: Set = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs.")] = Path("runs/rates"),
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
    plugin: Plugin = None,
) -> None:
    """Train rungs of the ladder at several learning rates and say which is best: what the ladder's own come from.

    Example: `regard compare rates gru --rate 1e-3 --rate 2e-3 --json`
    """
    from regard.compare.rates import search
    from regard.devices import usable_device

    with _climbing(quiet) as (listener, interrupt):
        found = search(
            names, rate, out, [*(changes or []), f"training.device={usable_device(device).type}"], listener, interrupt
        )
    if as_json:
        typer.echo(to_json({"rates": found}))
        return
    for one in found:
        typer.echo("{rung:<12} {learning_rate:<8g} {exact_match:.4f}  loss {validation_loss:.4f}".format(**one))


app.command()(compare_ablations.ablations)
app.command()(compare_decoding.decoding)


def _refuse(to: Path | None, force: bool) -> None:
    """What cannot be drawn to is refused before anything is trained."""
    from regard.views.figure import check_format
    from regard.views.html import SUFFIXES, check_html_name

    if to is not None:
        check_html_name(to) if to.suffix.lower() in SUFFIXES else check_format(to)
        refuse_existing(to, force)


@contextmanager
def _climbing(quiet: bool) -> Iterator[tuple["ClimbListener", "Interrupt"]]:
    """The bar, and who listens to Ctrl-C."""
    from regard.compare.climb_bar import ClimbBar
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.training.progress import console

    keep_freed_memory()
    with listening() as interrupt, ClimbBar(console(quiet)) as listener:
        yield listener, interrupt


def _tell(found: "ComparisonView", out: Path, name: str, to: Path | None, as_json: bool) -> None:
    """Write the files; print the table and what it shows."""
    paths = found.write(out, name)
    if to is not None:
        found.save(to)
        paths.append(to)
    if as_json:
        typer.echo(to_json({**found.record, "files": [str(path) for path in paths]}))
        return
    typer.echo(found.table())
    for panel in found.panels:
        if panel.sentence:
            typer.echo(f"\n{panel.title}\n{panel.sentence}")
    typer.echo(f"\n{' '.join(map(str, paths))}")

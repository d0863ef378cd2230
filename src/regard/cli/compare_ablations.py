"""`regard compare ablations`: why each part of a Transformer is there, shown by taking it away."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Plugin, Quiet
from regard.cli.output import to_json

if TYPE_CHECKING:
    from rich.console import Console

    from regard.compare.ablations import Finding
    from regard.compare.climb import Entry
    from regard.training.reports import Report


def ablations(
    out: Annotated[Path, typer.Option(help="The folder of trainings, figures and numbers.")] = Path("runs/ablations"),
    only: Annotated[
        str | None, typer.Option(help="Some of scale,heads,depth,positions,mask, with commas between.")
    ] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object when it is done.")] = False,
    plugin: Plugin = None,
) -> None:
    """Take a Transformer's parts away, one at a time, and show the number each removal is known for.

    The scale, the heads, residuals, norms, positions and the causal mask, in small networks that reverse rows of
    letters: a table here, and in the folder a figure, a page and the numbers. About ten minutes on two CPU cores for
    all; Ctrl-C keeps what is done, and the same command goes on.

    Example: `regard compare ablations --only scale,mask`
    """
    from regard.compare.ablation_cases import Budget
    from regard.compare.ablations import ablate, cases_of, chosen, write_findings
    from regard.compare.climb import Climb
    from regard.files import refuse_unwritable
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.training.progress import console

    names, budget = chosen([name.strip() for name in only.split(",")] if only is not None else None), Budget()
    refuse_unwritable(out / "ablations.json")
    keep_freed_memory()
    with listening() as interrupt:
        bar = AblationsBar(console(quiet))
        climb = Climb(out, cases_of(names, budget), bar, interrupt, keep_diverged=True)
        bar.expect(climb.missing())
        with bar:
            findings = ablate(names, climb, budget)
    paths = write_findings(out, findings, budget)
    if as_json:
        files = [str(path) for path in paths]
        typer.echo(to_json({"files": files, "findings": [finding.record() for finding in findings]}))
        return
    _print(findings)
    typer.echo(f"{', '.join(map(str, paths))} have the figure, the page and the numbers")


def _print(findings: Sequence["Finding"]) -> None:
    """Every part with its figures, then what they say."""
    widest = max(len(what) for finding in findings for what, _ in finding.rows)
    for finding in findings:
        typer.echo(f"{finding.title}\n")
        for what, figure in finding.rows:
            typer.echo(f"  {what:<{widest}}  {figure:>8}")
        typer.echo("\n" + "\n".join(f"  {sentence}" for sentence in finding.sentences) + "\n")


class AblationsBar:
    """How far all trainings are, on stderr: a bar at a terminal, else a line for every training that ends."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=0, state="")
        self.number = self.of = 0
        self.total = self.unit = 1.0
        self.begun = monotonic()

    def expect(self, entries: Sequence["Entry"]) -> None:
        """What is still to be trained; a layer's step is the unit of the bar."""
        self.of, self.total = len(entries), float(sum(_work(entry) for entry in entries))
        self.bar.update(self.task, total=self.total)

    def __enter__(self) -> "AblationsBar":
        self.bar.start()
        return self

    def __exit__(self, *what: object) -> None:
        self.bar.stop()

    def begin(self, entry: "Entry") -> None:
        """A line for the bar."""
        self.unit = _work(entry) / entry.recipe.training.steps
        self.bar.update(self.task, description=f"{self.number + 1} of {self.of}  {entry.name}")

    def measuring(self, what: str) -> None:
        """Moments, of which nothing is said."""

    def end(self, entry: "Entry") -> None:
        """A line that stays, with how long the others may take."""
        self.number += 1
        passed = monotonic() - self.begun
        done = self.bar.tasks[0].completed
        left = round(passed / max(done, 1) * (self.total - done))
        line = f"{self.number} of {self.of}  {entry.name}  {passed:.0f} s"
        self.console.print(f"{line}, about {max(left, 0)} s left", markup=False, highlight=False)

    def __call__(self, report: "Report") -> None:
        """A step further."""
        self.bar.update(self.task, advance=self.unit, state=f"step {report.step}  loss {report.loss:.3f}")

    def say(self, sentence: str) -> None:
        """What single trainings say is left out."""


def _work(entry: "Entry") -> float:
    """What a training takes, in steps of one layer."""
    shape = entry.recipe.model
    stacks = 2.5 if shape.reads_source else 1.0
    return entry.recipe.training.steps * stacks * float(getattr(shape, "layers", 1))

"""How a climb looks while it goes on: on a terminal a bar for all of it and one for what is under way; else lines.

All of it goes to stderr.
"""

from collections.abc import Sequence
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regard.compare.climb import Entry
from regard.training.progress import Since, validation
from regard.training.reports import Report


class ClimbBar:
    """A Rich progress bar that listens to a climb; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.whole = self.bar.add_task("all", total=None, state="")
        self.now = self.bar.add_task("", total=None, state="")
        self.names: list[str] = []
        self.name, self.since = "", Since(0.0)

    def __enter__(self) -> "ClimbBar":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def expect(self, entries: Sequence[Entry]) -> None:
        """All there are, those that are done already among them."""
        self.names = [entry.name for entry in entries]
        self.bar.update(self.whole, total=len(self.names))

    def begin(self, entry: Entry) -> None:
        """The next of them."""
        done = self.names.index(entry.name)
        self.name = f"{entry.name} ({done + 1} of {len(self.names)})"
        self.since = Since(monotonic())
        self.bar.update(self.whole, completed=done)
        self.bar.reset(self.now, description=entry.name, total=None, state="")

    def end(self, entry: Entry) -> None:
        """Its measurements follow."""

    def measuring(self, what: str) -> None:
        """Something is being measured of it."""
        self.bar.update(self.now, state=f"measuring: {what}")
        self.say(f"measuring: {what}")

    def __call__(self, report: Report) -> None:
        """Move the bar; print a line for every evaluation."""
        self.since.add(report)
        speed = f"{self.since.speed(monotonic()):,.0f} tokens/s"
        state = f"loss {self.since.loss:.3f}  {speed}"
        self.bar.update(self.now, completed=report.step, total=report.steps, state=state)
        if report.validation is not None:
            self.say(f"step {report.step:>6} of {report.steps}  {speed}  {validation(report)}")
            self.since = Since(monotonic())

    def say(self, sentence: str) -> None:
        """A line above the bars."""
        self.console.print(f"{self.name}: {sentence}", markup=False, highlight=False)

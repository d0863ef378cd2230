"""How training looks while it runs: on a terminal a bar with loss, tokens per second and time left; else plain lines.

Everything goes to stderr. In a file or a pipe there is a line for every evaluation and, besides, at most one for every
twentieth of the run or every five minutes. The loss is the mean over all targets since the line before, and tokens per
second are the tokens read since then, by the clock on the wall. Reading a corpus and measuring a model have a bar on a
terminal; elsewhere measuring says nothing, and reading something every ten seconds.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from regard.training.reports import Report

PARTS, SECONDS = 20, 300.0
READING_SECONDS = 10.0


def console(quiet: bool) -> Console:
    """Where progress goes: stderr, or nowhere."""
    return Console(stderr=True, soft_wrap=True, force_jupyter=False, quiet=quiet)


def interactive() -> bool:
    """Whether somebody looks on: at a terminal or in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None or (sys.stderr is not None and sys.stderr.isatty())


class ProgressBar:
    """A Rich progress bar that listens to a training run."""

    def __init__(self, folder: Path, console: Console | None = None, *, saves: bool = True) -> None:
        """`saves`: whether Ctrl-C is listened to, as on the command line."""
        self.folder, self.saves = folder, saves
        self.console = console or Console(stderr=True, soft_wrap=True, force_jupyter=False)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task: TaskID | None = None
        self.first = 0
        self.begun = self.spoken = 0.0
        self.since = Since(0.0)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.task is not None:  # a bar that never began would leave an empty line
            self.bar.stop()

    def __call__(self, report: "Report") -> None:
        """Move the bar; print a line for every evaluation."""
        if not self.first:
            self._begin(report)
        now = monotonic()
        self.since.add(report)
        speed = f"{self.since.speed(now):,.0f} tokens/s"
        if self.task is not None:
            self.bar.update(self.task, completed=report.step, state=f"loss {self.since.loss:.3f}  {speed}")
        line = ""
        if report.validation is not None:
            line = f"step {report.step:>6}  training loss {self.since.loss:.4f}  {speed}  {validation(report)}"
        elif self.task is None and self._due(report):
            line = f"step {report.step:>6} of {report.steps}  loss {self.since.loss:.3f}  {speed}  {self._left(report)}"
        if line:
            self._print(line.rstrip())
            self.since = Since(now)

    def say(self, sentence: str) -> None:
        """A line above the bar."""
        self._print(sentence)

    def _begin(self, report: "Report") -> None:
        self.first, self.begun = report.step, monotonic()
        self.since = Since(self.begun - report.seconds)  # it is told of a step when that is over
        self._print(f"{self.folder} keeps everything{'; Ctrl-C saves and stops' if self.saves else ''}")
        if self.console.is_terminal:
            self.bar.start()
            self.task = self.bar.add_task("", total=report.steps, completed=report.step - 1, state="")

    def _due(self, report: "Report") -> bool:
        """Whether a twentieth of the run, or five minutes, have passed since something was printed."""
        part, before = (step * PARTS // report.steps for step in (report.step, report.step - 1))
        return report.step == self.first or part > before or monotonic() - self.spoken > SECONDS

    def _left(self, report: "Report") -> str:
        timed, left = report.step - self.first, report.steps - report.step  # the clock began after the first step
        if left and not timed:
            return ""
        seconds = round((monotonic() - self.begun) / max(timed, 1) * left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"

    def _print(self, line: str) -> None:
        self.spoken = monotonic()
        self.console.print(line, markup=False, highlight=False)


@dataclass
class Since:
    """What was trained on since a moment of the clock."""

    begun: float
    total: float = 0.0
    targets: int = 0
    tokens: int = 0

    def add(self, report: "Report") -> None:
        """One step more."""
        self.total += report.loss * report.targets
        self.targets += report.targets
        self.tokens += report.tokens

    @property
    def loss(self) -> float:
        """Per target, over all of them."""
        return self.total / max(self.targets, 1)

    def speed(self, now: float) -> float:
        """Tokens read in a second."""
        return self.tokens / max(now - self.begun, 1e-9)


class MeasuringBar:
    """How much of a measurement is done; silent outside a terminal, and where it takes no time worth a bar."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar = Progress(
            TextColumn("measuring"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> "MeasuringBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.task is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """So much is done."""
        if self.task is None:
            self.bar.start()
            self.task = self.bar.add_task("", total=total)
        self.bar.update(self.task, completed=done, total=total)


class ReadingBar:
    """How much of some files was read, then that what was read is being learnt from.

    Outside a terminal there is a line every ten seconds, and none where it takes less.
    """

    def __init__(self, files: Sequence[Path], console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, force_jupyter=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        plain = all(file.suffix != ".gz" and os.path.isfile(file) for file in files)
        self.bytes = sum(file.stat().st_size for file in files) if plain else None
        """Of all files; unknown where they unpack to more."""
        self.spoke = False

    def __enter__(self) -> "ReadingBar":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def watch(self, texts: Iterable[str], during: str, after: str) -> Iterator[str]:
        """The texts themselves; the bar says what is done with them, and what is done when all were read."""
        for old in self.bar.task_ids:
            self.bar.remove_task(old)
        task = self.bar.add_task(during, total=self.bytes, state="")
        length, spoken = 0, monotonic()
        for text in texts:
            length += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            self.bar.update(task, completed=length, state=f"{length / 1e6:,.0f} MB")
            if not self.console.is_terminal and monotonic() - spoken > READING_SECONDS:
                spoken, self.spoke = monotonic(), True
                of = f" of {self.bytes / 1e6:,.0f}" if self.bytes else ""
                self.console.print(f"{during}  {length / 1e6:,.0f}{of} MB", markup=False, highlight=False)
            yield text
        self.bar.update(task, description=after, total=None)
        if self.spoke:
            self.console.print(after, markup=False, highlight=False)


def validation(report: "Report") -> str:
    """`validation loss 0.1234  new best`, or which was the best and for how many evaluations it has been."""
    from regard.training.reports import evaluations

    assert report.validation is not None
    values = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
    by = "" if report.metric == "loss" else f" {report.metric}"
    if report.worse == 0:
        return f"validation {values}  new best{by}"
    return f"validation {values}  best{by} {report.best:.4f}, no improvement for {evaluations(report.worse)}"

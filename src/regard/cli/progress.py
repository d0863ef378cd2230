"""How training looks while it runs: a bar with loss, tokens per second and time left, on stderr."""

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from regard.training.reports import Report


class ProgressBar:
    """A Rich progress bar that listens to a training run."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task: TaskID | None = None
        self.speed = 0.0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.task is not None:  # a bar that never began would leave an empty line
            self.bar.stop()

    def __call__(self, report: "Report") -> None:
        """Move the bar; print a line for every validation."""
        if self.task is None:
            self.bar.start()
            self.task = self.bar.add_task("", total=report.steps, completed=report.step - 1, state="")
        self.speed = 0.95 * self.speed + 0.05 * report.tokens_per_second if self.speed else report.tokens_per_second
        state = f"loss {report.loss:.3f}  {self.speed:,.0f} tokens/s"
        self.bar.update(self.task, completed=report.step, state=state)
        if report.validation is not None:
            values = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
            self.console.print(f"step {report.step:>6}  training loss {report.loss:.4f}  validation {values}")

    def say(self, sentence: str) -> None:
        """A line above the bar."""
        self.console.print(sentence)

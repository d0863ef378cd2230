"""What a run tells about itself, and who hears it."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Report:
    """What is known after a step."""

    step: int
    steps: int
    loss: float
    """Per target, of this step alone."""
    rate: float
    targets: int
    """Tokens that were predicted: what a mean over several steps weighs their losses by."""
    tokens: int
    """Tokens that were read, those of sources too, without padding."""
    seconds: float
    validation: dict[str, float] | None = None
    metric: str = "loss"
    """Which of the validation's figures `best` is about."""
    best: float | None = None
    """The best of that figure so far."""
    worse: int = 0
    """How many evaluations in a row have not improved it."""

    @property
    def tokens_per_second(self) -> float:
        """How fast this step read."""
        return self.tokens / max(self.seconds, 1e-9)

    def values(self) -> dict[str, float | int]:
        """The line of metrics.jsonl."""
        values: dict[str, float | int] = {"step": self.step, "loss": self.loss, "rate": self.rate}
        values["tokens_per_second"] = round(self.tokens_per_second, 1)
        return values | {f"validation_{name}": value for name, value in (self.validation or {}).items()}


@runtime_checkable
class Listener(Protocol):
    """Who is told how it goes."""

    def __call__(self, report: Report) -> None:
        """After every step."""
        ...

    def say(self, sentence: str) -> None:
        """Something a person should know."""
        ...


class Silent:
    """A listener that says nothing."""

    def __call__(self, report: Report) -> None:
        """Nothing."""

    def say(self, sentence: str) -> None:
        """Nothing."""


def evaluations(count: int) -> str:
    """`1 evaluation`, `3 evaluations`."""
    return f"{count} evaluation{'' if count == 1 else 's'}"

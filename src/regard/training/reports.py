"""What a run tells about itself, and who hears it."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Report:
    """What is known after a step."""

    step: int
    steps: int
    loss: float
    rate: float
    tokens_per_second: float
    validation: dict[str, float] | None = None
    best: float | None = None
    """The lowest validation loss so far."""
    worse: int = 0
    """How many validations in a row have not lowered it."""

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

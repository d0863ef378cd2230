"""Trainings that are asked about by name: made when they are first needed, kept, and never made twice.

    OUT/NAME/                a run as `regard train` writes it, resumed exactly
    OUT/NAME/measured.json   its recipe, and every answer that was asked for

A training that diverges is a result too: it is kept as a sentence, and what is asked of it has no answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from regard.api.loading import read_model
from regard.api.model import Model
from regard.api.training import train
from regard.errors import FileError, NotFiniteError
from regard.files import read_json, write_json
from regard.tasks.recipe import Recipe
from regard.training.interrupt import Interrupt
from regard.training.journal import read_metrics
from regard.training.reports import Listener, Report, Silent

ANSWERS = "measured.json"


@dataclass(frozen=True)
class Case:
    """What is trained, and the name of its folder."""

    name: str
    recipe: Recipe


class TrainingsListener(Listener, Protocol):
    """Who is told how it goes."""

    def begin(self, case: Case) -> None:
        """A training begins, or goes on."""
        ...

    def end(self, case: Case) -> None:
        """It has ended."""
        ...


class SilentTrainings(Silent):
    """A listener that says nothing."""

    def begin(self, case: Case) -> None:
        """Nothing."""

    def end(self, case: Case) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Trainings:
    """Where they are kept, and who is told."""

    folder: Path
    listener: TrainingsListener = field(default_factory=SilentTrainings)
    interrupt: Interrupt = field(default_factory=Interrupt)

    def ask(self, case: Case, what: str, measure: Callable[[Model], Any]) -> Any:
        """The answer that was kept, or a new one of the trained model; None where the training diverged."""
        kept = self._kept(case)
        if kept is None or "training" not in kept:
            kept = self._trained(case)
        if kept["training"]["diverged"]:
            return None
        if what not in kept:
            kept[what] = measure(read_model(self.folder / case.name))
            write_json(self._path(case), kept)
        return kept[what]

    def training(self, case: Case) -> dict[str, Any]:
        """What the training took, and the sentence of its divergence, if any."""
        kept = self._kept(case)
        found: dict[str, Any] = (kept or self._trained(case))["training"]
        return found

    def missing(self, cases: Sequence[Case]) -> list[Case]:
        """Those that are still to be trained, each once."""
        return list({case.name: case for case in cases if self._kept(case) is None}.values())

    def _path(self, case: Case) -> Path:
        return self.folder / case.name / ANSWERS

    def _kept(self, case: Case) -> dict[str, Any] | None:
        path = self._path(case)
        if not path.is_file():
            return None
        kept = read_json(path, "remove its folder, and it is trained again")
        if kept.get("recipe") != case.recipe.tables():
            raise FileError(f"{path} is of another recipe than {case.name} has now", "choose another `out`")
        return kept

    def _trained(self, case: Case) -> dict[str, Any]:
        """Train to the end, and write down what it took."""
        folder = self.folder / case.name
        self.listener.begin(case)
        taken, diverged = _Seconds(self.listener), None
        try:
            train(case.recipe, folder, resume=True, listener=taken, interrupt=self.interrupt)
        except NotFiniteError as error:
            diverged = error.problem
        lines = [] if diverged else read_metrics(folder)
        found = {"steps": len(lines), "seconds": round(taken.seconds, 2), "diverged": diverged}
        kept = {"recipe": case.recipe.tables(), "training": found}
        write_json(self._path(case), kept)
        self.listener.end(case)
        return kept


@dataclass
class _Seconds(Silent):
    """How long the steps took, told on to who wants to know; what a training says of itself is left out."""

    listener: Listener
    seconds: float = 0.0

    def __call__(self, report: Report) -> None:
        self.seconds += report.seconds
        self.listener(report)

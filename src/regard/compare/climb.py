"""Several trainings, one after another, each in a folder of its own; what was measured is kept and not measured again.

    OUT/NAME/                a run as `regard train` writes it, resumed exactly
    OUT/NAME/measured.json   the recipe it is of, what the training took, and every measurement

Stopped anywhere, the same climb goes on where it was. Where a training that diverges is a result too, it is kept as a
sentence, and what is asked of it has no answer.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from regard.api.loading import read_model
from regard.api.model import Model
from regard.api.training import train
from regard.devices import usable_device
from regard.errors import FileError, InputError, NotFiniteError
from regard.files import read_json, write_json
from regard.layers.linear import parameter_count
from regard.tasks.recipe import Recipe
from regard.training.interrupt import Interrupt, Stopped
from regard.training.journal import read_metrics
from regard.training.peak_memory import begin_peak, peak
from regard.training.reports import Listener, Report, Silent

MEASURED = "measured.json"
Measure = Callable[[Model], Any]
"""Something that is asked of a trained model; its answer goes into a JSON file."""


@dataclass(frozen=True)
class Entry:
    """What is trained under a name; the name is its folder's too."""

    name: str
    recipe: Recipe


class ClimbListener(Listener, Protocol):
    """Who is told how a climb goes."""

    def expect(self, entries: Sequence[Entry]) -> None:
        """All that are trained and measured, one after another."""
        ...

    def begin(self, entry: Entry) -> None:
        """Something of this entry is not there yet."""
        ...

    def measuring(self, what: str) -> None:
        """Something is being measured of it."""
        ...

    def end(self, entry: Entry) -> None:
        """Its training has ended."""
        ...


class SilentClimb(Silent):
    """A listener that says nothing."""

    def expect(self, entries: Sequence[Entry]) -> None:
        """Nothing."""

    def begin(self, entry: Entry) -> None:
        """Nothing."""

    def measuring(self, what: str) -> None:
        """Nothing."""

    def end(self, entry: Entry) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Climb:
    """Entries, where they are kept, and who is told."""

    folder: Path
    entries: Sequence[Entry]
    listener: ClimbListener = field(default_factory=SilentClimb)
    interrupt: Interrupt = field(default_factory=Interrupt)
    keep_diverged: bool = False
    """Whether a training that diverges is a result, not an error."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{twice[0]!r} is there twice", "name every recipe and every value once")

    def run(self, measures: Mapping[str, Measure]) -> dict[str, dict[str, Any]]:
        """Of every entry: what its training took (`training`) and every measurement, by its name."""
        self.listener.expect(self.entries)
        return {entry.name: self.measured(entry, measures) for entry in self.entries}

    def missing(self) -> list[Entry]:
        """The entries that are still to be trained."""
        return [entry for entry in self.entries if "training" not in _kept(self.folder / entry.name, entry.recipe)]

    def training(self, entry: Entry) -> dict[str, Any]:
        """What the training of one took; `diverged` is the sentence of how it ended, if it did."""
        found: dict[str, Any] = self.measured(entry, {})["training"]
        return found

    def ask(self, entry: Entry, what: str, measure: Measure) -> Any:
        """One measurement of one; None where the training diverged."""
        return self.measured(entry, {what: measure})[what]

    def measured(self, entry: Entry, measures: Mapping[str, Measure]) -> dict[str, Any]:
        """Of one entry, trained where it is not yet: what that took (`training`) and these measurements."""
        folder = self.folder / entry.name
        kept = _kept(folder, entry.recipe)
        diverged = kept.get("training", {}).get("diverged")
        if any(name not in kept for name in ("training", *measures)) and not diverged:
            self.listener.begin(entry)
        if "training" not in kept:
            kept = {"recipe": entry.recipe.tables(), "training": self._trained(entry, folder)}
            write_json(folder / MEASURED, kept)
            self.listener.end(entry)
            if self.interrupt.number is not None:  # in the last step, which no run sees
                raise Stopped(kept["training"]["steps"], folder, self.interrupt.number)
        if kept["training"].get("diverged"):
            return {"training": kept["training"], **dict.fromkeys(measures)}
        missing = [name for name in measures if name not in kept]
        if missing:
            model = read_model(folder).to(entry.recipe.training.device)
            for name in missing:
                self.listener.measuring(name)
                kept[name] = measures[name](model)
                write_json(folder / MEASURED, kept)
        return {name: kept[name] for name in ("training", *measures)}

    def _trained(self, entry: Entry, folder: Path) -> dict[str, Any]:
        """Train it, from its last state where there is one; what that took."""
        tally = Tally(self.listener, folder / "state" / "spent.json")
        device = usable_device(entry.recipe.training.device)
        known = begin_peak(device) is not None
        try:
            model = train(entry.recipe, folder, resume=True, listener=tally, interrupt=self.interrupt)
        except NotFiniteError as error:
            if not self.keep_diverged:
                raise
            return {"steps": tally.steps, "diverged": error.problem, **tally.totals(tally.steps)}
        finally:
            tally.keep(peak(device) if known else None)
        lines = read_metrics(folder)
        losses = [line["validation_loss"] for line in lines if "validation_loss" in line]
        return {
            "parameters": parameter_count(model.module),
            "vocabulary": model.module.config.vocabulary,
            "steps": len(lines),
            "validation_loss": min(losses) if losses else None,
            "tokens_per_second": statistics.median(line["tokens_per_second"] for line in lines),
            **tally.totals(len(lines)),
            "device": str(model.device),
            "diverged": None,
        }


def _kept(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """What was measured of this very recipe in a folder."""
    path = folder / MEASURED
    if not path.is_file():
        return {}
    kept = read_json(path, "remove it, and it is measured again")
    if kept.get("recipe") != recipe.tables():
        raise FileError(f"{folder} holds a run of another recipe", "choose another `out`, or remove that folder")
    return kept


class Tally:
    """A listener that counts what a training takes, over all calls that it takes to end it."""

    def __init__(self, listener: Listener, path: Path) -> None:
        self.listener, self.path = listener, path
        before = read_json(path, "remove it") if path.is_file() else {}
        self.steps, self.tokens = int(before.get("steps", 0)), int(before.get("tokens", 0))
        self.seconds = float(before.get("seconds", 0.0))
        self.peak_bytes: int | None = before.get("peak_bytes")

    def __call__(self, report: Report) -> None:
        self.steps += 1
        self.tokens += report.tokens
        self.seconds += report.seconds
        self.listener(report)

    def say(self, sentence: str) -> None:
        self.listener.say(sentence)

    def keep(self, peak_bytes: int | None) -> None:
        """For the call that goes on; `peak_bytes` is the most memory of this one."""
        self.peak_bytes = max((one for one in (self.peak_bytes, peak_bytes) if one is not None), default=None)
        if self.steps and self.path.parent.is_dir():
            spent = {"steps": self.steps, "tokens": self.tokens, "seconds": self.seconds}
            write_json(self.path, spent | {"peak_bytes": self.peak_bytes})

    def totals(self, steps: int) -> dict[str, Any]:
        """Tokens, seconds and memory of so many steps; where some were not counted, by the mean of those that were."""
        share = steps / self.steps if self.steps else 0.0
        known = self.steps > 0
        return {
            "tokens": round(self.tokens * share) if known else None,
            "seconds": round(self.seconds * share, 3) if known else None,
            "peak_bytes": self.peak_bytes,
        }

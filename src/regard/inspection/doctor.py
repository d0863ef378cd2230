"""The doctor: every law on one model, with the number measured, and of a broken one the smallest input that breaks it.

An input is made smaller for as long as the law stays broken and the time lasts: texts are left out, halved, shortened
by a token, made of zeros. Nothing of the model is changed: what trains, trains on a copy.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from regard.errors import InputError, choose
from regard.inspection.laws import BY_NAME, LAWS, Examined, Law, Trial
from regard.inspection.laws.files import weights_that_differ
from regard.inspection.laws.reading import FINITE

SHRINKING, TRIES = 20.0, 200
"""Seconds, and inputs, that are spent on making one smaller."""
READ = ("weights", "tokenizer")
"""Laws that compute nothing with the weights."""
Status = Literal["pass", "broken", "not applicable"]


@dataclass(frozen=True)
class Verdict:
    """What was found of one law."""

    law: str
    statement: str
    status: Status
    measured: float | None = None
    tolerance: float | None = None
    unit: str = ""
    """What both numbers are."""
    reason: str = ""
    """Why the law is not applicable."""
    sampled: str = ""
    """What was tried of a large model in place of all."""
    smallest: str = ""
    """Of a broken law: the smallest input found that breaks it."""
    cause: str = ""
    """Of a broken law: what most likely is wrong."""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """It, in a line."""
        if self.status == "not applicable":
            return f"{self.law}: not applicable, {self.reason}"
        number = f"{self.measured:.1e} {self.unit}, tolerance {self.tolerance:g}"
        more = f"; broken by {self.smallest}: {self.cause}" if self.status == "broken" else ""
        return f"{self.law}: {self.status}, {number}{more}"


@dataclass(frozen=True)
class Checkup:
    """All that was found of a model."""

    model: str
    verdicts: tuple[Verdict, ...]

    @property
    def healthy(self) -> bool:
        """Whether no law is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return tuple(one for one in self.verdicts if one.status == "broken")

    def verdict(self, law: str) -> Verdict:
        """That of one law."""
        known = {one.law: one for one in self.verdicts}
        if law not in known:
            raise InputError(f"law {law!r} was not examined", choose(law, known))
        return known[law]

    def to_dict(self) -> dict[str, Any]:
        """For a program; a departure that is no finite number is null."""
        laws = [{**asdict(one), "measured": _finite(one.measured)} for one in self.verdicts]
        return {"model": self.model, "healthy": self.healthy, "laws": laws}

    def __str__(self) -> str:
        lines = [f"{len(self.broken)} of {len(self.verdicts)} laws broken by {self.model}"]
        return "\n".join([*lines, *(one.line for one in self.verdicts)])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def chosen_laws(only: Sequence[str] | None) -> tuple[Law, ...]:
    """Those of these names, in their own order; all where none is named."""
    for name in only or ():
        if name not in BY_NAME:
            raise InputError(f"there is no law {name!r}", choose(name, BY_NAME))
    return tuple(law for law in LAWS if not only or law.name in only)


def examine(
    model: Examined, name: str, only: Sequence[str] | None = None, told: Callable[[str], None] | None = None
) -> Checkup:
    """Every law, or those of these names, one after the other; `told` hears which one it is."""
    verdicts: list[Verdict] = []
    for law in chosen_laws(only):
        if told is not None:
            told(law.name)
        begun = time.perf_counter()
        verdicts.append(_verdict(law, model, begun, _why_nothing(verdicts) if law.name not in READ else ""))
    return Checkup(name, tuple(verdicts))


def _why_nothing(verdicts: Sequence[Verdict]) -> str:
    """Why a law that computes says nothing, where weights were found to be no numbers: not twenty times the same."""
    broken = any(one.law == FINITE and one.status == "broken" for one in verdicts)
    return "a weight is no number" if broken else ""


def _verdict(law: Law, model: Examined, begun: float, nothing: str) -> Verdict:
    """Pass, broken, or not applicable and why."""
    reason = law.unfit(model) or nothing
    if reason:
        return Verdict(law.name, law.statement, "not applicable", reason=reason)
    worst, broken, bound = 0.0, None, law.bound(model)
    with torch.random.fork_rng():
        for trial in law.trials(model):
            found, _ = _departure(law, model, trial)
            worst = max(worst, found)
            if not found <= bound:
                broken = trial
                break
        sampled = law.sample if model.large else ""
        passed = Verdict(law.name, law.statement, "pass", worst, bound, law.unit, sampled=sampled)
        if broken is None:
            return replace(passed, seconds=time.perf_counter() - begun)
        smallest = shrunk(law, model, broken)
        _, raised = _departure(law, model, smallest)
    cause, words = raised or law.cause(smallest), _words(law, model, smallest)
    seconds = time.perf_counter() - begun
    return replace(passed, status="broken", smallest=words, cause=cause, seconds=seconds)


def _departure(law: Law, model: Examined, trial: Trial) -> tuple[float, str]:
    """How far it departs; what a model raises is as far as can be, and told."""
    try:
        return law.depart(model, trial), ""
    except Exception as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):  # says nothing of the law
            raise
        return math.inf, f"it raised {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


def shrunk(law: Law, model: Examined, trial: Trial) -> Trial:
    """The smallest input found that breaks the law as this one does."""
    if not law.shrinks:
        return trial
    _, raised = _departure(law, model, trial)
    last, tries = time.perf_counter() + SHRINKING, 0
    smaller = True
    while smaller:
        smaller = False
        for one in trial.smaller():
            tries += 1
            if tries > TRIES or time.perf_counter() > last:
                return trial
            found, other = _departure(law, model, one)
            if not found <= law.bound(model) and bool(other) == bool(raised):
                trial, smaller = one, True
                break
    return trial


def _words(law: Law, model: Examined, trial: Trial) -> str:
    """The input, for people; of weights the names of those that differ."""
    if law.name != "weights":
        return trial.words
    names = weights_that_differ(model, trial)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

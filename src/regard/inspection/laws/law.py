"""What a law is: a statement, the inputs it is tried on, how far a model departs from it on one, and how far it may.

Departures are shares of the largest number compared, so that they mean the same for every model. What is beyond the
tolerance in float32 is measured once more in float64: rounding is gone there, and a bug is not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from torch import nn

from regard.inspection.laws.examined import Examined, Texts, evaluating, nothing_unfit

ROUNDING = 1e-5
UNTOLD_ROUNDING = 1e-3
"""Of a model that is too large for a copy in float64."""


@dataclass(frozen=True)
class Trial:
    """One input of a law, and in which way it is tried; `how` names the likely cause as well."""

    how: str = ""
    texts: Texts = ()
    sources: Texts = ()
    text: str = ""
    """For a tokenizer."""
    part: str = ""
    """A layer or a tensor, where the law is about one at a time."""

    def smaller(self) -> Iterator["Trial"]:
        """The same with less in it, the least first."""
        if self.text:
            cut = len(self.text) // 2
            shorter = [self.text[:cut], self.text[cut:]]
            shorter += [self.text[:at] + self.text[at + 1 :] for at in range(len(self.text)) if cut]
            yield from (replace(self, text=one) for one in shorter if one and one != self.text)
        for at in range(len(self.texts)):
            if len(self.texts) > 1:
                rest = self.texts[:at] + self.texts[at + 1 :], self.sources[:at] + self.sources[at + 1 :]
                yield replace(self, texts=rest[0], sources=rest[1])
        for name in ("texts", "sources"):
            whole: Texts = getattr(self, name)
            for at, text in enumerate(whole):
                for one in (text[: len(text) // 2], text[:-1], text[1:], (0,) * len(text)):
                    if one and one != text:
                        less = (*whole[:at], one, *whole[at + 1 :])
                        yield replace(self, texts=less) if name == "texts" else replace(self, sources=less)

    @property
    def words(self) -> str:
        """It, for people."""
        said = [self.part] if self.part else []
        said += [f"the text {self.text!r}"] if self.text else []
        if self.texts:
            said.append(f"{'text' if len(self.texts) == 1 else 'texts'} {_shown(self.texts)}")
        if self.sources:
            said.append(f"{'source' if len(self.sources) == 1 else 'sources'} {_shown(self.sources)}")
        return ", ".join([*said, *([self.how] if self.how else [])]) or "the model itself"


def _shown(texts: Texts) -> str:
    shown = [f"[{' '.join(map(str, text[:9]))}{f' … {len(text)} tokens' if len(text) > 9 else ''}]" for text in texts]
    return " ".join(shown)


@dataclass(frozen=True)
class Law:
    """A statement about models that can be measured."""

    name: str
    statement: str
    trials: Callable[[Examined], Iterable[Trial]]
    """The inputs; the simplest first, for the first that fails names the cause."""
    departure: Callable[[Examined, Trial], float]
    causes: Mapping[str, str]
    """The likely cause by how it was tried; of every other way under the empty name."""
    tolerance: float = ROUNDING
    unit: str = "of the size"
    """What the measured number is."""
    unfit: Callable[[Examined], str | None] = nothing_unfit
    """Why the law says nothing about a model."""
    sample: str = ""
    """What is tried of a large model in place of all."""
    shrinks: bool = True
    """Whether a smaller input is looked for."""
    rounds: bool = True
    """Whether what is beyond the tolerance is measured again in float64."""

    def depart(self, model: Examined, trial: Trial) -> float:
        """How far a model departs from the law on one input."""
        with evaluating(model.module, model.original):
            found = self.departure(model, trial)
            again = self.rounds and model.widens and found > self.tolerance > 0
            return self.departure(model.wide, trial) if again else found

    def bound(self, model: Examined) -> float:
        """How far this model may depart: more where rounding is not told apart."""
        return self.tolerance if model.widens or self.tolerance != ROUNDING else UNTOLD_ROUNDING

    def measure(self, model: nn.Module | Examined) -> float:
        """How far a model departs from the law at most."""
        known = model if isinstance(model, Examined) else Examined.of(model)
        return max((self.depart(known, trial) for trial in self.trials(known)), default=0.0)

    def applies(self, model: nn.Module | Examined) -> bool:
        """Whether the law says anything about this model."""
        return self.unfit(model if isinstance(model, Examined) else Examined.of(model)) is None

    def cause(self, trial: Trial) -> str:
        """What most likely is wrong, in a sentence."""
        return self.causes.get(trial.how, self.causes.get("", ""))

"""What decoding did, as plain records: every choice of one token after the other, or the tree of a beam.

`StepWatch` and `BeamWatch` are told by the loops while they run, of one text; the records are what `--explain` shows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.axes import RowLogits
from regard.decoding.filters import Filter, Generated, MinP, Renormalized, Temperature, TopK, TopP
from regard.decoding.strategies import Beam

Fate = Literal["kept", "finished", "pruned"]
SHOWN = 8
"""Candidates that are kept of every choice, the chosen one aside."""


@dataclass(frozen=True)
class Candidate:
    """A token that might have come next: its probability before anything, and after every stage; 0 is removed."""

    id: int
    token: str
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """One step: the likeliest candidates, with the one that was chosen, and how many tokens every stage left."""

    step: int
    candidates: tuple[Candidate, ...]
    left: tuple[int, ...]
    chosen: int
    token: str
    rank: int
    """Of the chosen one by the model's own probabilities; 1 is the likeliest."""
    log_probability: float
    """By the model itself, as in the score."""


@dataclass(frozen=True)
class Branch:
    """One candidate of a beam: where it grew, what it costs, and what became of it.

    `total` is Σ log p up to here, `score` that by the length rule; `rank` is by total among the candidates of its step
    (and group or bank). `threshold` is what decided: the total of the last that was kept, or the score to be beaten.
    """

    number: int
    parent: int
    step: int
    id: int
    token: str
    log_probability: float
    total: float
    score: float
    rank: int
    fate: Fate
    why: str
    threshold: float | None = None


@dataclass(frozen=True)
class Finished:
    """An answer of a beam, best first: the branch that it ends in."""

    branch: int
    text: str
    score: float
    log_probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Choices:
    """How an answer was written one token after the other."""

    text: str
    strategy: str
    stages: tuple[str, ...]
    """What the probabilities of candidates are after, in order; the first is the model alone."""
    steps: tuple[Choice, ...]
    output: str
    score: float
    prefix: str = ""


@dataclass(frozen=True)
class BeamTree:
    """How a beam found its answers."""

    text: str
    strategy: str
    size: int
    length_penalty: float
    branches: tuple[Branch, ...]
    finished: tuple[Finished, ...]
    prefix: str = ""

    @property
    def output(self) -> str:
        """The best answer."""
        return self.finished[0].text


Names = Callable[[int], str]


def stage_name(one: Filter) -> str:
    """A filter in a few words."""
    known: tuple[tuple[type, str, str], ...] = (
        (Temperature, "temperature", "value"),
        (TopK, "top-k", "count"),
        (TopP, "top-p", "mass"),
        (MinP, "min-p", "share"),
    )
    for kind, name, option in known:
        if isinstance(one, kind):
            return f"{name} {getattr(one, option):g}"
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(one).__name__).strip()
    numbers = [value for value in vars(one).values() if isinstance(value, int | float)]
    return f"{words} {numbers[0]:g}" if len(numbers) == 1 else words


@dataclass(eq=False)
class StepWatch:
    """Told of every choice in the first row."""

    filters: Sequence[Filter]
    name: Names
    steps: list[Choice] = field(default_factory=list)

    def stages(self) -> tuple[str, ...]:
        """Their names, the model first."""
        return ("model", *(stage_name(one) for one in self.filters if not isinstance(one, Renormalized)))

    def told(self, logits: RowLogits, generated: Generated, chosen: int) -> None:
        """The logits of a step, what stood there, and the token that came of it."""
        scores, stages = logits[:1].double(), [logits[:1].double()]
        first = Generated(generated.ids[:1], generated.prompt_lengths[:1], generated.limit[:1])
        for one in self.filters:
            scores = one(scores, first)
            if not isinstance(one, Renormalized):
                stages.append(scores)
        shares = torch.cat([one.softmax(dim=-1) for one in stages])
        order = shares[0].sort(descending=True, stable=True).indices.tolist()
        listed = order[:SHOWN] if chosen in order[:SHOWN] else [*order[:SHOWN], chosen]
        self.steps.append(
            Choice(
                step=len(self.steps) + 1,
                candidates=tuple(Candidate(id, self.name(id), tuple(shares[:, id].tolist())) for id in listed),
                left=tuple(int((one > -torch.inf).sum()) for one in stages),
                chosen=chosen,
                token=self.name(chosen),
                rank=order.index(chosen) + 1,
                log_probability=float(shares[0, chosen].log()),
            )
        )


@dataclass(eq=False)
class BeamWatch:
    """Told of the candidates of every step of one text, and what became of them."""

    name: Names
    strategy: Beam
    alternatives: int = SHOWN
    """Of every beam at least so many tokens are recorded."""
    branches: list[Branch] = field(default_factory=list)

    def grown(self, parent: int, ids: Sequence[int], likely: float, total: float, rank: int) -> int:
        """A candidate, for now one that is kept; its number."""
        self.branches.append(
            Branch(
                number=len(self.branches) + 1,
                parent=parent,
                step=len(ids),
                id=ids[-1],
                token=self.name(ids[-1]),
                log_probability=likely,
                total=total,
                score=total / len(ids) ** self.strategy.length_penalty,
                rank=rank,
                fate="kept",
                why="it is kept",
            )
        )
        return len(self.branches)

    def finished(self, node: int) -> None:
        """It ends and may win."""
        one = self.branches[node - 1]
        power = self.strategy.length_penalty
        rule = "" if power == 0 else f" / {one.step}" if power == 1 else f" / {one.step}^{power:g}"
        self._became(
            node, "finished", f"it ends here, with the score {_number(one.total)}{rule} = {_number(one.score)}"
        )

    def pruned(self, node: int, last_kept: float | None, size: int) -> None:
        """It is not among the best of its step."""
        one = self.branches[node - 1]
        if last_kept is None or one.total > last_kept:
            why = f"it ends, but as rank {one.rank} of its step: only the best {size} may finish"
            self._became(node, "pruned", why)
        else:
            beside = f"the last of the {size} that were kept" if size > 1 else "the one that was kept"
            why = (
                f"rank {one.rank} of its step: Σ log p {_number(one.total)} is not above {_number(last_kept)}, {beside}"
            )
            self._became(node, "pruned", why, last_kept)

    def left(self, node: int, worst: float) -> None:
        """It had finished, and better ones came."""
        one, size = self.branches[node - 1], self.strategy.size // self.strategy.parts
        why = f"it ended with the score {_number(one.score)}, but {size} better ones ended: the last {_number(worst)}"
        self._became(node, "pruned", why, worst)

    def abandoned(self, node: int, worst: float) -> None:
        """It was running when the search was over."""
        one, size = self.branches[node - 1], self.strategy.size // self.strategy.parts
        score = _number(one.score)
        why = f"when {size} had ended it stood at the score {score}, not above {_number(worst)}, the last of them"
        self._became(node, "pruned", why, worst)

    def _became(self, node: int, fate: Fate, why: str, threshold: float | None = None) -> None:
        self.branches[node - 1] = replace(self.branches[node - 1], fate=fate, why=why, threshold=threshold)


def _number(value: float) -> str:
    """With a real minus, and enough digits to tell it from 0."""
    return f"{value:.{3 if not value or abs(value) >= 0.01 else 5}f}".replace("-", "−")


def likeliest(row: Float[Tensor, "vocab"], count: int) -> list[int]:
    """The `count` likeliest ids, ties to the lower; those that are impossible are left out."""
    order = row.sort(descending=True, stable=True).indices[:count].tolist()
    return [token for token in order if not math.isinf(float(row[token]))]

"""What is done to a row's scores before a token is chosen, as a tuple of filters in a stated order.

    1  the model's own      RepetitionPenalty, NoRepeatNgram, Banned, Suppressed      (recipe or generation_config.json)
    2  constraints          MustNotContain, Allowed, MustContain, in the order given
    3  what is demanded     ForcedBos, ForcedEos
    4  the strategy's own   RepetitionPenalty, Temperature, TopK, TopP, MinP
    5  Renormalized         where a beam counts shares of what may be chosen

A filter takes scores and what stands in every row so far, and gives scores; what may not be chosen has `-inf`. Scores
are logits where one token is chosen or drawn, and log-probabilities in a beam, as transformers has it. Ties go to the
lower id, so that the result does not depend on how a sort is written.

The plain functions at the end are the arithmetic; a value for all rows may also be a tensor with one for each.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs

NOTHING = -1
"""In place of an id, where a row has no token yet."""


@dataclass(frozen=True, eq=False)
class Generated:
    """What stands in every row so far: the prompt, then what was written; from the left, `-1` behind it.

                                   ids                prompt_lengths    places
        two read, one written      5  3  8 -1 -1            2              1
        one read, two written      4  9  9 -1 -1            1              2

    All of it is on the device of the scores. Rows that are decoded together need not have written equally much, and
    how many columns there are behind the longest says nothing.
    """

    ids: Int[Tensor, "rows room"]
    prompt_lengths: Int[Tensor, "rows"]
    limit: Int[Tensor, "rows"]
    """The most new tokens of every row."""

    @property
    def lengths(self) -> Int[Tensor, "rows"]:
        """How many tokens stand in every row."""
        return (self.ids >= 0).sum(dim=1)

    @property
    def places(self) -> Int[Tensor, "rows"]:
        """How many of them were written: the place of the token that is chosen next, from 0."""
        return self.lengths - self.prompt_lengths

    def last(self, count: int) -> Int[Tensor, "rows count"]:
        """The last so many tokens of every row; `-1` before its first."""
        at = self.lengths[:, None] + torch.arange(-count, 0, device=self.ids.device)
        return self.ids.gather(1, at.clamp(min=0)).masked_fill(at < 0, NOTHING)

    def rows(self) -> list[list[int]]:
        """All tokens of every row, on the host: for filters that do not run on the device."""
        lengths = self.lengths.tolist()
        return [row[:length] for row, length in zip(self.ids.tolist(), lengths, strict=True)]

    def written(self) -> list[tuple[int, ...]]:
        """Those that were written, on the host."""
        read = self.prompt_lengths.tolist()
        return [tuple(row[length:]) for row, length in zip(self.rows(), read, strict=True)]

    @classmethod
    def begin(cls, inputs: Inputs, limit: int) -> "Generated":
        """The prompts, before anything is written."""
        tokens = inputs.tokens
        ids, lengths = tokens.ids, tokens.lengths.to(tokens.ids.device)
        if tokens.side == "left" and tokens.ragged:
            at = torch.arange(ids.shape[1], device=ids.device) + (ids.shape[1] - lengths)[:, None]
            ids = ids.gather(1, at.clamp(max=ids.shape[1] - 1))
        behind = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
        return cls(ids.masked_fill(behind, NOTHING), lengths, torch.full_like(lengths, limit))

    def select(self, rows: RowIds) -> "Generated":
        """These rows, in this order."""
        return Generated(self.ids[rows], self.prompt_lengths[rows], self.limit[rows])

    def then(self, ids: RowIds) -> "Generated":
        """With one token more in every row."""
        room = torch.cat([self.ids, self.ids.new_full((len(ids), 1), NOTHING)], dim=1)
        return Generated(room.scatter(1, self.lengths[:, None], ids[:, None]), self.prompt_lengths, self.limit)


@runtime_checkable
class Filter(Protocol):
    """Scores of the next token in, scores out; what may not be chosen has `-inf`.

    Laws: a row's scores depend on that row alone; the scores that are given stay as they were; a filter keeps nothing
    between calls.
    """

    @property
    def on_device(self) -> bool:
        """Whether it runs on a GPU without waiting for it: no value is read, no shape depends on one.

        An engine may then keep it inside a graph; rows with another filter are decoded by the plain loop.
        """
        ...

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """The scores of what may come next."""
        ...


def apply(filters: Sequence[Filter], scores: RowLogits, generated: Generated) -> RowLogits:
    """One filter after the other."""
    for one in filters:
        scores = one(scores, generated)
    return scores


# What a model's own file demands


@dataclass(frozen=True)
class Suppressed:
    """These tokens are never chosen, unless a later filter forces them."""

    ids: tuple[int, ...]
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for each of them."""
        return scores.index_fill(-1, on(scores.device, self.ids), -torch.inf)


@dataclass(frozen=True)
class ForcedBos:
    """Every answer begins with this token."""

    id: int
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """Only it, at the first place."""
        return _forced(scores, self.id, generated.places == 0)


@dataclass(frozen=True)
class ForcedEos:
    """This token stands at the limit of length, where nothing has ended the answer before."""

    id: int
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """Only it, at the last place."""
        return _forced(scores, self.id, generated.places == generated.limit - 1)


@dataclass(frozen=True)
class Renormalized:
    """Probabilities are shares of what may be chosen, not of everything; the last filter, where there is one."""

    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """The log-probabilities of what the filters before have left."""
        return scores.log_softmax(dim=-1)


# What sampling draws from


@dataclass(frozen=True)
class Temperature:
    """`z / T`: below 1 sharper, above 1 flatter."""

    value: float
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """In float64, and shifted so that the largest is 0, which a tiny T cannot overflow."""
        return temperature(scores.double(), self.value)


@dataclass(frozen=True)
class TopK:
    """Only the `count` most likely tokens."""

    count: int
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for the others."""
        return top_k(scores, self.count) if self.count < scores.shape[-1] else scores


@dataclass(frozen=True)
class TopP:
    """The smallest set of most likely tokens whose probability reaches `mass` (Holtzman et al. 2019, §3.1)."""

    mass: float
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for the others."""
        return top_p(scores, self.mass)


@dataclass(frozen=True)
class MinP:
    """Only tokens at least `share` times as likely as the most likely one (Nguyen et al. 2024, §3)."""

    share: float
    on_device: ClassVar[bool] = True

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for the others."""
        return min_p(scores, self.share)


def _forced(scores: RowLogits, token: int, where: Bool[Tensor, "rows"]) -> RowLogits:
    only = torch.full_like(scores, -torch.inf)
    only[:, token] = 0
    return torch.where(where[:, None], only, scores)


def on(device: torch.device, ids: tuple[int, ...]) -> Int[Tensor, "ids"]:
    """These ids as a tensor on a device: moved there once, not at every step."""
    found = _moved(device, ids)
    held = _held.get()
    if held is not None:
        held.append(found)
    return found


@contextmanager
def holding() -> Iterator[list[Tensor]]:
    """All that `on` gives meanwhile, to be held on to: a graph goes on reading it when it is kept here no more."""
    held: list[Tensor] = []
    before = _held.set(held)
    try:
        yield held
    finally:
        _held.reset(before)


_held: ContextVar[list[Tensor] | None] = ContextVar("held", default=None)


@lru_cache(maxsize=256)
def _moved(device: torch.device, ids: tuple[int, ...]) -> Int[Tensor, "ids"]:
    with torch.inference_mode(False):
        return torch.tensor(ids, dtype=torch.long, device=device)


# The arithmetic

PerRow = float | Float[Tensor, "rows 1"]


def temperature(logits: RowLogits, value: PerRow) -> RowLogits:
    """`z / T`, shifted so that the largest is 0."""
    return (logits - logits.amax(dim=-1, keepdim=True)) / value


def top_k(logits: RowLogits, count: int | Int[Tensor, "rows 1"]) -> RowLogits:
    """Only the `count` most likely tokens, of equals those with the lower id."""
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    if isinstance(count, int):
        return logits.scatter(-1, order[:, count:], -torch.inf)
    removed = (torch.arange(logits.shape[-1], device=logits.device) >= count).expand_as(order)
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -torch.inf)


def top_p(logits: RowLogits, mass: PerRow) -> RowLogits:
    """The smallest set of most likely tokens whose probability reaches `mass`, of equals those with the lower id.

    A mass of 1 keeps all: a sum of rounded probabilities may reach 1 before its last terms.
    """
    if not isinstance(mass, Tensor) and mass >= 1:
        return logits
    ranked = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ranked.values.double().softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    removed = before >= mass  # what stands before a token already reaches the mass
    if isinstance(mass, Tensor):
        removed &= mass < 1
    removed[:, 0] = False
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, ranked.indices, removed), -torch.inf)


def min_p(logits: RowLogits, share: PerRow) -> RowLogits:
    """Only tokens at least `share` times as likely as the most likely one: no sort and no sum is needed."""
    ratio = (logits - logits.amax(dim=-1, keepdim=True)).double().exp()
    return logits.masked_fill(ratio < share, -torch.inf)

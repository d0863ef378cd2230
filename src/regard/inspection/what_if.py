"""What becomes of the answer if heads are switched off or edges are cut: before and after, for one change or for each.

A weight says what a head reads, not what it does with it (Jain & Wallace 2019): beside every weight may stand what its
cutting does. What is told is the change of the log-probability, in nats, of what the model decided when nothing was
changed; below 0, the head helped. The effects of single heads do not add up: others take over (McGrath et al. 2023).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regard.errors import InputError
from regard.inspection.decisions import Decisions, Option
from regard.inspection.intervention import (
    EdgeKnockout,
    HeadAblation,
    Intervention,
    attention_places,
    intervene,
    mean_outputs,
)
from regard.models.network import Network

Ablation = Literal["zero", "mean"]
TOGETHER = 16
"""Copies of a text that are read side by side, each with a change of its own."""


@dataclass(frozen=True)
class Decision:
    """One token or label: what was decided, its log-probability in nats, and the likeliest, before and after."""

    chosen: str
    before: float
    after: float
    likeliest_before: tuple[Option, ...]
    likeliest_after: tuple[Option, ...]

    @property
    def change(self) -> float:
        """Of the log-probability."""
        return self.after - self.before


@dataclass(frozen=True)
class WhatIf:
    """The answer before and after, and every decision of the one before."""

    without: tuple[str, ...]
    """What was switched off or cut, as the command line writes it."""
    cut: tuple[float | None, ...]
    """Of each edge the weight it had, over all its heads; None of a head."""
    ablation: Ablation
    renormalise: bool
    decisions: tuple[Decision, ...]
    answers: tuple[str, str] | None = None
    """What the model says when it is asked anew, before and after; None where it was given what to write."""

    @property
    def change(self) -> float:
        """Of the whole answer's log-probability, in nats."""
        return sum(one.change for one in self.decisions)


@dataclass(frozen=True)
class HeadEffect:
    """What switching off one head does."""

    layer: str
    head: int
    change: float
    """Of the log-probability of the whole answer, in nats."""
    kept: bool
    """Whether every decision stays the likeliest."""


@dataclass(frozen=True)
class HeadEffects:
    """What switching off each head does, one at a time."""

    answer: tuple[str, ...]
    log_probability: float
    ablation: Ablation
    heads: tuple[HeadEffect, ...]

    def of(self, layer: str, head: int) -> HeadEffect:
        """One head's."""
        return next(one for one in self.heads if (one.layer, one.head) == (layer, head))


@dataclass(frozen=True)
class EdgeEffect:
    """What one query's reading of one key weighs, and what its cutting does."""

    key: int
    weight: float
    """Over all heads that are cut."""
    change: float
    kept: bool


@dataclass(frozen=True)
class EdgeEffects:
    """What cutting each edge of one row does, one at a time; edges that are not there are left out."""

    layer: str
    head: int | None
    query: int
    renormalise: bool
    answer: tuple[str, ...]
    log_probability: float
    edges: tuple[EdgeEffect, ...]


def what_if(
    module: Network,
    decided: Decisions,
    changes: Sequence[Intervention],
    ablation: Ablation = "zero",
    answer: Callable[[], str] | None = None,
) -> WhatIf:
    """Ask with these changes and without; `answer`, where it is given, asks the model to answer anew."""
    if not changes:
        raise InputError("nothing is switched off or cut", "name a head, layer:head, or an edge, layer:head:query:key")
    changes = resolved(module, decided, changes, ablation)
    [before] = decided.ask(module)
    with intervene(module, changes) as running:
        [after] = decided.ask(module)
    for change in changes:
        if change not in running.applied:
            raise InputError(f"there is nothing at {change} to be cut", "name a query and a key it may attend to")
    answers = None
    if answer is not None:
        first = answer()
        with intervene(module, changes):
            answers = (first, answer())
    values = zip(decided.of_chosen(before[None])[0].tolist(), decided.of_chosen(after[None])[0].tolist(), strict=True)
    decisions = tuple(
        Decision(decided.name(one), *pair, decided.likeliest(before[at]), decided.likeliest(after[at]))
        for at, (one, pair) in enumerate(zip(decided.chosen, values, strict=True))
    )
    edges = [one for one in changes if isinstance(one, EdgeKnockout)]
    return WhatIf(
        tuple(map(str, changes)),
        tuple(running.applied[one] if isinstance(one, EdgeKnockout) else None for one in changes),
        ablation,
        all(one.renormalise for one in edges),
        decisions,
        answers,
    )


def resolved(
    module: Network, decided: Decisions, changes: Sequence[Intervention], ablation: Ablation
) -> list[Intervention]:
    """The same with the vectors that heads get in place of their own."""
    if ablation == "zero" or not any(isinstance(one, HeadAblation) for one in changes):
        return list(changes)
    means, found = mean_outputs(module, decided.inputs), list[Intervention]()
    for one in changes:
        if isinstance(one, HeadAblation):
            one.place(module).check(one.head)
            found.append(replace(one, output=means[one.layer][one.head]))
        else:
            found.append(one)
    return found


def head_effects(module: Network, decided: Decisions, ablation: Ablation = "zero") -> HeadEffects:
    """Each head of each layer switched off alone."""
    places = attention_places(module).values()
    heads = [HeadAblation(place.layer, head) for place in places for head in range(place.heads)]
    before, found = _each(module, decided, resolved(module, decided, heads, ablation))
    effects = tuple(
        HeadEffect(one.layer, one.head, change, kept) for one, (change, kept, _) in zip(heads, found, strict=True)
    )
    return HeadEffects(_names(decided), before, ablation, effects)


def edge_effects(
    module: Network, decided: Decisions, layer: str, query: int, head: int | None = None, renormalise: bool = True
) -> EdgeEffects:
    """Each edge of one row cut alone, in one head or in all of the layer."""
    tokens = decided.inputs.tokens.ids.shape[1]
    source = decided.inputs.source
    rows, keys = tokens, tokens
    if source is not None and layer.startswith("encoder."):
        rows = keys = source.ids.shape[1]
    elif source is not None and layer.endswith(".cross"):
        keys = source.ids.shape[1]
    if not 0 <= query < rows:
        raise InputError(f"layer {layer!r} has {rows} rows and no row {query}", f"use 0 to {rows - 1}")
    cuts = [EdgeKnockout(layer, query, key, head, renormalise) for key in range(keys)]
    before, found = _each(module, decided, cuts)
    edges = tuple(
        EdgeEffect(one.key, weight, change, kept)
        for one, (change, kept, weight) in zip(cuts, found, strict=True)
        if weight
    )
    return EdgeEffects(layer, head, query, renormalise, _names(decided), before, edges)


def _names(decided: Decisions) -> tuple[str, ...]:
    return tuple(map(decided.name, decided.chosen))


def _each(
    module: Network, decided: Decisions, changes: Sequence[HeadAblation] | Sequence[Intervention]
) -> tuple[float, list[tuple[float, bool, float]]]:
    """The log-probability before, and for every change by itself: its change, whether the answer stays, its weight.

    Copies of the text are read side by side, the last of them unchanged: what they are compared with.
    """
    found: list[tuple[float, bool, float]] = []
    before = 0.0
    chosen = torch.tensor(decided.chosen)
    for first in range(0, len(changes), TOGETHER):
        some = [
            replace(one, sequence=at)
            for at, one in enumerate(changes[first : first + TOGETHER])
            if isinstance(one, HeadAblation | EdgeKnockout)
        ]
        with intervene(module, some) as running:
            likely = decided.ask(module, copies=len(some) + 1)
        totals: Tensor = decided.of_chosen(likely).sum(dim=1)
        kept = (likely.argmax(dim=-1).cpu() == chosen).all(dim=1)
        before = float(totals[-1])
        found += [
            (float(total - totals[-1]), bool(same), running.applied.get(one, 0.0))
            for one, total, same in zip(some, totals, kept, strict=False)
        ]
    return before, found

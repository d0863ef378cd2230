"""Beam search (Graves 2012, §2.5; length normalisation as in Wu et al. 2016, §7, with α as a plain power).

At every step each sequence keeps its `size` best unfinished beams. A candidate that ends is finished if it ranks
among the `size` best of its step; finished ones compete by `Σ log p / lengthᵅ`. A sequence is done when `size` have
finished and the best running beam, scored at its present length, is no better than the worst of them; at the
length limit what is running counts as finished. That is transformers' rule for `early_stopping=False`.

**Groups** (Vijayakumar et al. 2016, Algorithm 1) are searched one after the other at every step, each by this rule with
its share of `size`; what earlier groups have just chosen costs a later one `diversity_penalty` a time, in choosing.
**Banks** (Hokamp and Liu 2017): where a constraint tells how many tokens are missing, `size` beams are kept for every
such number, and only beams that miss none may finish.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Inputs
from regard.decoding.constraints import Banked
from regard.decoding.filters import Filter, Generated, apply
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.largest import largest
from regard.decoding.stepper import S, Stepper
from regard.decoding.strategies import Beam
from regard.decoding.trace import BeamWatch, likeliest
from regard.errors import InputError


@dataclass
class _Running:
    """An unfinished beam: its tokens, their log-probabilities and total, the rows they were computed in.

    `row` is the row of the next step, `node` its number in a watched tree.
    """

    ids: tuple[int, ...] = ()
    likely: tuple[float, ...] = ()
    total: float = 0.0
    rows: tuple[int, ...] = ()
    row: int = 0
    node: int = 0

    def then(self, token: int, total: float) -> "_Running":
        """It, with one token more."""
        return _Running((*self.ids, token), (*self.likely, total - self.total), total, (*self.rows, self.row))


@dataclass(frozen=True)
class _Candidate:
    """A beam, by its place in its sequence, and a token after it; what both have together."""

    beam: int
    token: int
    total: float


@dataclass
class _Sequence:
    """One group of one sequence of the batch: its running beams, best first, and what has finished."""

    text: int
    group: int
    size: int
    running: list[_Running]
    finished: list[Hypothesis] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    """Of the finished ones, in a watched tree."""
    done: bool = False

    def finish(self, beam: _Running, score: float, watch: BeamWatch | None) -> None:
        """Enter a beam among the finished; the worst leaves when there are more than `size`."""
        at = sum(one.score >= score for one in self.finished)  # earlier ones win ties
        self.finished.insert(at, Hypothesis(beam.ids, score, beam.rows, beam.likely))
        self.nodes.insert(at, beam.node)
        if watch is not None:
            watch.finished(beam.node)
        if len(self.finished) > self.size:
            self.finished.pop()
            worst = self.nodes.pop()
            if watch is not None:
                watch.left(worst, self.finished[-1].score)


@dataclass(frozen=True, eq=False)
class _Rule:
    """What holds for all of a search."""

    strategy: Beam
    stop: Stop
    filters: tuple[Filter, ...]
    watch: BeamWatch | None = None

    @property
    def banked(self) -> Banked | None:
        """The constraint that beams are kept in banks by, if there is one."""
        return next((one for one in self.filters if isinstance(one, Banked)), None)

    @property
    def looked_at(self) -> int:
        """So many candidates that `size` are left to run if every beam's best tokens are all those that end."""
        return (1 + len(self.stop.eos_ids)) * (self.strategy.size // self.strategy.parts)

    def score(self, beam: _Running) -> float:
        """The length rule."""
        return float(beam.total / len(beam.ids) ** self.strategy.length_penalty)

    def ended(self, beam: _Running) -> bool:
        """By its last tokens, or by the limit."""
        return len(beam.ids) == self.stop.max_new_tokens or self.stop.ended(beam.ids)


def search_all(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Beam,
    stop: Stop,
    filters: Sequence[Filter] = (),
    watch: BeamWatch | None = None,
) -> list[list[Hypothesis]]:
    """All finished hypotheses of every sequence, best first; what happens to the first sequence is told to `watch`."""
    *_, sequences = _steps(stepper, inputs, _Rule(strategy, stop, tuple(filters), watch))
    return [_ranked(sequences, text) for text in range(len(inputs.tokens.ids))]


def search_shared(
    stepper: Stepper[S], inputs: Inputs, strategy: Beam, stop: Stop, filters: Sequence[Filter] = ()
) -> Iterator[tuple[int, ...] | Hypothesis]:
    """Of one sequence, after every step the tokens that everything shares that may still win; in the end the best."""
    sequences: list[_Sequence] = []
    for sequences in _steps(stepper, inputs, _Rule(strategy, stop, tuple(filters))):
        live = [beam.ids for one in sequences if not one.done for beam in one.running]
        yield _shared([*live, *(found.ids for one in sequences for found in one.finished)])
    yield _ranked(sequences, 0)[0]


@torch.no_grad()
def _steps(stepper: Stepper[S], inputs: Inputs, rule: _Rule) -> Iterator[list[_Sequence]]:
    """The sequences after every step, the groups of a text one after the other."""
    strategy, limit = rule.strategy, rule.stop.max_new_tokens
    if rule.banked is not None and strategy.parts > 1:
        raise InputError("a beam in groups keeps no banks for what must stand in it", "leave the diversity penalty out")
    state, texts = stepper.start(inputs), len(inputs.tokens.ids)
    ids = torch.tensor([prompt[-1] for prompt in inputs.tokens.rows()], device=inputs.tokens.ids.device)
    generated = Generated.begin(inputs, limit) if rule.filters else None
    size = strategy.size // strategy.parts
    sequences = [
        _Sequence(text, group, size, [_Running(row=text)]) for text in range(texts) for group in range(strategy.parts)
    ]
    for _ in range(limit):
        logits, state = stepper.step(ids, state)
        likely = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        likely = likely if rule.watch is None else likely.double()
        check_likely(likely[:, 0])  # one logit that is no number makes its whole row none
        if generated is not None:
            likely = apply(rule.filters, likely, generated)
        _grow(rule, [sequence for sequence in sequences if not sequence.done], likely)
        yield sequences
        running = [beam for sequence in sequences if not sequence.done for beam in sequence.running]
        if not running:
            return
        rows = torch.tensor([beam.rows[-1] for beam in running], device=ids.device)
        ids = torch.tensor([beam.ids[-1] for beam in running], device=ids.device)
        state = state.select(rows)
        generated = None if generated is None else generated.select(rows).then(ids)
        for row, beam in enumerate(running):
            beam.row = row


def check_likely(log_probabilities: Float[Tensor, "*rows"], what: str = "the model's logits") -> None:
    """Refuse probabilities that are no numbers: nothing can be chosen by them."""
    if log_probabilities.isnan().any():
        raise InputError(f"{what} hold NaN", "look where it comes from: weights of a training that diverged, or inputs")


def nothing_left(place: int) -> InputError:
    """What is said where filters leave no token."""
    return InputError(
        f"the constraints leave no token to choose as token {place + 1} of the answer",
        "loosen them: what is demanded is also banned, or nothing is allowed there",
    )


def _grow(rule: _Rule, going: list[_Sequence], likely: Float[Tensor, "rows vocab"]) -> None:
    """One token more in every sequence that goes on, group after group."""
    said: dict[int, Counter[int]] = {sequence.text: Counter() for sequence in going}
    for group in range(rule.strategy.parts):
        members = [sequence for sequence in going if sequence.group == group]
        if not members:
            continue
        rows = [beam.row for sequence in members for beam in sequence.running]
        own = likely if len(rows) == len(likely) else likely[torch.tensor(rows, device=likely.device)]
        costs = [{token: rule.strategy.diversity_penalty * n for token, n in said[one.text].items()} for one in members]
        first = 0
        for sequence, banks in zip(members, _candidates(rule, members, own, costs), strict=True):
            beams = len(sequence.running)
            _extend(rule, sequence, banks, own[first : first + beams])
            first += beams
            said[sequence.text].update(beam.ids[-1] for beam in sequence.running)
            _settle(rule, sequence)


Banks = dict[int, list[_Candidate]]
"""Candidates of a sequence, best first, by how many demanded tokens they miss; all at 0 where nothing is demanded."""


def _candidates(
    rule: _Rule, members: list[_Sequence], likely: Float[Tensor, "rows vocab"], costs: list[dict[int, float]]
) -> Iterator[Banks]:
    """Of every sequence those that are looked at."""
    ends = list(accumulate(len(one.running) for one in members))
    parts = [likely[end - len(one.running) : end] for one, end in zip(members, ends, strict=True)]
    if rule.banked is not None:
        yield from (_in_banks(rule, rule.banked, one, part) for one, part in zip(members, parts, strict=True))
        return
    for number, best in enumerate(_best(likely, [one.running for one in members], rule.looked_at, costs)):
        count, sequence, found = rule.looked_at, members[number], best
        while rule.stop.met is not None and len(found) == count and _runs_on(rule, sequence, found) < sequence.size:
            count *= 4  # more of them end than there are tokens that do: look further
            [found] = _best(parts[number], [sequence.running], count, [costs[number]])
        yield {0: found}


def _runs_on(rule: _Rule, sequence: _Sequence, candidates: list[_Candidate]) -> int:
    return sum(not rule.ended(sequence.running[one.beam].then(one.token, one.total)) for one in candidates)


def _in_banks(rule: _Rule, banked: Banked, sequence: _Sequence, likely: Float[Tensor, "beams vocab"]) -> Banks:
    """Every beam's best tokens and those after which less is missing, by how many tokens are missing then."""
    found: Banks = {}
    for place, (beam, row) in enumerate(zip(sequence.running, likely, strict=True)):
        wanted = banked.wanted(beam.ids)
        for token in sorted({*likeliest(row, rule.looked_at + len(wanted)), *wanted}):
            total = beam.total + float(row[token])
            if total > -torch.inf:
                found.setdefault(banked.missing((*beam.ids, token)), []).append(_Candidate(place, token, total))
    return {bank: sorted(found[bank], key=lambda one: (-one.total, one.beam, one.token)) for bank in sorted(found)}


def _extend(rule: _Rule, sequence: _Sequence, banks: Banks, likely: Float[Tensor, "beams vocab"]) -> None:
    """Of the best candidates of every bank, those that end may finish and `size` others run on."""
    running: list[_Running] = []
    watch = rule.watch if sequence.text == 0 else None
    for missing, candidates in banks.items():
        kept: list[_Running] = []
        refused: list[_Running] = []
        for rank, one in enumerate(candidates):
            parent = sequence.running[one.beam]
            longer = parent.then(one.token, one.total)
            ended = rule.ended(longer)
            if watch is not None:
                longer.node = watch.grown(parent.node, longer.ids, longer.likely[-1], longer.total, rank + 1)
            if ended and rank < sequence.size and not missing:
                sequence.finish(longer, rule.score(longer), watch)
            elif not ended and len(kept) < sequence.size:
                kept.append(longer)
            else:
                refused.append(longer)
        running += kept
        if watch is not None:
            for longer in refused:
                watch.pruned(longer.node, kept[-1].total if kept else None, sequence.size)
    if watch is not None:
        least = min((one.total for one in running), default=None)
        _tell_others(watch, sequence, banks, likely, least)
    if not running and not sequence.finished:
        raise nothing_left(len(sequence.running[0].ids))
    sequence.running = running


def _tell_others(
    watch: BeamWatch, sequence: _Sequence, banks: Banks, likely: Float[Tensor, "beams vocab"], least: float | None
) -> None:
    """Tokens that were not even looked at, so that every beam has alternatives; `least` is the last that is kept."""
    known = {(one.beam, one.token) for candidates in banks.values() for one in candidates}
    before = torch.tensor([beam.total for beam in sequence.running], dtype=likely.dtype, device=likely.device)
    totals = likely + before[:, None]
    for place, beam in enumerate(sequence.running):
        for token in likeliest(likely[place], watch.alternatives):
            if (place, token) not in known:
                total = float(totals[place, token])
                rank = 1 + int((totals > total).sum())
                node = watch.grown(beam.node, (*beam.ids, token), float(likely[place, token]), total, rank)
                watch.pruned(node, least, sequence.size)


def _settle(rule: _Rule, sequence: _Sequence) -> None:
    """Done when nothing that runs can still enter, by the score at its present length."""
    if not sequence.running:
        sequence.done = True
    elif len(sequence.finished) == sequence.size:
        worst = sequence.finished[-1].score
        sequence.done = max(map(rule.score, sequence.running)) <= worst
        if sequence.done and rule.watch is not None and sequence.text == 0:
            for beam in sequence.running:
                rule.watch.abandoned(beam.node, worst)


def _best(
    likely: Float[Tensor, "rows vocab"], running: list[list[_Running]], count: int, costs: list[dict[int, float]]
) -> Iterator[list[_Candidate]]:
    """The `count` best candidates of every sequence, best first: every beam by every token that is possible.

    Of each beam so many are looked at, found in all rows together: a question of its own for each would take a GPU
    longer than a layer, and numbers for the whole vocabulary would take a CPU longer than the model. What tokens cost a
    sequence besides decides which are best, and is not in their totals.
    """
    most = min(count + max(map(len, costs)), likely.shape[1])  # those that cost something may be taken back
    values, ids = largest(likely, most)
    found = zip(values.tolist(), ids.tolist(), strict=True)
    for beams, cost in zip(running, costs, strict=True):
        candidates = [
            (beam.total + value - cost.get(token, 0.0), _Candidate(place, token, beam.total + value))
            for place, (beam, own) in enumerate(zip(beams, islice(found, len(beams)), strict=True))
            for value, token in zip(*own, strict=True)
            if value > -torch.inf
        ]
        candidates.sort(key=lambda one: (-one[0], one[1].beam, one[1].token))
        yield [one for _, one in candidates[:count]]


def _ranked(sequences: list[_Sequence], text: int) -> list[Hypothesis]:
    """What the groups of a text have found, each once, best first."""
    found = [one for sequence in sequences if sequence.text == text for one in sequence.finished]
    once = {one.ids: one for one in reversed(found)}
    return sorted((one for one in found if once[one.ids] is one), key=lambda one: -one.score)


def _shared(texts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """What all of them begin with."""
    return tuple(column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False)))

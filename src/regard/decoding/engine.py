"""The decoding loop: any Stepper, any strategy, batched, cached, streamed where tokens are final when chosen.

Rows are sequences being decoded. Finished ones leave the batch, beams change places: `Hypothesis.rows` keeps, for
every generated token, the row in which it was computed, so that a capture can follow it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs
from regard.decoding.beam import check_likely, search_all
from regard.decoding.counter_random import seed_of, uniform
from regard.decoding.filters import Filter, apply
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.paths import decode_in_place, why_plain
from regard.decoding.stepper import S, Stepper
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.errors import InputError


class DecodingListener(Protocol):
    """Who is told of every decoding: how a capture learns what belongs together, and which rows became which text."""

    def opened(self, inputs: Inputs) -> None:
        """Decoding of these begins; what is computed from here on belongs to it."""
        ...

    def started(self) -> None:
        """The prompt is read but for its last token; every call from here on is a step."""
        ...

    def finished(self, inputs: Inputs, outcome: list[Hypothesis]) -> None:
        """Decoding is over: these rows became these texts."""
        ...

    def closed(self) -> None:
        """It is over, or was left."""
        ...


listeners: ContextVar[tuple[DecodingListener, ...]] = ContextVar("listeners", default=())
"""Those of this thread."""


@contextmanager
def decoding(inputs: Inputs) -> Iterator[Callable[[list[Hypothesis]], None]]:
    """Tell the listeners of a decoding, from its beginning to its end; call what it gives with what was found."""
    told = listeners.get()

    def finished(outcome: list[Hypothesis]) -> None:
        for one in listeners.get():  # of a stream, also one that came later
            one.finished(inputs, outcome)

    for one in told:
        one.opened(inputs)
    try:
        yield finished
    finally:
        for one in told:
            one.closed()


@dataclass(frozen=True)
class _Told(Generic[S]):
    """A stepper whose start is told of."""

    stepper: Stepper[S]

    def start(self, inputs: Inputs) -> S:
        state = self.stepper.start(inputs)
        for one in listeners.get():
            one.started()
        return state

    def step(self, ids: RowIds, state: S) -> tuple[RowLogits, S]:
        return self.stepper.step(ids, state)

    def extend(self, ids: Int[Tensor, "rows tokens"], state: S) -> tuple[Float[Tensor, "rows tokens vocab"], S]:
        return self.stepper.extend(ids, state)


def generate(
    stepper: Stepper[S], inputs: Inputs, strategy: Strategy, stop: Stop, filters: Sequence[Filter] = ()
) -> list[Hypothesis]:
    """The generated ids of every sequence of the batch, without the prompt, with the end where it was reached."""
    return [ranked[0] for ranked in generate_ranked(stepper, inputs, strategy, stop, filters)]


@torch.inference_mode()
def generate_ranked(
    stepper: Stepper[S], inputs: Inputs, strategy: Strategy, stop: Stop, filters: Sequence[Filter] = ()
) -> list[list[Hypothesis]]:
    """All that is found for every sequence, best first: what finished in a beam, else the one that was chosen."""
    with decoding(inputs) as finished:
        if isinstance(strategy, Beam):
            found = search_all(_Told(stepper), inputs, strategy, stop, filters)
        elif not listeners.get() and why_plain(stepper, inputs, strategy, stop, filters) is None:
            found = [[one] for one in decode_in_place(stepper, inputs, strategy, stop, range(len(inputs.tokens.ids)))]
        else:
            chosen = _collect(inputs.tokens.ids.shape[0], _advance(_Told(stepper), inputs, strategy, stop, filters))
            found = [[one] for one in chosen]
        finished([ranked[0] for ranked in found])
    return found


@torch.no_grad()
def stream(
    stepper: Stepper[S], inputs: Inputs, strategy: Greedy | Sample, stop: Stop, filters: Sequence[Filter] = ()
) -> Iterator[int]:
    """The ids of a single sequence as they are chosen."""
    if inputs.tokens.ids.shape[0] != 1:
        raise InputError(f"{inputs.tokens.ids.shape[0]} sequences cannot share one stream", "stream one at a time")
    sequence = []
    with decoding(inputs) as finished:
        for moment in _advance(_Told(stepper), inputs, strategy, stop, filters):
            sequence.append(moment)
            yield int(moment.ids[0])
        finished(_collect(1, iter(sequence)))


@dataclass(frozen=True, eq=False)
class _Moment:
    """One step of the loop: which sequence is in which row, what was chosen there and how likely it was."""

    sequence: list[int]
    ids: RowIds
    log_probabilities: Float[Tensor, "rows"]


def _advance(
    stepper: Stepper[S], inputs: Inputs, strategy: Greedy | Sample, stop: Stop, filters: Sequence[Filter]
) -> Iterator[_Moment]:
    """Choose, record, drop what has finished, go on."""
    state = stepper.start(inputs)
    ids = last_tokens(inputs)
    sequence = list(range(len(ids)))
    draws = _Draws(strategy if isinstance(strategy, Sample) else None, len(ids))
    for place in range(stop.max_new_tokens):
        logits, state = stepper.step(ids, state)
        ids = strategy.choose(apply(filters, logits, place, stop.max_new_tokens), draws(sequence))
        likely = _log_probability(logits, ids)
        check_likely(likely)
        yield _Moment(sequence, ids, likely)
        going = [row for row, token in enumerate(ids.tolist()) if token not in stop.eos_ids]
        if not going:
            return
        if len(going) < len(sequence):
            keep = torch.tensor(going, device=ids.device)
            state, ids, sequence = state.select(keep), ids[keep], [sequence[row] for row in going]


def last_tokens(inputs: Inputs) -> RowIds:
    """The last token of every prompt, which the first step gets."""
    tokens = inputs.tokens
    if tokens.side == "left" or not tokens.ragged:
        return tokens.ids[:, -1]
    return tokens.ids.gather(1, tokens.lengths[:, None] - 1).squeeze(1)


def _log_probability(logits: RowLogits, ids: RowIds) -> Float[Tensor, "rows"]:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide.log_softmax(dim=-1).gather(1, ids[:, None]).squeeze(1)


class _Draws:
    """Uniform numbers, a stream of its own for every sequence."""

    def __init__(self, strategy: Sample | None, sequences: int) -> None:
        self.seeds, self.place = None, 0
        if strategy is not None:
            numbers = range(strategy.first, strategy.first + sequences)
            self.seeds = torch.tensor([seed_of(strategy.seed, number) for number in numbers])

    def __call__(self, sequence: list[int]) -> Float[Tensor, "rows"]:
        if self.seeds is None:
            return torch.zeros(len(sequence))
        drawn = uniform(self.seeds[sequence], torch.full((len(sequence),), self.place))
        self.place += 1
        return drawn


def _collect(sequences: int, moments: Iterator[_Moment]) -> list[Hypothesis]:
    """The moments, turned into one hypothesis per sequence."""
    ids: list[list[int]] = [[] for _ in range(sequences)]
    rows: list[list[int]] = [[] for _ in range(sequences)]
    scores = [0.0] * sequences
    for moment in moments:
        chosen, likely = moment.ids.tolist(), moment.log_probabilities.tolist()
        for row, index in enumerate(moment.sequence):
            ids[index].append(chosen[row])
            rows[index].append(row)
            scores[index] += likely[row]
    return [Hypothesis(tuple(i), s, tuple(r)) for i, s, r in zip(ids, scores, rows, strict=True)]

"""The decoding loop: any Stepper, any strategy, batched, cached, streamed where tokens are final when chosen.

Rows are sequences being decoded. Finished ones leave the batch, beams change places: `Hypothesis.rows` keeps, for
every generated token, the row in which it was computed, so that a capture can follow it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Generic, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs
from regard.decoding.beam import check_likely, nothing_left, search_all, search_shared
from regard.decoding.constraints import MustContain, MustNotContain
from regard.decoding.contrastive import contrast
from regard.decoding.counter_random import seed_of, uniform
from regard.decoding.filters import Filter, ForcedBos, ForcedEos, Generated, Renormalized, apply
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.moment import Moment, Written, collect, last_tokens, log_probability
from regard.decoding.paths import decode_in_place, why_plain
from regard.decoding.reading import begun
from regard.decoding.row_beams import decode_beams
from regard.decoding.sliding import Sliding, unslid
from regard.decoding.speculative import Draft, speculate
from regard.decoding.stepper import S, Stepper
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample, Strategy
from regard.decoding.trace import BeamWatch, StepWatch
from regard.errors import InputError
from regard.models.network import Network


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
        told = listeners.get()
        state = self.stepper.start(inputs) if told else begun(self.stepper, inputs)
        for one in told:
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
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Strategy,
    stop: Stop,
    filters: Sequence[Filter] = (),
    numbers: Sequence[int] | None = None,
    draft: Draft | None = None,
) -> list[list[Hypothesis]]:
    """All that is found for every sequence, best first: what finished in a beam, else the one that was chosen.

    `numbers` say which text of a call each is, where they do not stand in its order: what is drawn goes by that. With a
    `draft` tokens are guessed (speculative.py), unless somebody watches.
    """
    require_prompts(inputs)
    filters, numbers = ordered(filters, strategy), numbers or range(len(inputs.tokens.ids))
    if not isinstance(strategy, Contrastive):  # which reads one token more
        stepper = unslid(stepper, inputs, stop.max_new_tokens)
    if draft is not None and not listeners.get():
        moments = _guessed(stepper, inputs, strategy, stop, filters, draft, numbers)
        return [[replace(one, path="speculative")] for one in collect(len(numbers), moments)]
    with decoding(inputs) as finished:
        in_place = _in_place(stepper, inputs, strategy, stop, filters)
        if isinstance(strategy, Beam) and in_place:
            assert isinstance(stepper, Network)
            found = decode_beams(stepper, inputs, strategy, stop, filters)
        elif isinstance(strategy, Beam):
            found = search_all(_Told(stepper), inputs, strategy, stop, filters)
        elif isinstance(strategy, Greedy | Sample) and in_place:
            found = [[one] for one in decode_in_place(stepper, inputs, strategy, stop, filters, numbers)]
        else:
            chosen = collect(len(numbers), _moments(_Told(stepper), inputs, strategy, stop, filters, None, numbers))
            found = [[one] for one in chosen]
        finished([ranked[0] for ranked in found])
    return found


def _in_place(stepper: Stepper[S], inputs: Inputs, strategy: Strategy, stop: Stop, filters: Sequence[Filter]) -> bool:
    """Whether the engine decodes it: what is watched is decoded step by step."""
    return not listeners.get() and why_plain(stepper, inputs, strategy, stop, filters) is None


def _guessed(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Strategy,
    stop: Stop,
    filters: tuple[Filter, ...],
    draft: Draft,
    numbers: Sequence[int],
) -> Iterator[Moment]:
    """Decoding by guesses, of what can be decoded so."""
    if not isinstance(strategy, Greedy | Sample):
        raise InputError(f"a draft has no effect on {type(strategy).__name__}", "use greedy or sample")
    draws = _Draws(strategy if isinstance(strategy, Sample) else None, numbers)
    if not isinstance(stepper, Sliding):
        return speculate(stepper, inputs, strategy, stop, filters, draft, draws.at)
    longest = int(inputs.tokens.lengths.max()) + stop.max_new_tokens - 1
    if longest > stepper.limit:
        raise InputError(
            f"{longest} tokens are more than the {stepper.limit} that the model reads at once, and no draft guesses "
            "for a window that slides",
            "ask for fewer new tokens, or leave the draft out",
        )
    return speculate(stepper.stepper, inputs, strategy, stop, filters, draft, draws.at)


@torch.no_grad()
def stream(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Strategy,
    stop: Stop,
    filters: Sequence[Filter] = (),
    draft: Draft | None = None,
) -> Iterator[int]:
    """The ids of a single sequence as they are certain: chosen, or shared by all of a beam that may still win."""
    if inputs.tokens.ids.shape[0] != 1:
        raise InputError(f"{inputs.tokens.ids.shape[0]} sequences cannot share one stream", "stream one at a time")
    require_prompts(inputs)
    filters = ordered(filters, strategy)
    if draft is not None and not listeners.get():
        for moment in _guessed(stepper, inputs, strategy, stop, filters, draft, range(1)):
            yield int(moment.ids[0])
        return
    with decoding(inputs) as finished:
        if isinstance(strategy, Beam):
            given = 0
            for found in search_shared(_Told(stepper), inputs, strategy, stop, filters):
                ids = found.ids if isinstance(found, Hypothesis) else found
                yield from ids[given:]
                given = max(given, len(ids))
                if isinstance(found, Hypothesis):
                    finished([found])
            return
        sequence = []
        for moment in _moments(_Told(stepper), inputs, strategy, stop, filters):
            sequence.append(moment)
            yield int(moment.ids[0])
        finished(collect(1, iter(sequence)))


@torch.inference_mode()
def watch_beam(
    stepper: Stepper[S], inputs: Inputs, strategy: Beam, stop: Stop, filters: Sequence[Filter], watch: BeamWatch
) -> list[Hypothesis]:
    """What a beam finds for a single sequence, `watch` being told of every candidate; by the same loop."""
    require_prompts(inputs)
    return search_all(stepper, inputs, strategy, stop, ordered(filters, strategy), watch)[0]


@torch.inference_mode()
def watch_steps(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Greedy | Sample | Contrastive,
    stop: Stop,
    filters: Sequence[Filter],
    watch: StepWatch,
) -> Hypothesis:
    """What is chosen for a single sequence, `watch` being told of every step; by the same loop."""
    require_prompts(inputs)
    return collect(1, _moments(stepper, inputs, strategy, stop, ordered(filters, strategy), watch))[0]


def require_prompts(inputs: Inputs) -> None:
    """Refuse rows that begin with nothing: the first step reads a prompt's last token."""
    tokens = inputs.tokens
    if not tokens.ids.shape[1] or (tokens.ragged and int(tokens.lengths.min()) == 0):
        raise InputError("a prompt of no tokens has nothing to go on from", "begin it with the token that begins texts")


def ordered(filters: Sequence[Filter], strategy: Strategy) -> tuple[Filter, ...]:
    """A model's filters and a strategy's constraints in the order of filters.py; the strategy's own come after."""
    constraints: list[Filter] = []
    for one in strategy.constraints:
        if isinstance(one, MustContain | MustNotContain):
            raise InputError(
                f"{one!r} is a text, and nobody says how it is cut", "give it to `Model.run`, or `bind` it"
            )
        constraints.append(one)
    if not constraints:
        return tuple(filters)
    last = [one for one in filters if isinstance(one, ForcedBos | ForcedEos | Renormalized)]
    return (*(one for one in filters if one not in last), *constraints, *last)


def _moments(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Greedy | Sample | Contrastive,
    stop: Stop,
    filters: tuple[Filter, ...],
    watch: StepWatch | None = None,
    numbers: Sequence[int] | None = None,
) -> Iterator[Moment]:
    """One step after the other, whichever way tokens are chosen."""
    if isinstance(strategy, Contrastive):
        if listeners.get():
            raise InputError(
                "contrastive search reads tokens that it does not write, so it cannot be watched",
                "use another strategy",
            )
        return contrast(
            stepper.stepper if isinstance(stepper, _Told) else stepper, inputs, strategy, stop, filters, watch
        )
    draws = _Draws(strategy if isinstance(strategy, Sample) else None, numbers or range(len(inputs.tokens.ids)))
    return _advance(stepper, inputs, strategy, stop, filters, watch, draws)


def _advance(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Greedy | Sample,
    stop: Stop,
    filters: tuple[Filter, ...],
    watch: StepWatch | None,
    draws: "_Draws",
) -> Iterator[Moment]:
    """Choose, record, drop what has finished, go on."""
    state = stepper.start(inputs)
    ids = last_tokens(inputs)
    sequence = list(range(len(ids)))
    written = Written(stop, len(ids))
    needed = filters or strategy.filters or watch
    generated = Generated.begin(inputs, stop.max_new_tokens) if needed else None
    for place in range(stop.max_new_tokens):
        logits, state = stepper.step(ids, state)
        scores = logits if generated is None else apply(filters, logits, generated)
        if filters and bool((scores.amax(dim=-1) == -torch.inf).any()):
            raise nothing_left(place)
        scores = scores if generated is None else apply(strategy.filters, scores, generated)
        ids = strategy.choose(scores, draws(sequence))
        likely = log_probability(logits, ids)
        check_likely(likely)
        if watch is not None and generated is not None:
            watch.told(logits, generated, int(ids[0]))
        yield Moment(sequence, ids, likely)
        going = written.going(sequence, ids.tolist())
        if not going:
            return
        generated = None if generated is None else generated.then(ids)
        if len(going) < len(sequence):
            keep = torch.tensor(going, device=ids.device)
            state, ids, sequence = state.select(keep), ids[keep], [sequence[row] for row in going]
            generated = None if generated is None else generated.select(keep)


class _Draws:
    """Uniform numbers, a stream of its own for every sequence."""

    def __init__(self, strategy: Sample | None, numbers: Sequence[int]) -> None:
        self.seeds, self.place = None, 0
        if strategy is not None:
            self.seeds = torch.tensor([seed_of(strategy.seed, strategy.first + number) for number in numbers])

    def __call__(self, sequence: Sequence[int]) -> Float[Tensor, "rows"]:
        self.place += 1
        return self.at(sequence, torch.full((len(sequence),), self.place - 1))

    def at(self, sequence: Sequence[int], places: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
        """Of these sequences, each at a place of its own."""
        return torch.zeros(len(sequence)) if self.seeds is None else uniform(self.seeds[list(sequence)], places)

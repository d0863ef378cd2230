"""Beam search (Graves 2012, §2.5; length normalisation as in Wu et al. 2016, §7, with α as a plain power).

At every step each sequence keeps its `size` best unfinished beams. A candidate that ends is finished if it ranks
among the `size` best of its step; finished ones compete by `Σ log p / lengthᵅ`. A sequence is done when `size` have
finished and the best running beam, scored at its present length, is no better than the worst of them; at the
length limit what is running counts as finished. That is transformers' rule for `early_stopping=False`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from regard.axes import RowIds
from regard.data.batching import Inputs
from regard.decoding.filters import Filter, apply
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.stepper import S, Stepper
from regard.decoding.strategies import Beam
from regard.errors import InputError


@dataclass(frozen=True)
class _Running:
    """An unfinished beam: its tokens, their total log-probability, and the rows they were computed in."""

    ids: tuple[int, ...]
    total: float
    rows: tuple[int, ...]


@dataclass
class _Sequence:
    """One sequence of the batch: its running beams, best first, and what has finished."""

    running: list[_Running]
    finished: list[Hypothesis] = field(default_factory=list)
    done: bool = False

    def finish(self, beam: _Running, strategy: Beam) -> None:
        """Enter a beam among the finished; the worst leaves when there are more than `size`."""
        score = beam.total / len(beam.ids) ** strategy.length_penalty
        self.finished.append(Hypothesis(beam.ids, score, beam.rows))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)  # stable: earlier ones win ties
        del self.finished[strategy.size :]

    def settle(self, strategy: Beam) -> None:
        """Done when nothing that runs can still enter, by the score at its present length."""
        if not self.running:
            self.done = True
        elif len(self.finished) == strategy.size:
            best = self.running[0]
            self.done = best.total / len(best.ids) ** strategy.length_penalty <= self.finished[-1].score


@torch.no_grad()
def search_all(
    stepper: Stepper[S], inputs: Inputs, strategy: Beam, stop: Stop, filters: Sequence[Filter] = ()
) -> list[list[Hypothesis]]:
    """All finished hypotheses of every sequence, best first."""
    state = stepper.start(inputs)
    prompts = inputs.tokens.rows()
    ids = torch.tensor([prompt[-1] for prompt in prompts], device=inputs.tokens.ids.device)
    sequences = [_Sequence([_Running((), 0.0, ())]) for _ in prompts]
    for place in range(stop.max_new_tokens):
        logits, state = stepper.step(ids, state)
        likely = logits.double().log_softmax(dim=-1)
        check_likely(likely[:, 0])  # one logit that is no number makes its whole row none
        likely = apply(filters, likely, place, stop.max_new_tokens)
        going = [sequence for sequence in sequences if not sequence.done]
        # so many that `size` are left to run if every beam's best tokens are all those that end
        best = _best(likely, [one.running for one in going], (1 + len(stop.eos_ids)) * strategy.size)
        row = 0
        for sequence, candidates in zip(going, best, strict=True):
            beams = len(sequence.running)
            _extend(sequence, row, candidates, strategy, stop)
            row += beams
            sequence.settle(strategy)
        running = [beam for sequence in going if not sequence.done for beam in sequence.running]
        if not running:
            break
        ids, state = _reorder(running, state, ids.device)
    return [sequence.finished for sequence in sequences]


def check_likely(log_probabilities: Float[Tensor, "rows"]) -> None:
    """Refuse probabilities that are no numbers: nothing can be chosen by them."""
    if log_probabilities.isnan().any():
        raise InputError(
            "the model's logits hold NaN", "look where it comes from: weights of a training that diverged, or inputs"
        )


@dataclass(frozen=True)
class _Candidate:
    """A beam, by its place in its sequence, and a token after it; what both have together."""

    beam: int
    token: int
    total: float


def _extend(sequence: _Sequence, first_row: int, candidates: list[_Candidate], strategy: Beam, stop: Stop) -> None:
    """Of the best candidates, those that end may finish and `size` others run on."""
    running: list[_Running] = []
    for rank, one in enumerate(candidates):
        parent = sequence.running[one.beam]
        longer = _Running((*parent.ids, one.token), one.total, (*parent.rows, first_row + one.beam))
        if one.token in stop.eos_ids or len(longer.ids) == stop.max_new_tokens:
            if rank < strategy.size:
                sequence.finish(longer, strategy)
        elif len(running) < strategy.size:
            running.append(longer)
    sequence.running = running


def _best(likely: Float[Tensor, "rows vocab"], running: list[list[_Running]], count: int) -> Iterator[list[_Candidate]]:
    """The `count` best candidates of every sequence, best first: every beam by every token that is possible.

    All sequences are looked at together: a question of its own for each would take a GPU longer than a layer.
    """
    rows, vocabulary = likely.shape
    totals = torch.tensor([beam.total for beams in running for beam in beams], dtype=likely.dtype, device=likely.device)
    scores, most = likely.add_(totals[:, None]), max(map(len, running))
    if rows < len(running) * most:  # some have fewer beams than others
        places = [number * most + beam for number, beams in enumerate(running) for beam in range(len(beams))]
        room = scores.new_full((len(running) * most, vocabulary), -torch.inf)
        scores = room.index_copy_(0, torch.tensor(places, device=scores.device), scores)
    for ranked in _largest(scores.view(len(running), -1), count):
        possible = [(index, total) for index, total in ranked if total > -torch.inf]
        yield [_Candidate(*divmod(index, vocabulary), total) for index, total in possible]


def _largest(scores: Float[Tensor, "sequences candidates"], count: int) -> Iterator[list[tuple[int, float]]]:
    """Index and value of the `count` largest of every row, ties to the lower index: `topk` alone does not promise it.

    One more than that is asked for: where it equals the last, all that are as large are looked at.
    """
    count = min(count, scores.shape[1])
    values, indices = scores.topk(min(count + 1, scores.shape[1]))
    found = torch.stack([values, indices.to(values)]).tolist()  # one way to the host
    for row, (totals, places) in enumerate(zip(*found, strict=True)):
        pairs = list(zip(map(int, places), totals, strict=True))
        if len(pairs) > count and totals[count] == totals[count - 1] > -torch.inf:
            among = (scores[row] >= totals[count]).nonzero().squeeze(1)
            pairs = list(zip(among.tolist(), scores[row, among].tolist(), strict=True))
        yield sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]


def _reorder(going: list[_Running], state: S, device: torch.device) -> tuple[RowIds, S]:
    """The last tokens of the running beams, and the state with the rows they grew from."""
    ids = torch.tensor([beam.ids[-1] for beam in going], device=device)
    rows = torch.tensor([beam.rows[-1] for beam in going], device=device)
    return ids, state.select(rows)

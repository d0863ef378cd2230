"""Beam search (Graves 2012, §2.5; length normalisation as in Wu et al. 2016, §7, with α as a plain power).

At every step each sequence keeps its `size` best unfinished beams. A candidate that ends is finished if it ranks
among the `size` best of its step; finished ones compete by `Σ log p / lengthᵅ`. A sequence is done when `size` have
finished and the best running beam, scored at its present length, is no better than the worst of them; at the
length limit what is running counts as finished. That is transformers' rule for `early_stopping=False`.
"""

from collections.abc import Sequence
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
    for place in range(stop.tokens):
        logits, state = stepper.step(ids, state)
        likely = logits.double().log_softmax(dim=-1)
        check_likely(likely[:, 0])  # one logit that is no number makes its whole row none
        likely = apply(filters, likely, place, stop.tokens)
        row = 0
        for sequence in (one for one in sequences if not one.done):
            beams = len(sequence.running)
            _extend(sequence, row, likely[row : row + beams], strategy, stop)
            row += beams
            sequence.settle(strategy)
        going = [beam for sequence in sequences if not sequence.done for beam in sequence.running]
        if not going:
            break
        ids, state = _reorder(going, state, ids.device)
    return [sequence.finished for sequence in sequences]


def check_likely(log_probabilities: Float[Tensor, "rows"]) -> None:
    """Refuse probabilities that are no numbers: nothing can be chosen by them."""
    if log_probabilities.isnan().any():
        raise InputError(
            "the model's logits hold NaN", "look where it comes from: weights of a training that diverged, or inputs"
        )


def _extend(
    sequence: _Sequence, first_row: int, likely: Float[Tensor, "beams vocab"], strategy: Beam, stop: Stop
) -> None:
    """Every beam by every token; of the best, those that end may finish and `size` others run on.

    So many are looked at that `size` are left if every beam's best tokens are all those that end.
    """
    vocabulary = likely.shape[1]
    totals = torch.tensor([beam.total for beam in sequence.running], dtype=torch.float64, device=likely.device)
    scores = (likely + totals[:, None]).flatten()
    best = _largest(scores, (1 + len(stop.ends)) * strategy.size)
    running: list[_Running] = []
    for rank, (index, total) in enumerate(best):
        if total == -torch.inf:
            break
        beam, token = divmod(index, vocabulary)
        parent = sequence.running[beam]
        longer = _Running((*parent.ids, token), total, (*parent.rows, first_row + beam))
        if token in stop.ends or len(longer.ids) == stop.tokens:
            if rank < strategy.size:
                sequence.finish(longer, strategy)
        elif len(running) < strategy.size:
            running.append(longer)
    sequence.running = running


def _largest(scores: Float[Tensor, "candidates"], count: int) -> list[tuple[int, float]]:
    """Index and value of the `count` largest, ties to the lower index: which `topk` alone does not promise."""
    least = scores.topk(min(count, len(scores))).values[-1]
    among = (scores >= least).nonzero().squeeze(1)
    ranked = scores[among].sort(descending=True, stable=True)
    return list(zip(among[ranked.indices[:count]].tolist(), ranked.values[:count].tolist(), strict=True))


def _reorder(going: list[_Running], state: S, device: torch.device) -> tuple[RowIds, S]:
    """The last tokens of the running beams, and the state with the rows they grew from."""
    ids = torch.tensor([beam.ids[-1] for beam in going], device=device)
    rows = torch.tensor([beam.rows[-1] for beam in going], device=device)
    return ids, state.select(rows)

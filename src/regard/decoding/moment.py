"""One step of decoding row by row: what was chosen in every row, and the hypotheses that come of all steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs
from regard.decoding.hypothesis import Hypothesis, Stop


@dataclass(frozen=True, eq=False)
class Moment:
    """Which sequence is in which row, what was chosen there and how likely it was."""

    sequence: list[int]
    ids: RowIds
    log_probabilities: Float[Tensor, "rows"]
    rows: list[int] | None = None
    """In which row of the batch each was computed, where that is not its own."""


def last_tokens(inputs: Inputs) -> RowIds:
    """The last token of every prompt, which the first step gets."""
    tokens = inputs.tokens
    if tokens.side == "left" or not tokens.ragged:
        return tokens.ids[:, -1]
    return tokens.ids.gather(1, tokens.lengths[:, None] - 1).squeeze(1)


def log_probability(logits: RowLogits, ids: RowIds) -> Float[Tensor, "rows"]:
    """Of the chosen tokens, by the model itself."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide.log_softmax(dim=-1).gather(1, ids[:, None]).squeeze(1)


class Written:
    """What every sequence has written, where a text is to stop by it; else nothing is kept."""

    def __init__(self, stop: Stop, sequences: int) -> None:
        self.stop = stop
        self.texts: list[list[int]] = [[] for _ in range(sequences)]

    def going(self, sequence: Sequence[int], ids: list[int]) -> list[int]:
        """The rows whose text has not ended with these tokens."""
        if self.stop.met is None:
            return [row for row, token in enumerate(ids) if token not in self.stop.eos_ids]
        for index, token in zip(sequence, ids, strict=True):
            self.texts[index].append(token)
        return [row for row, index in enumerate(sequence) if not self.stop.ended(self.texts[index])]


def collect(sequences: int, moments: Iterator[Moment]) -> list[Hypothesis]:
    """The moments, turned into one hypothesis per sequence."""
    ids: list[list[int]] = [[] for _ in range(sequences)]
    rows: list[list[int]] = [[] for _ in range(sequences)]
    likely: list[list[float]] = [[] for _ in range(sequences)]
    for moment in moments:
        chosen, found = moment.ids.tolist(), moment.log_probabilities.tolist()
        for row, index in enumerate(moment.sequence):
            ids[index].append(chosen[row])
            rows[index].append(row if moment.rows is None else moment.rows[row])
            likely[index].append(found[row])
    return [Hypothesis(tuple(i), sum(p), tuple(r), tuple(p)) for i, r, p in zip(ids, rows, likely, strict=True)]

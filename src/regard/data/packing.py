"""Packing: several examples in one row, with its document's number beside every token (Krell et al. 2021).

    row        a b c d d e e e     three examples, one row, no padding between them
    documents  1 1 1 2 2 3 3 3

A model that reads `documents` keeps them apart: a token sees its own document alone and counts its position from there,
so that a packed example gives the logits it gives alone. It pays where lengths differ much within a batch; batches by
length have little padding to save.
"""

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.objectives import Example, Objective
from regard.data.stream import Row, require_room
from regard.errors import ConfigError


class Packed:
    """Rows as wide as the longest example of the pool, filled by first-fit decreasing."""

    def cut(self, examples: Sequence[Example], objective: Objective, tokens: int) -> list[list[Row]]:
        """The fullest rows first, as many in a batch as it holds."""
        costs = [require_room(example, objective, tokens) for example in examples]
        width = max(costs)
        rows = [[examples[index] for index in row] for row in first_fit_decreasing(costs, width)]
        together = tokens // width
        return [rows[first : first + together] for first in range(0, len(rows), together)]

    def batch(self, rows: Sequence[Row], objective: Objective) -> Batch:
        """The rows of the objective's batch, laid end to end."""
        alone = objective.batch([example for row in rows for example in row])
        if alone.inputs.source is not None:
            raise ConfigError(
                "packed rows hold several texts and an encoder–decoder reads one source for each row",
                "use architecture 'decoder', or batches by length",
            )
        tokens, start = alone.inputs.tokens, 0
        lengths = tokens.lengths.tolist()
        longest = max(sum(map(objective.cost, row)) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        targets, documents = torch.full_like(ids, IGNORED), torch.zeros_like(ids)
        filled = []
        for place, row in enumerate(rows):
            end = 0
            for number, length in enumerate(lengths[start : start + len(row)], start=1):
                here = slice(end, end + length)
                ids[place, here] = tokens.ids[start + number - 1, :length]
                targets[place, here] = alone.targets[start + number - 1, :length]
                documents[place, here] = number
                end += length
            start += len(row)
            filled.append(end)
        packed = Padded(ids, torch.tensor(filled), ragged=min(filled) < longest, documents=documents)
        return Batch(Inputs(packed), targets)


def first_fit_decreasing(costs: Sequence[int], room: int) -> list[list[int]]:
    """Which costs go together: the largest first, each into the first bin that has room for it.

    >>> first_fit_decreasing([2, 5, 3, 4, 1], 6)
    [[1, 4], [3, 0], [2]]
    """
    bins: list[list[int]] = []
    left = np.full(len(costs), room)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):  # stable: equal costs keep their order
        place = int(np.argmax(left >= costs[index]))
        left[place] -= costs[index]
        if place == len(bins):
            bins.append([])
        bins[place].append(index)
    return bins

"""A window of a map in no more cells than a screen has: each cell the largest weight of the rows and columns under it.

Where rows and columns are as few as the cells, a cell is a weight, exactly. Of a long text rows are computed some at a
time and dropped, so that nothing n×n is ever held; beyond `MOST` weights only some of the rows under each cell are
looked at, evenly spread, and the record says how many.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.inspection.capture import Recording

MOST = 2**27
"""Weights computed for one window: all heads of 4,096 tokens by 8 heads."""
TOGETHER = 2**22


@dataclass(frozen=True, eq=False)
class PooledMap:
    """`cells[head, i, j]`: the largest size of a weight from `row_starts[i]`, `column_starts[j]` to the next starts."""

    cells: NDArray[Any]
    row_starts: NDArray[Any]
    column_starts: NDArray[Any]
    rows_read: int
    """How many of the rows were computed."""
    rows: int


def pooled_map(
    seen: Recording, layer: str, rows: tuple[int, int], columns: tuple[int, int], cells: int, most: int = MOST
) -> PooledMap:
    """All heads of a layer of the single text that was seen, between these rows and columns."""
    trace = seen.trace(layer)
    first, last = within(rows, len(trace.places()), "rows")
    keys = trace.real_keys()
    left, right = within(columns, len(range(*keys.indices(trace.calls[-1].keys))), "columns")
    row_starts, column_starts = _starts(first, last, cells), _starts(left, right, cells)
    per_cell = max(1, most // (trace.heads * trace.calls[-1].keys * len(row_starts)))
    chosen = _spread(row_starts, last, per_cell)
    together = len(chosen) if seen.mechanism(layer) else max(1, TOGETHER // (trace.heads * trace.calls[-1].keys))
    parts = []
    for at in range(0, len(chosen), together):
        weights = trace.weights(chosen[at : at + together].tolist())[:, :, left:right].abs().float().cpu().numpy()
        parts.append(np.maximum.reduceat(weights, column_starts - left, axis=2))
    whole = np.concatenate(parts, axis=1)
    groups = np.searchsorted(chosen, row_starts)
    return PooledMap(np.maximum.reduceat(whole, groups, axis=1), row_starts, column_starts, len(chosen), last - first)


def pool(weights: NDArray[Any], rows: tuple[int, int], columns: tuple[int, int], cells: int) -> NDArray[Any]:
    """A window of a whole map in at most so many cells."""
    starts = _starts(*rows, cells) - rows[0], _starts(*columns, cells) - columns[0]
    shown = np.maximum.reduceat(weights[rows[0] : rows[1], columns[0] : columns[1]], starts[0], axis=0)
    pooled: NDArray[Any] = np.maximum.reduceat(shown, starts[1], axis=1)
    return pooled


def within(asked: tuple[int, int], there: int, what: str) -> tuple[int, int]:
    """The part of what is there that was asked for; a part that is not there is refused."""
    first, last = asked
    if not 0 <= first < last <= there:
        raise InputError(f"{what} {first} to {last} are not there", f"ask for {what} from 0 up to {there}")
    return first, last


def _starts(first: int, last: int, cells: int) -> NDArray[Any]:
    """Where each of so many cells begins; one for each place where there are no more."""
    count = min(last - first, cells)
    return first + (np.arange(count) * (last - first)) // count


def _spread(starts: NDArray[Any], last: int, per_cell: int) -> NDArray[Any]:
    """Of each cell's rows at most so many, evenly."""
    ends = [*starts[1:].tolist(), last]
    picked = [
        start + (np.arange(min(end - start, per_cell)) * (end - start)) // min(end - start, per_cell)
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return np.concatenate(picked)

"""Prompts that begin alike, as after one system prompt or the same few examples: what they share is read once.

    all        A A A A b c         A A A A is read in one row, its keys and values are given to every row,
               A A A A d           and b c, d · and e f are read behind them
               A A A A e f

Of decoders whose layers keep the keys and values of single tokens; a state that is one vector is one text's own.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.mask import Padding
from regard.data.batching import Inputs, Padded

LEAST = 16
"""Tokens that are worth a pass of their own."""


@runtime_checkable
class Reader(Protocol):
    """What reads: a Transformer's decoder."""

    @property
    def device(self) -> torch.device: ...

    def begin(self, inputs: Inputs) -> Any: ...

    def advance(self, ids: Int[Tensor, "rows tokens"], state: Any, behind: Padding | None) -> tuple[Any, Any]: ...


def shared_head(rows: Sequence[Sequence[int]]) -> int:
    """How many tokens all rows begin with; none where it does not pay."""
    if len(rows) < 2:
        return 0
    first, last = min(rows, key=list), max(rows, key=list)  # what these two share lies between them too
    shared = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return shared if shared >= LEAST else 0


def first_alike(begun: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[int], list[int]]:
    """Of prompts with their sources: for each which of the different ones it is, and where those stand first."""
    numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    which: list[int] = []
    alone: list[int] = []
    for place, (prompt, source) in enumerate(begun):
        number = numbers.setdefault((tuple(prompt), tuple(source)), len(alone))
        which.append(number)
        if number == len(alone):
            alone.append(place)
    return which, alone


def read_behind_head(model: Reader, rows: Sequence[Sequence[int]], head: int) -> Any:
    """The state after these rows, of which the first `head` tokens are the same; padding stands behind them."""
    begun = Padded.of([rows[0][:head]]).to(model.device)
    state = model.advance(begun.ids, model.begin(Inputs(begun)), None)[1]
    state = state.select(torch.zeros(len(rows), dtype=torch.long, device=model.device))
    rest = Padded.of([row[head:] for row in rows]).to(model.device)
    if not rest.ids.shape[1]:
        return state
    return model.advance(rest.ids, state, Padding(rest.lengths + head) if rest.ragged else None)[1]

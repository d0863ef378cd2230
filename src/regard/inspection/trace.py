"""What was recorded of attention, call by call, and one sequence's way through it: from queries and keys to rows.

A row of weights is one softmax over `q_i · Kᵀ`, computed when it is asked for. `capture.py` records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.core import weights
from regard.attention.mask import Mask, Padding
from regard.attention.similarity import Similarity
from regard.attention.slot import Site
from regard.data.batching import Inputs
from regard.decoding.hypothesis import Hypothesis
from regard.errors import InputError, choose

TILE = 4_000_000
"""Weights computed at a time when all rows are asked for."""


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """One call of one layer's attention, as it was given."""

    query: Float[Tensor, "rows heads queries head_width"]
    new_keys: Float[Tensor, "rows kv_heads new_keys head_width"]
    keys: int
    mask: Mask | None
    bias: Bias | Tensor | None
    similarity: Similarity
    site: Site | None
    cross: bool
    """Whether the keys are another sequence than the queries."""
    new_values: Float[Tensor, "rows kv_heads new_keys value_width"] | None = None

    def rows(self, row: int, places: list[int], keys: Tensor) -> Float[Tensor, "heads places keys"]:
        """The weights of some of this call's queries in one row of its batch, over all keys up to now."""
        at = torch.tensor([row], device=keys.device)
        bias = self.bias
        if isinstance(bias, Tensor) and bias.dim() == 4 and bias.shape[0] > 1:
            bias = bias[at]
        return weights(
            self.query[at].to(keys.dtype),  # of a run in half precision, later keys are kept wider than the first ones
            keys[:, :, : self.keys],
            similarity=self.similarity,
            mask=None if self.mask is None else self.mask.select(at),
            bias=bias,
            rows=torch.tensor(places, device=keys.device),
        )[0]


@dataclass(eq=False)
class Forward:
    """One pass of a batch through the model, decoding steps included."""

    layers: dict[str, list[AttentionRecord]] = field(default_factory=dict)
    inputs: Inputs | None = None
    outcome: list[Hypothesis] | None = None
    begun: dict[str, int] = field(default_factory=dict)
    """Of a decoding: the calls of each layer before the first step."""
    closed: bool = False

    @property
    def size(self) -> int:
        """How many sequences the batch has."""
        if self.outcome is not None:
            return len(self.outcome)
        return next(iter(self.layers.values()))[0].query.shape[0]

    def trace(self, layer: str, sequence: int) -> "SequenceTrace":
        """One sequence's way through a layer: a prompt keeps its place in the batch, decoding goes by the outcome."""
        if layer not in self.layers:
            raise InputError(f"layer {layer!r} was not seen", choose(layer, self.layers))
        calls = self.layers[layer]
        site = calls[0].site
        if self.inputs is None or site is None or site.stack != "decoder":
            return SequenceTrace(calls, [sequence] * len(calls))
        columns, length = self.inputs.tokens.ids.shape[1], int(self.inputs.tokens.lengths[sequence])
        left = slice(columns - length, None)
        if self.outcome is None:
            text = left if self.inputs.tokens.side == "left" else slice(0, length)
            return SequenceTrace(calls, [sequence] * len(calls), text)
        rows = [sequence] * self.begun.get(layer, 0)
        stepped, taken = self.outcome[sequence].rows, 0
        for call in calls[len(rows) :]:
            if taken < len(stepped):
                rows.append(stepped[taken])
                taken += call.query.shape[2]
        if taken < len(stepped):
            raise InputError("the text began before it was watched", "begin it inside the `with` block")
        return SequenceTrace(calls[: len(rows)], rows, left)  # decoding pads its prompts on the left


@dataclass(frozen=True, eq=False)
class SequenceTrace:
    """One sequence's way through the calls of a layer, with the row it has in each; `text` is its part of a decoder's
    tokens, where that is known: the others are padding.
    """

    calls: list[AttentionRecord]
    rows: list[int]
    text: slice | None = None

    @property
    def heads(self) -> int:
        """How many heads the layer has."""
        return self.calls[0].query.shape[1]

    @torch.no_grad()
    def weights(self, rows: Sequence[int] | None) -> Float[Tensor, "heads rows keys"]:
        """The weights of these rows, all if None; keys a row could not see yet are 0."""
        keys = self.joined("new_keys")
        places = self.places()
        chosen = places if rows is None else [_pick(places, row) for row in rows]
        wanted: dict[int, dict[int, None]] = {}  # of each call, the queries asked for, in order and once
        for index, place in chosen:
            wanted.setdefault(index, {})[place] = None
        found: dict[tuple[int, int], Tensor] = {}
        for index, asked in wanted.items():
            call = self.calls[index]
            maps = call.rows(self.rows[index], list(asked), keys)
            maps = nn.functional.pad(maps, (0, keys.shape[2] - call.keys))
            found |= {(index, place): maps[:, at] for at, place in enumerate(asked)}
        real = self.real_keys()
        if not chosen:
            return keys.new_zeros(self.heads, 0, keys.shape[2])[:, :, real]
        return torch.stack([found[place] for place in chosen], dim=1)[:, :, real]

    def joined(self, what: Literal["new_keys", "new_values"]) -> Float[Tensor, "1 kv_heads keys width"]:
        """All the sequence's keys or values, from every call."""
        return torch.cat(
            [getattr(call, what)[row : row + 1] for call, row in zip(self.calls, self.rows, strict=True)], dim=2
        )

    def place(self, row: int) -> tuple[AttentionRecord, int, int]:
        """The call a row was computed in, its row of the batch there, and its query."""
        index, place = _pick(self.places(), row)
        return self.calls[index], self.rows[index], place

    def tiles(self) -> Iterator[Float[Tensor, "heads some keys"]]:
        """All rows, some at a time: as many as keep one tile at a few million weights, whatever the length."""
        rows = len(self.places())
        together = max(1, TILE // (self.heads * self.calls[-1].keys))
        for first in range(0, rows, together):
            yield self.weights(range(first, min(first + together, rows)))

    def places(self) -> list[tuple[int, int]]:
        """(call, query) of every row of the sequence, in order, padding left out."""
        places = [(index, place) for index, call in enumerate(self.calls) for place in range(call.query.shape[2])]
        if self.text is not None:
            return places[self.text]
        if self.calls[0].cross:
            return places  # the keys are another sequence: their padding is not the rows'
        real, unseen = self.real_keys(), self.calls[0].keys - self.calls[0].query.shape[2]
        return places[max(real.start - unseen, 0) : real.stop - unseen]

    def real_keys(self) -> slice:
        """Where the sequence's own keys begin and end between paddings."""
        call, row, columns = self.calls[-1], self.rows[-1], self.calls[-1].keys
        if self.text is not None and not call.cross:
            return self.text
        for part in call.mask.walk() if call.mask is not None else ():
            if isinstance(part, Padding):
                length = int(part.lengths[row])
                return slice(0, length) if part.side == "right" else slice(columns - length, columns)
        return slice(0, columns)


def _pick(places: list[tuple[int, int]], row: int) -> tuple[int, int]:
    if not -len(places) <= row < len(places):
        raise InputError(f"the text has {len(places)} rows and no row {row}", f"use 0 to {len(places) - 1}, or −1")
    return places[row]

"""What was recorded of attention, call by call, and one sequence's way through it: from queries and keys to rows.

A row of weights is one softmax over `q_i · Kᵀ`, computed when it is asked for. `capture.py` records.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.core import weights
from regard.attention.mask import Causal, Mask, Padding
from regard.attention.mask_algebra import Positions
from regard.attention.mechanism import LayerContext, Mechanism
from regard.attention.rotary import Rotation
from regard.attention.similarity import Similarity
from regard.attention.slot import Site
from regard.data.batching import Inputs
from regard.decoding.hypothesis import Hypothesis
from regard.errors import InputError, choose
from regard.inspection.wide import InFloat32, is_half

TILE = 4_000_000
"""Weights computed at a time when all rows are asked for."""
LARGEST = 2**26
"""Weights of the largest map of a mechanism that makes it as a whole: 4 heads over 4,096 tokens."""


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
    positions: Positions | None = None
    """Where its queries stand among the keys, where that was given."""

    @property
    def batch(self) -> int:
        """How many rows it had."""
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def queries(self) -> int:
        """How many tokens attended."""
        return self.query.shape[2]

    @property
    def address(self) -> int:
        """Where its keys stand in memory: steps that read one memory have one address."""
        return self.new_keys.data_ptr()

    def positions_of(self, row: int) -> Positions | None:
        """Where the queries of one row of its batch stand."""
        if self.positions is None or self.positions.dim() == 1:
            return self.positions
        return self.positions[row if len(self.positions) > 1 else 0]

    def rows(self, row: int, places: list[int], keys: Tensor) -> Float[Tensor, "heads places keys"]:
        """The weights of some of this call's queries in one row of its batch, over all keys up to now."""
        at = torch.tensor([row], device=keys.device)
        bias = self.bias
        if isinstance(bias, Tensor) and bias.dim() == 4 and bias.shape[0] > 1:
            bias = bias[at]
        return weights(
            self.query[at].to(keys.dtype),  # of a run in half precision, later keys are kept wider than the first ones
            keys[:, :, : self.keys],
            similarity=InFloat32(self.similarity) if is_half(keys.dtype) else self.similarity,
            mask=None if self.mask is None else self.mask.select(at),
            bias=bias,
            rows=torch.tensor(places, device=keys.device),
            query_positions=self.positions_of(row),
        )[0]


@dataclass(frozen=True, eq=False)
class MechanismRecord:
    """One call of a mechanism that has no weights to be kept: its inputs, of which the mechanism makes its map."""

    mechanism: Mechanism
    inputs: Float[Tensor, "rows queries width"]
    context: LayerContext
    keys: int
    site: Site | None
    cross: bool
    memory: Float[Tensor, "batch keys width"] | None = None
    address: int = 0

    @property
    def batch(self) -> int:
        """How many rows it had."""
        return self.inputs.shape[0]

    @property
    def heads(self) -> int:
        return self.mechanism.slot.heads

    @property
    def queries(self) -> int:
        """How many tokens attended."""
        return self.inputs.shape[1]

    @property
    def mask(self) -> Mask | None:
        """Who was allowed to see whom."""
        return self.context.mask


AnyRecord = AttentionRecord | MechanismRecord


@dataclass(eq=False)
class Forward:
    """One pass of a batch through the model, decoding steps included."""

    layers: dict[str, list[AnyRecord]] = field(default_factory=dict)
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
        return next(iter(self.layers.values()))[0].batch

    def trace(self, layer: str, sequence: int) -> "SequenceTrace":
        """One sequence's way through a layer: a prompt keeps its place in the batch, decoding goes by the outcome."""
        if layer not in self.layers:
            raise InputError(f"layer {layer!r} was not seen", choose(layer, self.layers))
        calls = self.layers[layer]
        site = calls[0].site
        if self.inputs is None or site is None or site.stack != "decoder":
            return _trace(calls, [sequence] * len(calls), None, sequence)
        columns, length = self.inputs.tokens.ids.shape[1], int(self.inputs.tokens.lengths[sequence])
        left = slice(columns - length, None)
        if self.outcome is None:
            text = left if self.inputs.tokens.side == "left" else slice(0, length)
            return _trace(calls, [sequence] * len(calls), text, sequence)
        rows = [sequence] * self.begun.get(layer, 0)
        stepped, taken = self.outcome[sequence].rows, 0
        for call in calls[len(rows) :]:
            if taken < len(stepped):
                rows.append(stepped[taken])
                taken += call.queries
        if taken < len(stepped):
            raise InputError("the text began before it was watched", "begin it inside the `with` block")
        return _trace(calls[: len(rows)], rows, left, sequence)  # decoding pads its prompts on the left


@dataclass(frozen=True, eq=False)
class SequenceTrace:
    """One sequence's way through the calls of a layer, with the row it has in each; `text` is its part of a decoder's
    tokens, where that is known: the others are padding.
    """

    calls: Sequence[AnyRecord]
    rows: list[int]
    text: slice | None = None

    @property
    def heads(self) -> int:
        """How many heads the layer has."""
        return self.calls[0].heads

    @property
    def exact(self) -> Sequence[AttentionRecord]:
        """The calls, whose queries and keys were kept."""
        found = [call for call in self.calls if isinstance(call, AttentionRecord)]
        if len(found) < len(self.calls):
            name = type(self.calls[0].mechanism).__name__ if isinstance(self.calls[0], MechanismRecord) else ""
            raise InputError(
                f"{name} has no scores, keys and values that its weights come from",
                "ask for its effective weights: `seen.weights`, or draw it with `regard look`",
            )
        return found

    @torch.no_grad()
    def weights(self, rows: Sequence[int] | None) -> Float[Tensor, "heads rows keys"]:
        """The weights of these rows, all if None; keys a row could not see yet are 0."""
        keys, calls = self.joined("new_keys"), self.exact
        places = self.places()
        chosen = places if rows is None else [_pick(places, row) for row in rows]
        wanted: dict[int, dict[int, None]] = {}  # of each call, the queries asked for, in order and once
        for index, place in chosen:
            wanted.setdefault(index, {})[place] = None
        found: dict[tuple[int, int], Tensor] = {}
        for index, asked in wanted.items():
            call = calls[index]
            maps = call.rows(self.rows[index], list(asked), keys)
            maps = nn.functional.pad(maps, (0, keys.shape[2] - call.keys))
            found |= {(index, place): maps[:, at] for at, place in enumerate(asked)}
        real = self.real_keys()
        if not chosen:
            return keys.new_zeros(self.heads, 0, keys.shape[2])[:, :, real]
        return _numbers(torch.stack([found[place] for place in chosen], dim=1)[:, :, real])

    def joined(self, what: Literal["new_keys", "new_values"]) -> Float[Tensor, "1 kv_heads keys width"]:
        """All the sequence's keys or values, from every call."""
        return torch.cat(
            [getattr(call, what)[row : row + 1] for call, row in zip(self.exact, self.rows, strict=True)], dim=2
        )

    def place(self, row: int) -> tuple[AttentionRecord, int, int]:
        """The call a row was computed in, its row of the batch there, and its query."""
        index, place = _pick(self.places(), row)
        return self.exact[index], self.rows[index], place

    def tiles(self) -> Iterator[Float[Tensor, "heads some keys"]]:
        """All rows, some at a time: as many as keep one tile at a few million weights, whatever the length."""
        rows = len(self.places())
        together = max(1, TILE // (self.heads * self.calls[-1].keys))
        for first in range(0, rows, together):
            yield self.weights(range(first, min(first + together, rows)))

    def places(self) -> list[tuple[int, int]]:
        """(call, query) of every row of the sequence, in order, padding left out."""
        places = [(index, place) for index, call in enumerate(self.calls) for place in range(call.queries)]
        if self.text is not None:
            return places[self.text]
        first = self.calls[0]
        if first.cross or (isinstance(first, AttentionRecord) and first.positions is not None):
            return places  # the keys are another sequence, or have room behind them: their padding is not the rows'
        real, unseen = self.real_keys(), self.calls[0].keys - self.calls[0].queries
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


@dataclass(frozen=True, eq=False)
class MechanismTrace(SequenceTrace):
    """The same of a mechanism whose map is made of the whole text at once, by the mechanism as it is when asked."""

    sequence: int = 0
    """Its place in the batch, and so its row of the memory."""

    def weights(self, rows: Sequence[int] | None) -> Float[Tensor, "heads rows keys"]:
        """These rows of the mechanism's map, all if None."""
        whole, places = self._map(), self.places()
        if rows is None:
            return whole
        return whole[:, [places.index(_pick(places, row)) for row in rows]]

    def tiles(self) -> Iterator[Float[Tensor, "heads some keys"]]:
        """All rows: they come together."""
        yield self._map()

    @torch.no_grad()
    def _map(self) -> Float[Tensor, "heads rows keys"]:
        """Of the text alone, all its calls joined and its padding left out."""
        calls = [call for call in self.calls if isinstance(call, MechanismRecord)]
        last, real = calls[-1], self.real_keys()
        places = self.places()
        size = self.heads * len(places) * len(range(*real.indices(last.keys)))
        if size > LARGEST:
            raise InputError(
                f"{type(last.mechanism).__name__} shows its weights as a whole table, here of {size:,} numbers",
                f"look at a shorter text: up to {LARGEST:,} numbers are drawn",
            )
        inputs = torch.cat([call.inputs[row] for call, row in zip(calls, self.rows, strict=True)])
        taken = places[0][1] + sum(call.queries for call in calls[: places[0][0]]) if places else 0
        text = slice(taken, taken + len(places))
        memory = None if last.memory is None else last.memory[self.sequence : self.sequence + 1, real]
        mechanism = last.mechanism
        with _evaluating(mechanism):
            found = mechanism.dense_map(inputs[None, text], self._context(calls, text), memory)
        if found.ndim != 4 or found.shape[2] != len(places):
            raise InputError(
                f"{type(mechanism).__name__}.dense_map gave {tuple(found.shape)} for {len(places)} tokens",
                "return weights of [batch, heads, queries, keys]",
            )
        return _numbers(found[0])

    def _context(self, calls: list[MechanismRecord], text: slice) -> LayerContext:
        """What the text would have been told if it had been read alone and at once."""
        if any(call.context.parts().rest is not None or call.context.parts().documents is not None for call in calls):
            raise InputError("a text of a packed or specially masked row has no map of its own", "read it alone")
        slot, rotations = calls[0].mechanism.slot, [call.context.rotate for call in calls]
        known = [rotation for rotation in rotations if isinstance(rotation, Rotation)]
        rotate = None
        if known:
            turned = zip(known, self.rows, strict=True)
            rotate = Rotation.join([rotation.of(row, slice(None)) for rotation, row in turned]).of(0, text)
        given = [(call.context.ids, row) for call, row in zip(calls, self.rows, strict=True)]
        known_ids = [ids[row] for ids, row in given if ids is not None]
        ids = torch.cat(known_ids)[None, text] if known_ids else None
        mask = Causal() if slot.causal and not slot.cross else None
        return LayerContext(mask, calls[0].context.bias, rotate, ids=ids)


def _trace(calls: Sequence[AnyRecord], rows: list[int], text: slice | None, sequence: int) -> SequenceTrace:
    """By what the calls are of."""
    if calls and isinstance(calls[0], MechanismRecord):
        return MechanismTrace(calls, rows, text, sequence)
    return SequenceTrace(calls, rows, text)


def _numbers(weights: Float[Tensor, "heads rows keys"]) -> Float[Tensor, "heads rows keys"]:
    """Refuse weights that are none: a picture would show them as nothing."""
    if not weights.isfinite().all():
        raise InputError("the attention weights hold NaN or infinity", "look where they come from: the model's weights")
    return weights


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def _pick(places: list[tuple[int, int]], row: int) -> tuple[int, int]:
    if not -len(places) <= row < len(places):
        raise InputError(f"the text has {len(places)} rows and no row {row}", f"use 0 to {len(places) - 1}, or −1")
    return places[row]

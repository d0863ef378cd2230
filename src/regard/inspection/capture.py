"""Exact attention maps of any run, with the fast kernel on: record queries and keys, compute the rows asked for.

    with regard.watch(model) as seen:
        model.run("de: 3 mars 2021")
    seen.weights("decoder.1.cross", head=0, rows=[-1])

A row of weights is one softmax over `q_i · Kᵀ`, so queries, keys and masks are all that must be kept: memory grows
with the text, not with its square, and nothing n×n is ever held. Recording is a forward hook on the `Attend` module
of every attention layer; nothing is stored on the model and nothing in it asks whether it is watched.

While decoding, every step adds rows. Beams change places and finished rows leave; each generated text is followed
back through the rows its tokens were computed in (`Hypothesis.rows`), so rows count from its first token.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.core import weights
from regard.attention.mask import Mask, Padding
from regard.attention.multihead import Attend
from regard.attention.similarity import Similarity
from regard.blocks.decoder import Decoder
from regard.data.batching import Inputs
from regard.decoding.engine import outcome_listeners
from regard.decoding.hypothesis import Hypothesis
from regard.errors import InputError, choose
from regard.models.transformer import Transformer

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
    decoding: bool
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


@dataclass
class Forward:
    """One pass of a batch through the model, decoding steps included."""

    layers: dict[str, list[AttentionRecord]] = field(default_factory=dict)
    inputs: Inputs | None = None
    outcome: list[Hypothesis] | None = None

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
        if self.inputs is None or not calls[0].decoding:
            return SequenceTrace(calls, [sequence] * len(calls))
        columns, length = self.inputs.tokens.ids.shape[1], int(self.inputs.tokens.lengths[sequence])
        left = slice(columns - length, None)
        if self.outcome is None:
            text = left if self.inputs.tokens.side == "left" else slice(0, length)
            return SequenceTrace(calls, [sequence] * len(calls), text)
        prompt = 1 if columns > 1 else 0
        rows = [sequence] * prompt + list(self.outcome[sequence].rows)
        if len(rows) > len(calls):
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
        places = self._places()
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
        index, place = _pick(self._places(), row)
        return self.calls[index], self.rows[index], place

    def tiles(self) -> Iterator[Float[Tensor, "heads some keys"]]:
        """All rows, some at a time: as many as keep one tile at a few million weights, whatever the length."""
        rows = len(self._places())
        together = max(1, TILE // (self.heads * self.calls[-1].keys))
        for first in range(0, rows, together):
            yield self.weights(range(first, min(first + together, rows)))

    def _places(self) -> list[tuple[int, int]]:
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


class Top(NamedTuple):
    """The largest weights of every row, largest first, and the keys they go to."""

    weights: Float[Tensor, "*heads rows k"]
    keys: Int[Tensor, "*heads rows k"]


class Recording:
    """What was seen of a model: every run's attention, layer by layer, ready to be asked for rows."""

    def __init__(self, *, values: bool = False) -> None:
        self.forwards: list[Forward] = []
        self._values = values  # kept only where the four steps are wanted: they cost as much as the keys
        self._inputs: Inputs | None = None  # of the whole model now running
        self._past: int | None = None  # tokens in the cache of the decoder now running; None outside a decoder

    @property
    def layers(self) -> list[str]:
        """The layers that attended, in the order they did: `encoder.0.self`, `decoder.1.cross` …"""
        return list(self.forwards[-1].layers) if self.forwards else []

    @property
    def sequences(self) -> int:
        """How many there are in all runs; a long passage is read in windows, each a sequence."""
        return sum(run.size for run in self.forwards)

    def weights(
        self, layer: str, head: int | None = None, rows: Sequence[int] | None = None, batch: int | None = None
    ) -> Float[Tensor, "*heads rows keys"]:
        """The exact weights of one sequence: `[rows, keys]` of a head, `[heads, rows, keys]` of all.

        Rows count from the sequence's first token, −1 is the last; keys likewise, padding left out. While decoding,
        row t is the step that chose token t.
        """
        maps = self.trace(layer, head, batch).weights(rows)
        return maps if head is None else maps[head]

    def entropy(self, layer: str, head: int | None = None, batch: int | None = None) -> Float[Tensor, "*heads rows"]:
        """How spread out every row is, `−Σ w log w` in nats: 0 looks at one key, log n at n alike. Tile by tile."""
        spread = [torch.special.entr(tile).sum(dim=-1) for tile in self.trace(layer, head, batch).tiles()]
        whole = torch.cat(spread, dim=1)
        return whole if head is None else whole[head]

    def top(self, k: int, layer: str, head: int | None = None, batch: int | None = None) -> Top:
        """The k largest weights of every row and where they go; fewer where there are fewer keys. Tile by tile."""
        if k < 1:
            raise InputError(f"the {k} largest weights are none", "ask for 1 or more")
        found = [tile.topk(min(k, tile.shape[-1]), dim=-1) for tile in self.trace(layer, head, batch).tiles()]
        values, keys = (torch.cat([part[at] for part in found], dim=1) for at in (0, 1))
        return Top(values, keys) if head is None else Top(values[head], keys[head])

    def trace(self, layer: str, head: int | None = None, batch: int | None = None) -> SequenceTrace:
        """One sequence's way through a layer."""
        run, index = self.find(batch)
        path = run.trace(layer, index)
        if head is not None and not 0 <= head < path.heads:
            raise InputError(f"layer {layer!r} has {path.heads} heads and no head {head}", f"use 0 to {path.heads - 1}")
        return path

    def find(self, batch: int | None) -> tuple[Forward, int]:
        """The run that holds a sequence, and its place in it; sequences count through all runs."""
        if not self.forwards:
            raise InputError("nothing was seen", "run the model inside the `with` block, then ask")
        total = self.sequences
        if batch is None and total > 1:
            raise InputError(f"{total} sequences were seen", f"say which: batch=0 … {total - 1}")
        index = batch or 0
        if not 0 <= index < total:
            raise InputError(f"{total} sequences were seen and none is batch={index}", f"use 0 to {total - 1}")
        place = 0
        while index >= self.forwards[place].size:
            index -= self.forwards[place].size
            place += 1
        return self.forwards[place], index

    @property
    def watching(self) -> bool:
        """Whether this is the thread that watches; what others do with the same model is theirs."""
        return self.finished in outcome_listeners.get()

    def record(self, layer: str, module: Attend, given: dict[str, Any]) -> None:
        """Keep what one call of attention was given."""
        if not self.watching:
            return
        memory, queries = given["memory"], given["query"].shape[2]
        cross = layer.endswith("cross") or (self._past is None and queries != memory.tokens)
        before = self.forwards[-1].layers.get(layer) if self.forwards else None
        continued = bool(self._past) and before is not None and (cross or before[-1].keys == self._past)
        if not self.forwards or (before is not None and not continued):
            self.forwards.append(Forward(inputs=self._inputs))
        calls = self.forwards[-1].layers.setdefault(layer, [])
        new = [memory.keys, memory.values] if self._values else [memory.keys]
        if continued:
            # A copy of the new ones alone: a view would keep every step's whole cache alive.
            new = [one[:, :, calls[-1].keys :].clone() for one in new]
        calls.append(
            AttentionRecord(
                given["query"].detach(),
                new[0].detach(),
                memory.tokens,
                given["mask"],
                given["bias"],
                module.similarity,
                self._past is not None,
                cross,
                new[1].detach() if self._values else None,
            )
        )

    def enter_model(self, inputs: Inputs | None) -> None:
        """A whole model begins to read, or ends (None)."""
        self._inputs = inputs if self.watching else self._inputs

    def enter_decoder(self, past: int | None) -> None:
        """A decoder begins with so many tokens in its cache, or ends (None)."""
        self._past = past if self.watching else self._past

    def finished(self, inputs: Inputs, outcome: list[Hypothesis]) -> None:
        """Decoding is over: these rows became these texts."""
        if self.forwards:
            self.forwards[-1].inputs, self.forwards[-1].outcome = inputs, outcome


Watcher = TypeVar("Watcher", bound=Recording)


def watch_module(module: nn.Module) -> AbstractContextManager[Recording]:
    """Record the attention of every run inside the block."""
    return record_into(Recording(), module)


@contextmanager
def record_into(seen: Watcher, module: nn.Module) -> Iterator[Watcher]:
    """Let `seen` record the attention of every run inside the block."""
    handles = []
    for name, part in module.named_modules():
        if isinstance(part, Attend):
            handles.append(part.register_forward_pre_hook(_recorder(seen, layer_name(name)), with_kwargs=True))
        elif isinstance(part, Decoder):
            handles.append(part.register_forward_pre_hook(lambda _, args: seen.enter_decoder(args[1].tokens)))
            handles.append(part.register_forward_hook(lambda *_: seen.enter_decoder(None), always_call=True))
        elif isinstance(part, Transformer):
            handles.append(part.register_forward_pre_hook(_reader(seen), with_kwargs=True))
            handles.append(part.register_forward_hook(lambda *_: seen.enter_model(None), always_call=True))
    token = outcome_listeners.set((*outcome_listeners.get(), seen.finished))
    try:
        with _as_written():
            yield seen
    finally:
        outcome_listeners.reset(token)
        for handle in handles:
            handle.remove()


def _as_written() -> AbstractContextManager[object]:
    """Code compiled before knows nothing of hooks added since, so while it is watched it runs uncompiled."""
    compiling = "torch._dynamo" in sys.modules  # importing it takes seconds; where nobody has, nothing is compiled
    return torch.compiler.set_stance("force_eager") if compiling else nullcontext()


def layer_name(path: str) -> str:
    """`encoder.layers.0.self_attention.attend` is `encoder.0.self`; `torch.compile`'s wrapper has no name."""
    silent = ("layers", "attend", "_orig_mod")
    parts = [part.removesuffix("_attention") for part in path.split(".") if part not in silent]
    return ".".join(part for part in parts if part) or "attention"


def _reader(seen: Recording) -> Any:
    def read(module: Transformer, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen.enter_model(args[0] if args else options["inputs"])

    return read


def _recorder(seen: Recording, layer: str) -> Any:
    def record(module: Attend, args: tuple[Any, ...], options: dict[str, Any] | None = None) -> None:
        if options is None:  # another thread's call, while the hook was being set
            return
        given = {"mask": None, "bias": None} | dict(zip(("query", "memory", "mask", "bias"), args, strict=False))
        seen.record(layer, module, given | options)

    return record

"""Exact attention maps of any run, with the fast kernel on: record queries and keys, compute the rows asked for.

    with regard.watch(model) as seen:
        model.run("de: 3 mars 2021")
    seen.weights("decoder.1.cross", head=0, rows=[-1])

A row of weights is one softmax over `q_i · Kᵀ`, so queries, keys and masks are all that must be kept: memory grows
with the text, not with its square, and nothing n×n is ever held. Recording is a forward hook on the `Attend` module
of every attention layer, or on PyTorch's own `MultiheadAttention`; nothing is stored on the model and nothing in it
asks whether it is watched. A layer is called by its `Site`, where it has one, else by its path.

While decoding, every step adds rows. Beams change places and finished rows leave; each generated text is followed
back through the rows its tokens were computed in (`Hypothesis.rows`), so rows count from its first token.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mechanism import LayerContext, Mechanism
from regard.attention.multihead import Attend
from regard.attention.similarity import ScaledDot, Similarity
from regard.attention.slot import Site
from regard.blocks.encoder import Encoder
from regard.data.batching import Inputs
from regard.decoding.engine import listeners
from regard.decoding.hypothesis import Hypothesis
from regard.errors import InputError, choose
from regard.inspection.torch_attention import as_given, unsupported
from regard.inspection.trace import AnyRecord, AttentionRecord, Forward, MechanismRecord, SequenceTrace
from regard.layers.reversible import computed_again
from regard.models.network import Network

SHOWN = 3
"""Texts whose length a recording tells of itself."""


class Top(NamedTuple):
    """The largest weights of every row, largest first, and the keys they go to."""

    weights: Float[Tensor, "*heads rows k"]
    keys: Int[Tensor, "*heads rows k"]


class Recording:
    """What was seen of a model: every run's attention, layer by layer, ready to be asked for rows."""

    def __init__(self, *, values: bool = False) -> None:
        self.forwards: list[Forward] = []
        self._values = values  # kept only where the four steps are wanted: they cost as much as the keys
        self._open: Forward | None = None  # the one now running; None where a module is called by itself
        self._memory: Tensor | None = None  # what the last encoder made
        self._grows = False  # whether a module called by itself goes on from its cache

    @property
    def keeps_values(self) -> bool:
        """Whether the values are kept, so that the four steps can be shown."""
        return self._values

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
        if (name := self.mechanism(layer)) is not None:
            raise InputError(f"the effective weights of {name} are no distribution", "ask for `seen.weights`")
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
            many, those = ("1 head", "0") if path.heads == 1 else (f"{path.heads} heads", f"0 to {path.heads - 1}")
            raise InputError(f"layer {layer!r} has {many} and no head {head}", f"use {those}")
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

    def only(self, batch: int | None) -> "Recording":
        """What was seen of one sequence, as if it had been the only one."""
        return self if batch is None else _OneSequence(*self.find(batch))

    def __repr__(self) -> str:
        if not self.forwards:
            return f"<{type(self).__name__}: nothing was seen yet>"
        heads = sorted({calls[0].heads for calls in self.forwards[-1].layers.values()})
        tokens = [self.only(batch).trace(self.layers[-1]) for batch in range(self.sequences)]
        lengths = ", ".join(str(len(trace.places())) for trace in tokens[:SHOWN])
        more = ", …" if len(tokens) > SHOWN else ""
        texts = "1 text" if len(tokens) == 1 else f"{len(tokens)} texts"
        layers = f"{self.layers[0]} … {self.layers[-1]}" if len(self.layers) > 1 else self.layers[0]
        return (
            f"<{type(self).__name__}: {texts}, {len(self.layers)} layers ({layers}), "
            f"{' or '.join(map(str, heads))} heads, {lengths}{more} rows in {self.layers[-1]}>"
        )

    def crosses(self, layer: str) -> bool:
        """Whether a layer's keys are another sequence than its queries."""
        return self._first(layer).cross

    def encodes(self, layer: str) -> bool:
        """Whether a layer is an encoder's: it attends from the source."""
        site = self._first(layer).site
        return site is not None and site.stack == "encoder"

    def mechanism(self, layer: str) -> str | None:
        """What attends in a layer by other weights than a softmax of scores; None where it is that."""
        first = self._first(layer)
        return type(first.mechanism).__name__ if isinstance(first, MechanismRecord) else None

    def _first(self, layer: str) -> AnyRecord:
        known = self.forwards[-1].layers if self.forwards else {}
        if layer not in known:
            raise InputError(f"layer {layer!r} was not seen", choose(layer, known))
        return known[layer][0]

    @property
    def watching(self) -> bool:
        """Whether this is the thread that watches; what others do with the same model is theirs.

        What a backward pass computes again was seen before.
        """
        return self in listeners.get() and not computed_again()

    def record(self, layer: str, similarity: Similarity, given: dict[str, Any], site: Site | None = None) -> None:
        """Keep what one call of attention was given."""
        if not self.watching:
            return
        memory, queries = given["memory"], given["query"].shape[2]
        before = self._belongs(layer, memory.tokens, queries, site, memory.keys.data_ptr())
        unlike = queries != memory.tokens and given["query_positions"] is None
        cross = site.kind == "cross" if site is not None else before is None and unlike
        new = [memory.keys, memory.values] if self._values else [memory.keys]
        positions = given["query_positions"]
        if positions is not None:  # a cache with room is written in place, and these may be as well
            new, positions = [one.clone() for one in new], positions.clone()
        elif before is not None:
            # A copy of the new ones alone: a view would keep every step's whole cache alive.
            new = [one[:, :, before.keys :].clone() for one in new]
        self.forwards[-1].layers.setdefault(layer, []).append(
            AttentionRecord(
                given["query"].detach(),
                new[0].detach(),
                memory.tokens,
                given["mask"],
                given["bias"],
                similarity,
                site,
                cross if before is None else before.cross,
                new[1].detach() if self._values else None,
                positions,
            )
        )

    def record_mechanism(self, layer: str, mechanism: Mechanism, inputs: Tensor, context: LayerContext) -> None:
        """Keep what one call of a mechanism was given that has no weights to be recorded."""
        if not self.watching:
            return
        site, cross, queries = mechanism.slot.site, mechanism.slot.cross, inputs.shape[1]
        memory = self._memory if cross else None
        if cross and memory is None:
            raise InputError(f"the memory of layer {layer!r} was not seen", "watch the whole network")
        keys = context.past + queries if memory is None else memory.shape[1]
        self._belongs(layer, keys, queries, site)
        record = MechanismRecord(mechanism, inputs.detach(), context, keys, site, cross, memory)
        self.forwards[-1].layers.setdefault(layer, []).append(record)

    def encoded(self, memory: Tensor) -> None:
        """An encoder has read a source."""
        if self.watching:
            self._memory = memory.detach()

    def _belongs(self, layer: str, keys: int, queries: int, site: Site | None, address: int = 0) -> AnyRecord | None:
        """The call of this layer that this one goes on from, in the forward it belongs to; that may be a new one."""
        if self._open is not None and self._open not in self.forwards:
            self.forwards.append(self._open)
        elif not self.forwards or (self._open is None and self.forwards[-1].closed):
            self.forwards.append(Forward())
        forward = self.forwards[-1]
        calls = forward.layers.get(layer)
        if calls is None:
            return None
        grown = keys > queries and calls[-1].keys == keys - queries  # from a cache, by these queries
        same = site is not None and calls[0].address == address  # steps that read one memory
        if grown or (calls[0].cross and (self._open is not None or self._grows or same)):
            self._grows = self._grows or grown
            return calls[-1]
        self._grows = False
        self.forwards.append(Forward(inputs=forward.inputs if self._open is not None else None))
        return None

    def opened(self, inputs: Inputs) -> None:
        """A forward begins: of a whole network, or of a decoding with all its steps."""
        if self.watching:
            self._open = Forward(inputs=inputs)

    def started(self) -> None:
        """A decoding has read its prompt but for the last token."""
        if self.watching and self._open is not None:
            self._open.begun = {layer: len(calls) for layer, calls in self._open.layers.items()}

    def finished(self, inputs: Inputs, outcome: list[Hypothesis]) -> None:
        """Decoding is over: these rows became these texts."""
        forward = self._open or (self.forwards[-1] if self.forwards else None)
        if self.watching and forward is not None:
            forward.inputs, forward.outcome = inputs, outcome

    def closed(self) -> None:
        """A forward ends."""
        if self.watching and self._open is not None:
            self._open.closed = True
            self._open = None


class _OneSequence(Recording):
    """One sequence of a recording."""

    def __init__(self, forward: Forward, index: int) -> None:
        super().__init__()
        self.forwards, self._index = [forward], index

    @property
    def sequences(self) -> int:
        return 1

    def find(self, batch: int | None) -> tuple[Forward, int]:
        return self.forwards[0], self._index


Watcher = TypeVar("Watcher", bound=Recording)


def watch_module(module: nn.Module) -> AbstractContextManager[Recording]:
    """Record the attention of every run inside the block."""
    return record_into(Recording(), module)


@contextmanager
def record_into(seen: Watcher, module: nn.Module) -> Iterator[Watcher]:
    """Let `seen` record the attention of every run inside the block."""
    check_watchable(module)
    handles = []
    for name, part in module.named_modules():
        if isinstance(part, Attend | nn.MultiheadAttention):
            handles.append(part.register_forward_pre_hook(_recorder(seen, name), with_kwargs=True))
        elif isinstance(part, Mechanism) and not _attends(part):
            handles.append(part.register_forward_pre_hook(_mechanism_recorder(seen, name), with_kwargs=True))
        elif isinstance(part, Encoder):
            handles.append(part.register_forward_hook(lambda _, args, out: seen.encoded(out)))
        elif isinstance(part, Network):
            handles.append(part.register_forward_pre_hook(_reader(seen), with_kwargs=True))
            handles.append(part.register_forward_hook(lambda *_: seen.closed(), always_call=True))
    token = listeners.set((*listeners.get(), seen))
    try:
        with as_written():
            yield seen
    finally:
        listeners.reset(token)
        for handle in handles:
            handle.remove()


def check_watchable(module: nn.Module) -> None:
    """Refuse a module of which nothing, or not everything, would be seen."""
    parts = [part for part in module.modules() if isinstance(part, Attend | nn.MultiheadAttention | Mechanism)]
    if not parts:
        raise InputError(
            f"{type(module).__name__} has no attention that can be watched",
            "watch a module with regard.MultiHeadAttention or torch.nn.MultiheadAttention in it",
        )
    for part in parts:
        if isinstance(part, nn.MultiheadAttention) and (reason := unsupported(part)):
            raise InputError(
                f"a torch.nn.MultiheadAttention of {type(module).__name__} cannot be watched: {reason}",
                "build it without that",
            )


def _attends(mechanism: Mechanism) -> bool:
    """Whether its weights are those of a call of `attend`, which is recorded itself."""
    return any(isinstance(part, Attend) for part in mechanism.modules())


def as_written() -> AbstractContextManager[object]:
    """Code compiled before knows nothing of hooks added since, so while it is watched it runs uncompiled."""
    compiling = "torch._dynamo" in sys.modules  # importing it takes seconds; where nobody has, nothing is compiled
    return torch.compiler.set_stance("force_eager") if compiling else nullcontext()


def layer_name(path: str) -> str:
    """Of an attention without a site, by its path: `block.0.self_attention.attend` is `block.0.self`.

    PyTorch's own layers call theirs `self_attn` and, across, `multihead_attn`.
    """
    silent = ("layers", "attend", "_orig_mod")
    named = path.replace("multihead_attn", "cross_attn").split(".")
    parts = [part.removesuffix("_attention").removesuffix("_attn") for part in named if part not in silent]
    return ".".join(part for part in parts if part) or "attention"


def _reader(seen: Recording) -> Any:
    def read(module: Network, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        seen.opened(args[0] if args else options["inputs"])

    return read


def _recorder(seen: Recording, path: str) -> Any:
    def record(
        module: Attend | nn.MultiheadAttention, args: tuple[Any, ...], options: dict[str, Any] | None = None
    ) -> None:
        if options is None:  # another thread's call, while the hook was being set
            return
        if isinstance(module, nn.MultiheadAttention):
            seen.record(layer_name(path), ScaledDot(), as_given(module, args, options) | {"query_positions": None})
            return
        names = ("query", "memory", "mask", "bias", "query_positions")
        given = dict.fromkeys(names[2:]) | dict(zip(names, args, strict=False))
        layer = layer_name(path) if module.site is None else str(module.site)
        seen.record(layer, module.similarity, given | options, module.site)

    return record


def _mechanism_recorder(seen: Recording, path: str) -> Any:
    def record(module: Mechanism, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = dict(zip(("inputs", "state", "context"), args, strict=False)) | options
        layer = layer_name(path) if module.slot.site is None else str(module.slot.site)
        seen.record_mechanism(layer, module, given["inputs"], given["context"])

    return record

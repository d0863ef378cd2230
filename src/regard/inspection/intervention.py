"""Change one thing inside a network while it runs: what a head gives, one edge of attention, one vector of the stream.

    HeadAblation    a head's output is zero, or its mean, at every token (Michel et al. 2019, §2; Wang et al. 2022, §2)
    EdgeKnockout    one query no longer reads one key (Geva et al. 2023, §4, "attention knockout")
    StreamPatch     a token's vector after a layer is another's (Meng et al. 2022, §2, "causal tracing")

    with intervene(module, [HeadAblation("encoder.1.self", 3)]):
        module(inputs)

They are hooks, so every mechanism and kernel runs as it is. A head's output is what the output projection reads of it,
and so of any mechanism that has one; a recurrent decoder's one head is its whole context. An edge is cut in exact
attention alone, whose row is computed again without it: renormalised, as a mask would have it, or not, when the other
weights stay as they were. Queries and keys count tokens from the first of the text; in a batch, which is of one text
and its copies, `sequence` says in which copy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.attention.core import share_heads, weights
from regard.attention.mask import Mask, MaskFunction
from regard.attention.mechanism import Mechanism
from regard.attention.multihead import Attend
from regard.attention.projections import Projections
from regard.blocks.decoder import DecoderLayer
from regard.blocks.encoder import EncoderLayer
from regard.data.batching import Inputs
from regard.decoding.engine import listeners
from regard.decoding.hypothesis import Hypothesis
from regard.errors import InputError, choose
from regard.inspection.capture import as_written, layer_name
from regard.layers.linear import Linear
from regard.models.network import Network

HeadOutputs = Float[Tensor, "batch tokens heads value_width"]


@dataclass(frozen=True, eq=False)
class AttentionPlace:
    """Where a layer attends: its heads, the projection that joins them, and the call of `attend` where there is one."""

    layer: str
    heads: int
    output: Linear | None
    attend: Attend | None

    def on_heads(self, change: Callable[[HeadOutputs], HeadOutputs | None]) -> RemovableHandle:
        """Call `change` with what every head gives; what it returns takes its place."""
        if self.output is not None:

            def before(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor] | None:
                changed = change(args[0].view(*args[0].shape[:2], self.heads, -1))
                return None if changed is None else (changed.flatten(2),)

            return self.output.register_forward_pre_hook(before)
        assert self.attend is not None

        def after(_: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor | None:
            changed = change(out.transpose(1, 2))
            return None if changed is None else changed.transpose(1, 2)

        return self.attend.register_forward_hook(after)

    def check(self, head: int | None) -> None:
        """Refuse a head it has not."""
        if head is not None and not 0 <= head < self.heads:
            those = "0" if self.heads == 1 else f"0 to {self.heads - 1}"
            raise InputError(f"layer {self.layer!r} has {self.heads} heads and no head {head}", f"use {those}")


def attention_places(module: nn.Module) -> dict[str, AttentionPlace]:
    """Every place a module attends at, by its name."""
    found: dict[str, AttentionPlace] = {}
    inner: set[nn.Module] = set()
    for path, part in module.named_modules():
        if isinstance(part, Mechanism | Projections):
            attends = [one for one in part.modules() if isinstance(one, Attend)]
            inner.update(attends)
            name = layer_name(path) if part.slot.site is None else str(part.slot.site)
            output = getattr(part, "output", None)
            if isinstance(output, Linear):
                found[name] = AttentionPlace(name, part.slot.heads, output, attends[0] if attends else None)
        elif isinstance(part, Attend) and part not in inner and part.site is not None:
            found[str(part.site)] = AttentionPlace(str(part.site), 1, None, part)
    if not found:
        raise InputError(f"{type(module).__name__} has no attention to be changed", "use a model that attends")
    return found


def given_to_attend(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What a call of `Attend` was given, by name."""
    names = ("query", "memory", "mask", "bias", "query_positions")
    return dict.fromkeys(names) | dict(zip(names, args, strict=False)) | options


class Intervention(ABC):
    """One change, which says where it is and hooks itself in there."""

    layer: str

    @abstractmethod
    def attach(self, module: nn.Module, running: "Running") -> RemovableHandle:
        """The hook; what is not there is refused."""

    def place(self, module: nn.Module) -> AttentionPlace:
        """Where a layer of this name attends."""
        places = attention_places(module)
        if self.layer not in places:
            raise InputError(f"layer {self.layer!r} does not attend in heads", choose(self.layer, places))
        return places[self.layer]


@dataclass(frozen=True, eq=False)
class HeadAblation(Intervention):
    """A head is switched off: it gives zeros, or the vector that is given, at every token."""

    layer: str
    head: int
    output: Float[Tensor, "value_width"] | None = None
    sequence: int | None = None

    def __str__(self) -> str:
        return f"{self.layer}:{self.head}"

    def attach(self, module: nn.Module, running: "Running") -> RemovableHandle:
        place = self.place(module)
        place.check(self.head)
        rows = slice(None) if self.sequence is None else self.sequence

        def ablated(heads: HeadOutputs) -> HeadOutputs:
            running.applied.setdefault(self, 1.0)
            heads = heads.clone()
            heads[rows, :, self.head] = 0 if self.output is None else self.output.to(heads)
            return heads

        return place.on_heads(ablated)


@dataclass(frozen=True, eq=False)
class EdgeKnockout(Intervention):
    """A query no longer reads a key, in one head or, where none is named, in all of the layer."""

    layer: str
    query: int
    key: int
    head: int | None = None
    renormalise: bool = True
    """Whether the other weights of the row grow to add up to 1 again, as if the key had been masked."""
    sequence: int | None = None

    def __str__(self) -> str:
        return f"{self.layer}:{'all' if self.head is None else self.head}:{self.query}:{self.key}"

    def attach(self, module: nn.Module, running: "Running") -> RemovableHandle:
        place = self.place(module)
        place.check(self.head)
        if place.attend is None:
            raise InputError(
                f"an edge of {self.layer} cannot be cut: its weights are not those of a softmax over keys",
                "cut one in a layer of exact attention, or switch a head off",
            )

        def cut(module: Attend, args: tuple[Any, ...], options: dict[str, Any], out: Tensor) -> Tensor | None:
            given = given_to_attend(args, options)
            first = running.first_query(module, given)
            return self._without(module, given, self.query - first, running, out)

        running.edges.append(self)
        return place.attend.register_forward_hook(cut, with_kwargs=True)

    def _without(
        self, module: Attend, given: Mapping[str, Any], at: int, running: "Running", out: Tensor
    ) -> Tensor | None:
        """What the heads read, with this row computed again; None where the row is not among these."""
        query, memory, mask = given["query"], given["memory"], given["mask"]
        if not 0 <= at < query.shape[2] or not 0 <= self.key < memory.tokens:
            return None

        def row(mask: Mask | None) -> Float[Tensor, "batch heads 1 keys"]:
            where = torch.tensor([at], device=query.device)
            return weights(query, memory.keys, similarity=module.similarity, mask=mask, bias=given["bias"], rows=where)

        whole = row(mask)
        weight = float(whole[self._rows, self._heads, 0, self.key].sum())
        if weight == 0.0:
            return None  # it was never there
        running.applied.setdefault(self, weight)
        masked, zeroed = running.cut(self, whole)
        uncut = MaskFunction(lambda batch, head, query, key: ~masked[batch, head, key])
        left = row(uncut if mask is None else mask & uncut).masked_fill(zeroed[:, :, None], 0.0)
        read = share_heads(left, memory.values, torch.matmul)[:, :, 0].to(out.dtype)
        out = out.clone()
        out[:, :, at] = torch.where((masked | zeroed).any(dim=-1, keepdim=True), read, out[:, :, at])
        return out

    @property
    def _rows(self) -> slice:
        return slice(None) if self.sequence is None else slice(self.sequence, self.sequence + 1)

    @property
    def _heads(self) -> slice:
        return slice(None) if self.head is None else slice(self.head, self.head + 1)


@dataclass(frozen=True, eq=False)
class StreamPatch(Intervention):
    """A token's vector after a layer, `encoder.2`, is this one."""

    layer: str
    token: int
    vector: Float[Tensor, "width"]
    sequence: int | None = None

    def __str__(self) -> str:
        return f"{self.layer}@{self.token}"

    def attach(self, module: nn.Module, running: "Running") -> RemovableHandle:
        places = stream_places(module)
        if self.layer not in places:
            raise InputError(f"there is no stream after {self.layer!r}", choose(self.layer, places))
        rows = slice(None) if self.sequence is None else self.sequence

        def patched(_: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
            stream = (out[0] if isinstance(out, tuple) else out).clone()
            running.applied.setdefault(self, 1.0)
            stream[rows, self.token] = self.vector.to(stream)
            return (stream, *out[1:]) if isinstance(out, tuple) else stream

        return places[self.layer].register_forward_hook(patched)


def change_of(text: str, renormalise: bool = True) -> Intervention:
    """What the command line writes: `layer:head` is a head switched off, `layer:head:query:key` an edge that is cut.

    In place of a head, `all` cuts the edge in every one.

    >>> str(change_of("encoder.1.self:3")), str(change_of("decoder.0.cross:all:2:5"))
    ('encoder.1.self:3', 'decoder.0.cross:all:2:5')
    """
    layer, *rest = text.split(":")
    named = len(rest) == 3 and rest[0] == "all"
    numbers = [int(one) for one in rest[named:] if one.isdecimal()]
    if layer and len(rest) in (1, 3) and len(numbers) == len(rest) - named:
        if len(rest) == 1:
            return HeadAblation(layer, numbers[0])
        query, key = numbers[-2:]
        return EdgeKnockout(layer, query, key, None if named else numbers[0], renormalise)
    raise InputError(
        f"{text!r} names no head and no edge", "write LAYER:HEAD, or LAYER:HEAD:QUERY:KEY where HEAD may be `all`"
    )


def stream_places(module: nn.Module) -> dict[str, nn.Module]:
    """The modules whose output is the stream of a stack's tokens: its layers, `encoder.0`, `decoder.1` …"""
    stacks = [(name, getattr(module, name, None)) for name in ("encoder", "decoder")]
    found: dict[str, nn.Module] = {}
    for name, stack in stacks:
        layers = getattr(stack, "layers", None)
        if isinstance(layers, nn.ModuleList):
            kept = [one for one in layers if isinstance(one, EncoderLayer | DecoderLayer)]
            found |= {f"{name}.{index}": one for index, one in enumerate(kept)}
    if not found or getattr(getattr(module, "config", None), "residual", True) == "reversible":
        raise InputError(
            f"{type(module).__name__} has no stream of token vectors that goes from layer to layer",
            "use a Transformer whose layers are not reversible",
        )
    return found


@dataclass(eq=False)
class Running:
    """What is known of a forward while it runs: which changes took place, and how many queries a layer has read."""

    applied: dict[Intervention, float] = field(default_factory=dict)
    """The changes that took place; of an edge with the weight that was cut."""
    edges: list[EdgeKnockout] = field(default_factory=list)
    read: dict[Attend, int] = field(default_factory=dict)

    def cut(
        self, edge: EdgeKnockout, like: Float[Tensor, "batch heads 1 keys"]
    ) -> tuple[Bool[Tensor, "batch heads keys"], Bool[Tensor, "batch heads keys"]]:
        """All that is cut of this edge's row: what is masked before the softmax, and what is zeroed behind it."""
        masked, zeroed = (torch.zeros_like(like[:, :, 0], dtype=torch.bool) for _ in range(2))
        for one in self.edges:
            if (one.layer, one.query) == (edge.layer, edge.query) and one.key < like.shape[-1]:
                (masked if one.renormalise else zeroed)[one._rows, one._heads, one.key] = True
        return masked, zeroed

    def first_query(self, module: Attend, given: Mapping[str, Any]) -> int:
        """Where a call's queries begin in the text. Those of self-attention stand at the end of the keys."""
        queries, keys = given["query"].shape[2], given["memory"].tokens
        if module.site is None or module.site.kind == "self":
            return int(keys - queries)
        return self.read.get(module, 0)

    def advance(self, module: Attend, args: tuple[Any, ...], out: Tensor) -> None:
        """So many queries more were read; said once a call, after all that is cut of it."""
        self.read[module] = self.read.get(module, 0) + out.shape[2]

    def opened(self, inputs: Inputs) -> None:
        """Decoding begins; that somebody listens keeps it on the path where modules are called."""

    def started(self) -> None:
        """The prompt is read."""

    def finished(self, inputs: Inputs, outcome: list[Hypothesis]) -> None:
        """The text is written."""

    def closed(self) -> None:
        """It is over."""


@contextmanager
def intervene(module: nn.Module, changes: Sequence[Intervention]) -> Iterator[Running]:
    """Let a module run with these changes inside the block; edges of one row are cut together."""
    running, handles = Running(), []
    for change in changes:
        if not isinstance(change, Intervention):
            raise InputError(f"{change!r} is no change", "give HeadAblation(layer, head) or EdgeKnockout(…)")
    token = listeners.set((*listeners.get(), running))
    try:
        encoder = getattr(module, "encoder", None)
        if isinstance(encoder, nn.Module):  # a source that is read begins a text
            handles.append(encoder.register_forward_pre_hook(lambda _, args: running.read.clear()))
        handles += [change.attach(module, running) for change in changes]
        for attend in {edge.place(module).attend for edge in running.edges}:
            assert attend is not None
            handles.append(attend.register_forward_hook(running.advance))
        with as_written():
            yield running
    finally:
        listeners.reset(token)
        for handle in handles:
            handle.remove()


@torch.no_grad()
def mean_outputs(module: Network, inputs: Inputs) -> dict[str, Float[Tensor, "heads value_width"]]:
    """What every head gives on the mean of a text's tokens, by layer: what mean ablation puts in its place."""
    sums: dict[str, tuple[Tensor, int]] = {}
    handles = []
    for place in attention_places(module).values():

        def add(heads: HeadOutputs, layer: str = place.layer) -> None:
            total, count = sums.get(layer, (heads.new_zeros(heads.shape[2:], dtype=torch.float64), 0))
            sums[layer] = (total + heads[0].double().sum(dim=0), count + heads.shape[1])

        handles.append(place.on_heads(add))
    try:
        with as_written():
            module(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: total / count for layer, (total, count) in sums.items()}

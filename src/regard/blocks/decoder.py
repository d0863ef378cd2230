"""The decoder (Vaswani et al. 2017, §3.1): masked self-attention, cross-attention if any, feed-forward.

Decoding one token at a time and running a whole text are the same call: what was computed before comes in as a
`DecoderCache`, a value, and the extended one goes out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import AttentionState
from regard.attention.exact import ExactAttention
from regard.attention.mechanism import LayerContext, attended
from regard.attention.multihead import HeadAttention
from regard.attention.slot import Site
from regard.axes import Hidden, RowIds
from regard.blocks.config import BlockConfig
from regard.blocks.encoder import attention, feedforward, final_norm, residual, reversible
from regard.blocks.one_token import OneToken, suits
from regard.blocks.shared_memory import SharedMemory
from regard.layers.reversible import Change, computed_again

Encoded = Float[Tensor, "batch source width"]


@dataclass(frozen=True, eq=False)
class DecoderCache:
    """Per layer: what attention keeps of the tokens so far, and of the memory; which memory each row has."""

    own: tuple[AttentionState | None, ...] = ()
    memory: tuple[AttentionState | None, ...] = ()
    source: RowIds | None = None
    """The text of each row, by its number among those that are there."""
    shared: SharedMemory | None = None
    """Which memory each row reads, where several read one."""
    once: bool = False
    """Whether rows may share a memory: exact attention lets them."""
    tokens: int = 0
    """How many have gone through the decoder."""
    encoded: Encoded | None = None
    """The memory itself, of which each layer then computes what it needs when it gets there."""
    kept: bool = True
    """Whether there is more to come: else nothing is kept of the tokens."""
    quick: OneToken | None = None
    """The layers, ready for steps of one token, once there was one."""

    def select(self, rows: RowIds) -> "DecoderCache":
        """These rows, in this order; beams that change places within a sequence leave its memory where it is."""
        own = _select(self.own, rows)
        if self.source is None:
            return replace(self, own=own, memory=_select(self.memory, rows))
        source = self.source[rows]
        if torch.equal(source, self.source):
            return replace(self, own=own)
        if not self.once:
            return replace(self, own=own, memory=_select(self.memory, rows), source=source)
        kept, source = torch.unique(source, return_inverse=True)
        memory = self.memory if len(kept) == self.texts else _select(self.memory, kept)
        return replace(self, own=own, memory=memory, source=source, shared=SharedMemory.of(source, len(kept)))

    @property
    def texts(self) -> int:
        """How many memories there are, where rows may share them."""
        assert self.source is not None
        return len(self.source) if self.shared is None else self.shared.memories

    def memories(self, rows: RowIds) -> Int[Tensor, "memories"]:
        """The memories that these rows leave, in their order."""
        return torch.unique(self.source[rows]) if self.once and self.source is not None else rows

    def copy(self) -> "DecoderCache":
        """The same, which a step of this one leaves as it is."""
        return replace(self, own=tuple(None if one is None else one.copy() for one in self.own))

    def gather(self, columns: Int[Tensor, "rows columns"]) -> "DecoderCache":
        """With these of every row's tokens alone, for layers that can go back."""
        own = tuple(None if one is None else one.gather(columns) for one in self.own)
        return replace(self, own=own, tokens=columns.shape[1])

    def settled(self) -> "DecoderCache":
        """The same with the memory laid out to be read again at every step."""
        return replace(self, memory=tuple(None if one is None else one.settled() for one in self.memory))


def _select(states: tuple[AttentionState | None, ...], rows: RowIds) -> tuple[AttentionState | None, ...]:
    return tuple(None if one is None else one.select(rows) for one in states)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention if `cross`, feed-forward, each inside its residual."""

    def __init__(self, config: BlockConfig, index: int = 0, *, cross: bool) -> None:
        super().__init__()
        self.self_attention = attention(config, Site("decoder", index, "self"))
        self.self_residual = residual(config)
        self.cross_attention = attention(config, Site("decoder", index, "cross")) if cross else None
        self.cross_residual = residual(config) if cross else None
        self.feedforward = feedforward(config)
        self.feedforward_residual = residual(config)

    def forward(
        self,
        stream: Hidden,
        past: AttentionState | None,
        memory: AttentionState | Encoded | None,
        context: LayerContext,
        shared: SharedMemory | None = None,
    ) -> tuple[Hidden, AttentionState | None]:
        """One layer further, and what this layer's attention keeps with the new tokens in it."""
        made, own = attended(self.self_attention, self.self_residual.enter(stream), past, context)
        stream = self.self_residual.add(stream, made)
        if self.cross_attention is not None:
            stream = self.crossed(stream, memory, context, shared)
        return self.feedforward_residual.add(stream, self.feedforward(self.feedforward_residual.enter(stream))), own

    def crossed(
        self,
        stream: Hidden,
        memory: AttentionState | Encoded | None,
        context: LayerContext,
        shared: SharedMemory | None = None,
    ) -> Hidden:
        """The stream behind cross-attention."""
        assert self.cross_residual is not None
        made = self._crossed(self.cross_residual.enter(stream), self._read(memory), context.cross, shared)
        return self.cross_residual.add(stream, made)

    def changes(
        self,
        past: AttentionState | None,
        memory: AttentionState | Encoded | None,
        context: LayerContext,
        keep: Callable[[AttentionState | None], None],
        shared: SharedMemory | None = None,
    ) -> Iterator[Change]:
        """What each sublayer adds, of the stream it reads; what self-attention keeps goes to `keep`."""

        def own_read(stream: Hidden) -> Hidden:
            made, own = attended(self.self_attention, self.self_residual.enter(stream), past, context)
            if not computed_again():
                keep(own)
            return self.self_residual.change(made)

        def crossed(stream: Hidden) -> Hidden:
            assert self.cross_attention is not None
            assert self.cross_residual is not None
            made = self._crossed(self.cross_residual.enter(stream), self._read(memory), context.cross, shared)
            return self.cross_residual.change(made)

        yield own_read
        if self.cross_attention is not None:
            yield crossed
        yield lambda stream: self.feedforward_residual.change(self.feedforward(self.feedforward_residual.enter(stream)))

    def _crossed(
        self, entered: Hidden, memory: AttentionState | None, context: LayerContext, shared: SharedMemory | None
    ) -> Hidden:
        """What cross-attention reads; who watches it is shown every row with a memory of its own."""
        cross, watched = self.cross_attention, False
        assert cross is not None
        if shared is not None and isinstance(cross, HeadAttention):
            watched = bool(cross.attend._forward_pre_hooks)
        if shared is not None and not watched:
            return shared.unfold(attended(cross, shared.fold(entered), memory, context)[0])
        if shared is not None:
            mask = None if context.mask is None else context.mask.select(shared.source)
            context, memory = replace(context, mask=mask), None if memory is None else memory.select(shared.source)
        return attended(cross, entered, memory, context)[0]

    def _read(self, memory: AttentionState | Encoded | None) -> AttentionState | None:
        """What cross-attention has of the memory, computed now if it was not before."""
        if not isinstance(memory, Tensor):
            return memory
        assert self.cross_attention is not None
        return self.cross_attention.start(memory)


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, config: BlockConfig, layers: int, *, cross: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, index, cross=cross) for index in range(layers))
        self.norm = final_norm(config)
        self.reversible = reversible(config)

    def precompute_cross(self, memory: Hidden) -> DecoderCache:
        """A cache with no tokens yet and what every layer computes of the memory once."""
        attentions = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        states = tuple(cross.start(memory) for cross in attentions if cross is not None)
        once = all(isinstance(one, ExactAttention) for one in attentions)
        return DecoderCache(memory=states, source=torch.arange(len(memory), device=memory.device), once=once)

    def forward(self, stream: Hidden, cache: DecoderCache, context: LayerContext) -> tuple[Hidden, DecoderCache]:
        """Through every layer; the cache comes back with these tokens added."""
        if cache.kept and cache.tokens and suits(stream, context):
            quick = cache.quick or OneToken.of(self.layers if self.reversible is None else ())
            cache = replace(cache, quick=quick)
            if quick.free:
                memories = cache.memory or repeat(cache.encoded)
                stream, kept = quick.step(stream, cache.own, memories, context, cache.shared)
                return self.norm(stream), replace(cache, own=kept, tokens=cache.tokens + 1)
        own: dict[int, AttentionState | None] = {}
        changes: list[Change] = []
        for index, (layer, past, memory) in enumerate(
            zip(self.layers, cache.own or repeat(None), cache.memory or repeat(cache.encoded), strict=False)
        ):
            assert isinstance(layer, DecoderLayer)
            if self.reversible is None:
                stream, state = layer(stream, past, memory, context, cache.shared)
                if cache.kept:
                    own[index] = state
            else:
                keep = partial(own.__setitem__, index) if cache.kept else _forget
                changes.extend(layer.changes(past, memory, context, keep, cache.shared))
        if self.reversible is not None:
            stream = self.reversible(changes, stream)
        return self.norm(stream), replace(cache, own=tuple(own.values()), tokens=cache.tokens + stream.shape[1])


def _forget(state: AttentionState | None) -> None:
    """Keep nothing."""

"""The decoder (Vaswani et al. 2017, §3.1): masked self-attention, cross-attention if any, feed-forward.

Decoding one token at a time and running a whole text are the same call: what was computed before comes in as a
`DecoderCache`, a value, and the extended one goes out.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.cache import AttentionState
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Site
from regard.axes import Hidden, RowIds
from regard.blocks.config import BlockConfig
from regard.blocks.encoder import attention, feedforward, final_norm, residual


@dataclass(frozen=True, eq=False)
class DecoderCache:
    """Per layer: what attention keeps of the tokens so far, and of the memory; which memory each row has."""

    own: tuple[AttentionState | None, ...] = ()
    memory: tuple[AttentionState | None, ...] = ()
    source: RowIds | None = None
    tokens: int = 0
    """How many have gone through the decoder."""

    def select(self, rows: RowIds) -> "DecoderCache":
        """These rows, in this order; beams that change places within a sequence leave its memory where it is."""
        own = _select(self.own, rows)
        if self.source is None:
            return replace(self, own=own, memory=_select(self.memory, rows))
        source = self.source[rows]
        if torch.equal(source, self.source):
            return replace(self, own=own)
        return replace(self, own=own, memory=_select(self.memory, rows), source=source)

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
        self, stream: Hidden, past: AttentionState | None, memory: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, AttentionState | None]:
        """One layer further, and what this layer's attention keeps with the new tokens in it."""
        made, own = self.self_attention(self.self_residual.enter(stream), past, context)
        stream = self.self_residual.add(stream, made)
        if self.cross_attention is not None and self.cross_residual is not None:
            made, _ = self.cross_attention(self.cross_residual.enter(stream), memory, context.cross)
            stream = self.cross_residual.add(stream, made)
        return self.feedforward_residual.add(stream, self.feedforward(self.feedforward_residual.enter(stream))), own


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, config: BlockConfig, layers: int, *, cross: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, index, cross=cross) for index in range(layers))
        self.norm = final_norm(config)

    def precompute_cross(self, memory: Hidden) -> DecoderCache:
        """A cache with no tokens yet and what every layer computes of the memory once."""
        attentions = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        states = tuple(cross.start(memory) for cross in attentions if cross is not None)
        return DecoderCache(memory=states, source=torch.arange(len(memory), device=memory.device))

    def forward(self, stream: Hidden, cache: DecoderCache, context: LayerContext) -> tuple[Hidden, DecoderCache]:
        """Through every layer; the cache comes back with these tokens added."""
        own = []
        for layer, past, memory in zip(
            self.layers, cache.own or repeat(None), cache.memory or repeat(None), strict=False
        ):
            stream, extended = layer(stream, past, memory, context)
            own.append(extended)
        return self.norm(stream), replace(cache, own=tuple(own), tokens=cache.tokens + stream.shape[1])

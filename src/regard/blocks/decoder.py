"""The decoder (Vaswani et al. 2017, §3.1): masked self-attention, cross-attention if any, feed-forward.

Decoding one token at a time and running a whole text are the same call: what was computed before comes in as a
`DecoderCache`, a value, and the extended one goes out.
"""

from dataclasses import dataclass, replace
from itertools import repeat

import torch
from torch import nn

from regard.attention.bias import Bias
from regard.attention.cache import KeyValues
from regard.attention.mask import Mask
from regard.attention.multihead import Site
from regard.attention.rotary import Rotate
from regard.axes import Hidden, RowIds
from regard.blocks.config import BlockConfig
from regard.blocks.encoder import attention, feedforward, final_norm, residual


@dataclass(frozen=True, eq=False)
class DecoderCache:
    """Per layer: the keys and values of the tokens so far, and of the memory; which memory each row has."""

    own: tuple[KeyValues, ...] = ()
    memory: tuple[KeyValues, ...] = ()
    source: RowIds | None = None

    @property
    def tokens(self) -> int:
        """How many tokens have gone through the decoder."""
        return self.own[0].tokens if self.own else 0

    def select(self, rows: RowIds) -> "DecoderCache":
        """These rows, in this order; beams that change places within a sequence leave its memory where it is."""
        own = tuple(layer.select(rows) for layer in self.own)
        if not self.memory:
            return DecoderCache(own)
        before = self.source
        if before is None:
            before = torch.arange(len(self.memory[0].keys), device=rows.device)
        source = before[rows]
        if torch.equal(source, before):
            return DecoderCache(own, self.memory, source)
        return DecoderCache(own, tuple(layer.select(rows) for layer in self.memory), source)


@dataclass(frozen=True, eq=False)
class LayerContext:
    """What every layer of one pass is told: who may see whom, and where tokens stand."""

    mask: Mask | None = None
    bias: Bias | None = None
    rotate: Rotate | None = None
    memory_mask: Mask | None = None


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
        self, stream: Hidden, past: KeyValues | None, memory: KeyValues | None, context: LayerContext
    ) -> tuple[Hidden, KeyValues]:
        """One layer further, and this layer's keys and values with the new tokens' added."""
        inputs = self.self_residual.enter(stream)
        own = self.self_attention.keys_values(inputs, context.rotate)
        own = own if past is None else past.append(own)
        made = self.self_attention(inputs, own, mask=context.mask, bias=context.bias, rotate=context.rotate)
        stream = self.self_residual.add(stream, made)
        if self.cross_attention is not None and self.cross_residual is not None:
            inputs = self.cross_residual.enter(stream)
            stream = self.cross_residual.add(stream, self.cross_attention(inputs, memory, mask=context.memory_mask))
        return self.feedforward_residual.add(stream, self.feedforward(self.feedforward_residual.enter(stream))), own


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, config: BlockConfig, layers: int, *, cross: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, index, cross=cross) for index in range(layers))
        self.norm = final_norm(config)

    def precompute_cross(self, memory: Hidden) -> DecoderCache:
        """A cache with no tokens yet and every layer's keys and values of the memory, computed once."""
        attentions = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        return DecoderCache(memory=tuple(cross.keys_values(memory) for cross in attentions if cross is not None))

    def forward(self, stream: Hidden, cache: DecoderCache, context: LayerContext) -> tuple[Hidden, DecoderCache]:
        """Through every layer; the cache comes back with these tokens added."""
        own = []
        for layer, past, memory in zip(
            self.layers, cache.own or repeat(None), cache.memory or repeat(None), strict=False
        ):
            stream, extended = layer(stream, past, memory, context)
            own.append(extended)
        return self.norm(stream), replace(cache, own=tuple(own))

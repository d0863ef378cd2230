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
from regard.attention.rotary import Rotate
from regard.axes import Hidden, RowIds
from regard.blocks.config import BlockConfig
from regard.blocks.encoder import attention, feedforward
from regard.blocks.residual import Residual, final_norm


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
class Surroundings:
    """What every layer of one pass is told: who may see whom, and where tokens stand."""

    mask: Mask | None = None
    bias: Bias | None = None
    rotate: Rotate | None = None
    memory_mask: Mask | None = None


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention if `crossing`, feed-forward, each inside its residual."""

    def __init__(self, config: BlockConfig, *, crossing: bool) -> None:
        super().__init__()
        self.self_attention = attention(config)
        self.around_self = Residual(config)
        self.cross_attention = attention(config) if crossing else None
        self.around_cross = Residual(config) if crossing else None
        self.feedforward = feedforward(config)
        self.around_feedforward = Residual(config)

    def forward(
        self, stream: Hidden, past: KeyValues | None, memory: KeyValues | None, around: Surroundings
    ) -> tuple[Hidden, KeyValues]:
        """One layer further, and this layer's keys and values with the new tokens' added."""
        inputs = self.around_self.enter(stream)
        own = self.self_attention.keys_values(inputs, around.rotate)
        own = own if past is None else past.append(own)
        made = self.self_attention(inputs, own, mask=around.mask, bias=around.bias, rotate=around.rotate)
        stream = self.around_self.add(stream, made)
        if self.cross_attention is not None and self.around_cross is not None:
            inputs = self.around_cross.enter(stream)
            stream = self.around_cross.add(stream, self.cross_attention(inputs, memory, mask=around.memory_mask))
        return self.around_feedforward.add(stream, self.feedforward(self.around_feedforward.enter(stream))), own


class Decoder(nn.Module):
    """A stack of decoder layers."""

    def __init__(self, config: BlockConfig, layers: int, *, crossing: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, crossing=crossing) for _ in range(layers))
        self.norm = final_norm(config)

    def remember(self, memory: Hidden) -> DecoderCache:
        """A cache with no tokens yet and every layer's keys and values of the memory, computed once."""
        crossings = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        return DecoderCache(memory=tuple(cross.keys_values(memory) for cross in crossings if cross is not None))

    def forward(self, stream: Hidden, cache: DecoderCache, around: Surroundings) -> tuple[Hidden, DecoderCache]:
        """Through every layer; the cache comes back with these tokens added."""
        own = []
        for layer, past, memory in zip(
            self.layers, cache.own or repeat(None), cache.memory or repeat(None), strict=False
        ):
            stream, extended = layer(stream, past, memory, around)
            own.append(extended)
        return self.norm(stream), replace(cache, own=tuple(own))

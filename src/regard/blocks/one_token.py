"""A step of one token per row through a decoder's layers on a CPU: what does not change is asked once.

There a step takes as long as the weights take to read, and in small models nearly as long again goes by between the
products: modules that call modules, inputs that are rounded anew for every map of them. This computes what
`DecoderLayer.forward` computes, which stays its meaning, for layers of exact attention; where somebody watches a layer
by a hook, in training and with gradients it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module as of_all

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.decode_step import attend_few
from regard.attention.exact import ExactAttention
from regard.attention.mechanism import LayerContext
from regard.attention.rotary import Rotation
from regard.attention.similarity import ScaledDot
from regard.layers import int8, private_ops
from regard.layers.feedforward import FeedForward
from regard.layers.linear import Linear, PackedParameters
from regard.layers.residual import Residual

if TYPE_CHECKING:
    from regard.blocks.shared_memory import SharedMemory

Map = Callable[[Tensor], Tensor]
Rows = Float[Tensor, "rows width"]


@dataclass(frozen=True, eq=False)
class TokenTurn:
    """A rotation of one token per row: each half of a head by the cosine, the other half by the sine."""

    cosine: Float[Tensor, "#rows 1 1 head_width"]
    sine: Float[Tensor, "#rows 1 1 head_width"]

    @classmethod
    def of(cls, rotation: Rotation, dtype: torch.dtype) -> TokenTurn:
        """The same turn."""
        cosine, sine = rotation.cosine.to(dtype), rotation.sine.to(dtype)
        return cls(torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1))

    def __call__(self, heads: Tensor) -> Tensor:
        return torch.addcmul(heads * self.cosine, heads.roll(heads.shape[-1] // 2, -1), self.sine)


@dataclass(frozen=True, eq=False)
class Sublayer:
    """What stands around a sublayer: norms before it, of what it made, and after the sum."""

    before: Map | None
    made: Map | None
    after: Map | None

    @classmethod
    def of(cls, residual: Residual) -> Sublayer:
        """Of a residual that adds."""
        norm = _norm(residual.norm)
        post = residual.placement == "post"
        made = None if residual.made_norm is None else _norm(residual.made_norm)
        return cls(None if post else norm, made, norm if post else None)

    def enter(self, stream: Rows) -> Rows:
        """What the sublayer reads."""
        return stream if self.before is None else self.before(stream)

    def add(self, stream: Rows, made: Rows) -> Rows:
        """The stream with what the sublayer made of it."""
        total = stream + (made if self.made is None else self.made(made))
        return total if self.after is None else self.after(total)


@dataclass(frozen=True, eq=False)
class QuickLayer:
    """A layer, its maps and norms at hand."""

    attention: ExactAttention
    crossed: Callable[..., Tensor] | None
    """Cross-attention and what stands around it, by the layer's own way."""
    around: Sublayer
    around_feedforward: Sublayer
    asked: Maps
    joined: Map
    up: Maps
    activation: Map
    down: Map

    @classmethod
    def of(cls, layer: Any) -> QuickLayer | None:
        """Of a decoder's layer that is exact attention with plain maps; None of another."""
        own, inner = layer.self_attention, layer.feedforward
        plain = type(own) is ExactAttention and own.rotary is None and type(own.attend.similarity) is ScaledDot
        residuals = layer.self_residual, layer.feedforward_residual
        if not plain or type(inner) is not FeedForward or not all(one.adds for one in residuals):
            return None
        assert isinstance(own, ExactAttention)
        ups = [inner.up] if inner.gate is None else [inner.gate, inner.up]
        around, around_feedforward = map(Sublayer.of, residuals)
        asked, up = Maps([own.query, own.key, own.value]), Maps(ups)
        joined, down = _map(own.output), _map(inner.down)
        crossed = None if layer.cross_attention is None else layer.crossed
        return cls(own, crossed, around, around_feedforward, asked, joined, up, inner.activation, down)

    def step(
        self, stream: Rows, past: AttentionState | None, context: LayerContext, cross: Callable[[Rows], Rows] | None
    ) -> tuple[Rows, KeyValues]:
        """One layer further, and its keys and values with the new token's."""
        read, own = self._attended(self.around.enter(stream), past, context)
        stream = self.around.add(stream, self.joined(read))
        if cross is not None:
            stream = cross(stream)
        made = self.up(self.around_feedforward.enter(stream))
        inner = self.activation(made[0])
        return self.around_feedforward.add(stream, self.down(inner if len(made) == 1 else inner * made[1])), own

    def _attended(
        self, read: Rows, past: AttentionState | None, context: LayerContext
    ) -> tuple[Float[Tensor, "rows joined"], KeyValues]:
        own, rows, width = self.attention, len(read), self.attention.head_width
        mapped = self.asked(read)
        query = mapped[0].view(rows, own.heads, 1, width)
        key = mapped[1].view(rows, own.key_value_heads, 1, width)
        value = mapped[2].view(rows, own.key_value_heads, 1, own.value_width)
        if own.query_norm is not None and own.key_norm is not None:
            query, key = own.query_norm(query), own.key_norm(key)
        rotation = own.rotation(context)
        if isinstance(rotation, Rotation):
            turn = context.once(("turn", query.dtype), lambda: TokenTurn.of(rotation, query.dtype))
            query, key = turn(query), turn(key)
        kept = KeyValues(key, value)
        if past is not None:
            assert isinstance(past, KeyValues)
            kept = past.append(kept)
        out = attend_few(
            query.to(kept.keys.dtype), kept.keys, kept.values, own.attend.similarity, own.self_mask(context)
        )
        return out.to(read.dtype).view(rows, -1), kept


def suits(stream: Float[Tensor, "rows tokens width"], context: LayerContext) -> bool:
    """Whether this is a step of one token on a CPU that the layers' own positions say all of."""
    return (
        stream.shape[1] == 1
        and stream.device.type == "cpu"
        and context.bias is None
        and context.query_positions is None
        and (context.rotate is None or isinstance(context.rotate, Rotation))
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class OneToken:
    """A decoder's layers; none where a step of it takes the ordinary way."""

    def __init__(self, layers: Sequence[QuickLayer], hooks: Sequence[dict[Any, Any]]) -> None:
        self.layers, self.hooks = layers, hooks

    @classmethod
    def of(cls, layers: Iterable[nn.Module]) -> OneToken:
        """Of layers that are all plain; else it is never used."""
        every = list(layers)
        found = [one for one in map(QuickLayer.of, every) if one is not None]
        hooks = [of_all._global_forward_hooks, of_all._global_forward_pre_hooks]
        for layer in every:
            for one in layer.modules():
                hooks += [one._forward_hooks, one._forward_pre_hooks]
        return cls(found if len(found) == len(every) else (), hooks)

    @property
    def free(self) -> bool:
        """Whether a step may go through here: the layers are plain, nobody watches, and nothing is dropped."""
        return bool(self.layers) and not any(self.hooks) and not self.layers[0].attention.training

    def step(
        self,
        stream: Float[Tensor, "rows 1 width"],
        own: Iterable[AttentionState | None],
        memory: Iterable[Any],
        context: LayerContext,
        shared: SharedMemory | None,
    ) -> tuple[Float[Tensor, "rows 1 width"], tuple[KeyValues, ...]]:
        """Through every layer: the last one's vectors, and every layer's keys and values."""
        rows, kept = stream[:, 0], []
        for layer, past, read in zip(self.layers, own, memory, strict=False):
            rows, state = layer.step(rows, past, context, _cross(layer.crossed, read, context, shared))
            kept.append(state)
        return rows[:, None], tuple(kept)


class Maps:
    """Several linear maps of the same inputs."""

    def __init__(self, maps: Sequence[Linear]) -> None:
        self.maps = maps
        self.each = [_map(one) for one in maps]
        self.rounded = all(one.int8 is not None and one.adapter is None for one in maps) and private_ops.int8_packs()
        self.biases = [one.bias for one in maps]

    def __call__(self, rows: Rows) -> list[Tensor]:
        """What each gives; where all are in 8 bits the inputs are rounded once."""
        if not self.rounded or rows.shape[1] < 2:
            return [one(rows) for one in self.each]
        inputs, found = int8.rounded(rows.float()), []
        for one, bias in zip(self.maps, self.biases, strict=True):
            assert one.int8 is not None
            made = one.int8.rounded_times(inputs).to(rows.dtype)
            found.append(made if bias is None else made.add_(bias))
        return found


def _map(one: Linear) -> Map:
    """A map without the module around it."""
    table = one.__dict__["_parameters"]
    if not isinstance(table, PackedParameters) or one.adapter is not None or one.int8 is not None:
        return one.forward
    bias = None if one.bias is None else one.bias.detach()

    def packed(inputs: Tensor) -> Tensor:
        layout = table.layout
        if len(layout) != 1 or layout[0].dtype != inputs.dtype:
            return one.forward(inputs)
        return private_ops.packed_linear(inputs, layout[0], bias)

    return packed


def _norm(one: nn.Module) -> Map:
    if type(one) is nn.LayerNorm:
        return partial(
            torch.layer_norm, normalized_shape=one.normalized_shape, weight=one.weight, bias=one.bias, eps=one.eps
        )
    if type(one) is nn.RMSNorm:
        return partial(torch.rms_norm, normalized_shape=one.normalized_shape, weight=one.weight, eps=one.eps)
    forward: Map = one.forward
    return forward


def _cross(
    crossed: Callable[..., Tensor] | None, memory: Any, context: LayerContext, shared: SharedMemory | None
) -> Map | None:
    return None if crossed is None else lambda rows: crossed(rows[:, None], memory, context, shared)[:, 0]

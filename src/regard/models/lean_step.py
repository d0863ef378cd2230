"""A step of one token per row through a plain decoder, in as few kernels as it needs: nine where there is no gate.

    stream += what the layer before made       and its norm beside it        one kernel
    queries, keys, values                      one product
    turned, kept, attended                     one kernel
    joined                                     one product
    stream += that                             and its norm beside it        one kernel
    up, or gate and up side by side            one product
    activation                                 one kernel
    down                                       one product

It computes what `Decoder.forward` computes, which stays its meaning, and takes the layers that are exact attention with
a norm before each sublayer; `LeanStep.of` says of a decoder whether it is one of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import StaticKeyValues
from regard.attention.exact import ExactAttention
from regard.attention.mechanism import LayerContext
from regard.attention.rotary import Rotation
from regard.attention.similarity import ScaledDot
from regard.attention.step_triton import StepShape, attend_step, runs_here
from regard.blocks.decoder import Decoder, DecoderLayer
from regard.layers.feedforward import FeedForward
from regard.layers.linear import MapModule
from regard.layers.norm_triton import added_norm, gated
from regard.layers.residual import Residual
from regard.layers.stacked import StackedMaps, multiplied, plain
from regard.layers.triton_kernel import left_out
from regard.models.heads import TokenOutput

MULTIPLE = 64
"""A vocabulary is brought to a multiple of it where it is odd to a GPU's matrix units, with rows that nobody sees."""


@dataclass(frozen=True, eq=False)
class LeanLayer:
    """What a layer computes with, its maps stacked."""

    attention: ExactAttention
    shape: StepShape
    mixed: StackedMaps
    joined: StackedMaps
    up: StackedMaps
    down: StackedMaps
    activation: Callable[[Tensor], Tensor]
    gated: bool
    attention_norm: nn.Module
    feedforward_norm: nn.Module

    @classmethod
    def of(cls, layer: nn.Module, mixed: StackedMaps | None) -> LeanLayer | None:
        """Of a layer that is plain; None of another."""
        if not isinstance(layer, DecoderLayer) or mixed is None or layer.cross_attention is not None:
            return None
        attention, feedforward = layer.self_attention, layer.feedforward
        residuals = layer.self_residual, layer.feedforward_residual
        if not isinstance(attention, ExactAttention) or not all(map(_adds_before, residuals)):
            return None
        shape = _shape(attention)
        joined, down = StackedMaps.of([attention.output]), StackedMaps.of([feedforward.down])
        ups = [feedforward.up] if feedforward.gate is None else [feedforward.gate, feedforward.up]
        up = StackedMaps.of(ups)
        if type(feedforward) is not FeedForward or shape is None or joined is None or up is None or down is None:
            return None
        norms = residuals[0].norm, residuals[1].norm
        return cls(
            *(attention, shape, mixed, joined, up, down, feedforward.activation, feedforward.gate is not None, *norms)
        )

    def bent(self, made: Float[Tensor, "rows parts"]) -> Float[Tensor, "rows inner"]:
        """What the feed-forward network's second map reads."""
        return gated(made, self.activation) if self.gated else self.activation(made)


@dataclass(frozen=True, eq=False)
class LeanStep:
    """A plain decoder, one token per row."""

    layers: tuple[LeanLayer, ...]
    norm: nn.Module

    @classmethod
    def of(cls, decoder: Decoder, held: tuple[StaticKeyValues, ...]) -> LeanStep | None:
        """Of a decoder whose layers are plain and whose cache this is; None of another, or where it would not pay."""
        like = held[0].keys
        if not runs_here(like) and like.device.type != "cpu":  # where there is no kernel there is nothing to gain
            return None
        if decoder.reversible is not None or decoder.training or any(map(_watched, decoder.modules())):
            return None
        layers = [LeanLayer.of(layer, own.maps) for layer, own in zip(decoder.layers, held, strict=True)]
        found = tuple(one for one in layers if one is not None)
        return cls(found, decoder.norm) if len(found) == len(layers) else None

    def hidden(
        self,
        stream: Float[Tensor, "rows width"],
        held: tuple[StaticKeyValues, ...],
        lengths: Int[Tensor, "rows"],
        context: LayerContext,
    ) -> Float[Tensor, "rows width"]:
        """The last layer's vectors; every row's keys and values are written at its length."""
        made: Tensor | None = None
        for layer, own in zip(self.layers, held, strict=True):
            stream, read = added_norm(stream, made, layer.attention_norm)
            rotation = layer.attention.rotation(context)
            assert rotation is None or isinstance(rotation, Rotation)
            attended = attend_step(layer.mixed.product(read), own, lengths, rotation, layer.shape)
            stream, read = added_norm(stream, layer.joined.product(attended), layer.feedforward_norm)
            made = layer.down.product(layer.bent(layer.up.product(read)))
        return added_norm(stream, made, self.norm)[1]


@dataclass(frozen=True, eq=False)
class StepHead:
    """The map to the vocabulary, as a step multiplies by it."""

    weight: Float[Tensor, "padded width"] | Int[Tensor, "padded width"]
    scales: Float[Tensor, "padded"] | None
    bias: Float[Tensor, "padded"] | None
    vocabulary: int
    factor: float
    cap: float | None

    @classmethod
    def of(cls, output: nn.Module | None, table: nn.Module) -> StepHead | None:
        """Of a head that is one map; None of another. An odd table of a GPU gets its rows more here, for good."""
        if not isinstance(output, TokenOutput) or output.change is not None or left_out("head") or _watched(output):
            return None
        held = table if output.tied else output
        if not isinstance(held, MapModule) or not plain(held):
            return None
        bias: Any = output.bias
        factor, cap = output.factor, output.cap
        if held.int8 is not None:
            numbers, scales = held.int8.numbers, held.int8.scales
            on_gpu = numbers.device.type == "cuda"
            return cls(numbers, scales, bias, len(numbers), factor, cap) if on_gpu else None
        weight: Any = held.weight
        padded = padded_rows(weight) if weight.device.type == "cuda" and weight.element_size() == 2 else weight
        if bias is not None and len(padded) > len(bias):
            bias = padded_rows(bias)
        return cls(padded.detach(), None, bias, len(weight), factor, cap)

    def logits(self, hidden: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes vocab"]:
        """How well each token fits."""
        hidden = hidden if self.factor == 1.0 else hidden * self.factor
        logits = multiplied(hidden, self.weight, self.scales, self.bias)[..., : self.vocabulary]
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def padded_rows(table: nn.Parameter) -> Float[Tensor, "padded *rest"]:
    """A table with rows of zeros behind it, of which it becomes the first part: nothing is held twice."""
    rows, rest = len(table), table.shape[1:]
    whole = -(-rows // MULTIPLE) * MULTIPLE
    if rows % 8 == 0:
        return table
    held = table.untyped_storage().nbytes(), table.storage_offset()
    if held == (whole * rest.numel() * table.element_size(), 0) and table.is_contiguous():
        return table.detach().as_strided((whole, *rest), table.stride())  # it was done before
    with torch.inference_mode(False), torch.no_grad():  # who trains it later needs a plain tensor
        padded = table.new_zeros(whole, *rest)
        padded[:rows] = table.detach()
        table.data = padded[:rows]
    return padded


def _shape(attention: ExactAttention) -> StepShape | None:
    similarity, width = attention.attend.similarity, attention.head_width
    if type(similarity) is not ScaledDot or attention.value_width != width or attention.query_norm is not None:
        return None
    scale = width**-0.5 if similarity.scale is None else similarity.scale
    window = None if attention.window is None else attention.window.size
    return StepShape(attention.heads, attention.key_value_heads, width, scale, window)


def _adds_before(residual: Residual) -> bool:
    return residual.placement == "pre" and residual.adds


def _watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)

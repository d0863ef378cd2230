"""Several linear maps of the same inputs as one: their weights one below the other, so that a step multiplies once.

The maps stay what they are: their weights become parts of the common one, so nothing is held twice, and who changes a
weight in place changes both. Where a map is not plain (packed, with an adapter or a hook) there is no stack. Weights in
8 bits are stacked on a GPU, where a product reads them as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from regard.layers import few_rows_triton
from regard.layers.linear import Linear, MapModule


@dataclass(frozen=True, eq=False)
class StackedMaps:
    """The common weight, and how much of what it gives belongs to each."""

    weight: Shaped[Tensor, "out width"]
    bias: Float[Tensor, "out"] | None
    sizes: tuple[int, ...]
    scales: Float[Tensor, "out"] | None = None
    """Of the rows, where the weight is in 8 bits."""

    @classmethod
    def of(cls, maps: Sequence[Linear]) -> "StackedMaps | None":
        """Of maps of one width; None where one of them is not plain."""
        if not all(map(plain, maps)) or len({one.bias is None for one in maps}) > 1:
            return None
        rounded = [one.int8 for one in maps if one.int8 is not None]
        if rounded and (len(rounded) < len(maps) or any(one.numbers.device.type != "cuda" for one in rounded)):
            return None
        sizes = tuple(one.out_features for one in maps)
        bias = None if maps[0].bias is None else _common([one.bias for one in maps])
        if rounded:
            return cls(
                _common([one.numbers for one in rounded]), bias, sizes, torch.cat([one.scales for one in rounded])
            )
        return cls(_common([one.weight for one in maps]), bias, sizes)

    def times(self, inputs: Float[Tensor, "*axes width"]) -> tuple[Tensor, ...]:
        """What each of them gives."""
        return torch.split(self.product(inputs), list(self.sizes), dim=-1)

    def product(self, inputs: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes out"]:
        """What all of them give, side by side."""
        return multiplied(inputs, self.weight, self.scales, self.bias)


def multiplied(
    inputs: Float[Tensor, "*axes width"], weight: Tensor, scales: Tensor | None, bias: Tensor | None
) -> Float[Tensor, "*axes out"]:
    """`s · W x + b` without gradients; of a few rows by a kernel that reads W as it is."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    if few_rows_triton.suits(rows, weight):
        return few_rows_triton.few_rows_times(rows, weight, scales, bias).view(*inputs.shape[:-1], -1)
    if scales is None:
        return F.linear(inputs, weight, bias)
    product = F.linear(inputs, weight.to(inputs.dtype)) * scales.to(inputs.dtype)
    return product if bias is None else product + bias


def plain(one: MapModule) -> bool:
    """Whether a map is its weight and bias and nothing else."""
    return not (one.packed or getattr(one, "adapter", None) is not None or one._forward_hooks) and not (
        one._forward_pre_hooks
    )


def _common(parts: list[Tensor]) -> Tensor:
    """One tensor of which these are parts from now on; the one they are parts of already."""
    first, after = parts[0], [one.data_ptr() for one in parts[1:]]
    ends = [one.data_ptr() + one.numel() * one.element_size() for one in parts[:-1]]
    rows, rest = sum(map(len, parts)), first.shape[1:]
    storage = first.untyped_storage()
    if ends == after and all(one.untyped_storage().data_ptr() == storage.data_ptr() for one in parts):
        return first.detach().as_strided((rows, *rest), first.stride())
    with torch.inference_mode(False), torch.no_grad():  # who trains them later needs plain tensors
        whole = torch.cat([one.detach() for one in parts])
        for one, part in zip(parts, torch.split(whole, [len(one) for one in parts]), strict=True):
            one.data = part
    return whole

"""Several linear maps of the same inputs as one: their weights one below the other, so that a step multiplies once.

The maps stay what they are: their weights become parts of the common one, so nothing is held twice, and who changes a
weight in place changes both. Where a map is not plain (packed, in 8 bits, with an adapter or a hook) there is no stack.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.layers.linear import Linear


@dataclass(frozen=True, eq=False)
class StackedMaps:
    """The common weight, and how much of what it gives belongs to each."""

    weight: Float[Tensor, "out width"]
    bias: Float[Tensor, "out"] | None
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, maps: Sequence[Linear]) -> "StackedMaps | None":
        """Of maps of one width; None where one of them is not plain."""
        if not all(map(_plain, maps)) or len({one.bias is None for one in maps}) > 1:
            return None
        sizes = tuple(one.out_features for one in maps)
        weight = _common([one.weight for one in maps])
        bias = None if maps[0].bias is None else _common([one.bias for one in maps])
        return cls(weight, bias, sizes)

    def times(self, inputs: Float[Tensor, "*axes width"]) -> tuple[Tensor, ...]:
        """What each of them gives."""
        return torch.split(F.linear(inputs, self.weight, self.bias), list(self.sizes), dim=-1)


def _plain(one: Linear) -> bool:
    return not (one.packed or one.int8 is not None or one.adapter is not None or one._forward_hooks) and not (
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

"""What is used of PyTorch that it does not promise to keep, each with a test whether it is there and a way without it.

softmax_, softmax_gradient_     in the place of their input, which no public function does
divide_                         many tensors by one number in one call
packs, pack, unpack, packed_linear
                                a linear map from weights in oneDNN's own layout, read about twice as fast by a CPU
int8_packs, int8_pack, int8_unpack, int8_packed_linear
                                one from weights of 8 bits in a CPU's layout, inputs rounded as well
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def softmax_(scores: Tensor) -> Tensor:
    """`softmax` over the last axis, written over the scores."""
    if hasattr(torch, "_softmax"):
        return torch._softmax(scores, -1, False, out=scores)
    return scores.copy_(scores.softmax(dim=-1))


def softmax_gradient_(change: Tensor, weights: Tensor) -> Tensor:
    """From the gradient of a softmax's weights to that of its scores, written over it."""
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(change, weights, -1, change.dtype, grad_input=change)
    return change.sub_((change * weights).sum(dim=-1, keepdim=True)).mul_(weights)


def divide_(tensors: list[Tensor], number: int) -> None:
    """Every tensor in its place."""
    if hasattr(torch, "_foreach_div_"):
        torch._foreach_div_(tensors, number)
    else:
        for tensor in tensors:
            tensor.div_(number)


def packs(weight: Tensor) -> bool:
    """Whether a weight can be laid out for oneDNN and back without a bit changing."""
    return weight.device.type == "cpu" and weight.dtype in _types() and weight.dim() == 2 and weight.is_contiguous()


def pack(weight: Tensor) -> Tensor:
    """A weight that `packs` in oneDNN's layout."""
    layout: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return layout


def unpack(layout: Tensor) -> Tensor:
    """The weight again, bit for bit."""
    return layout.to_dense()


def packed_linear(inputs: Tensor, layout: Tensor, bias: Tensor | None) -> Tensor:
    """`W x + b` from W in oneDNN's layout."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, layout, bias, "none", [], "")
    return out


@cache
def _types() -> tuple[torch.dtype, ...]:
    """The types that can be packed here: those for which a small product and the way back were right."""
    return tuple(dtype for dtype in (torch.float32, torch.bfloat16) if _right(dtype))


def _right(dtype: torch.dtype) -> bool:
    weight, inputs = (torch.arange(float(rows * 8)).view(rows, 8).sub(30).div(32).to(dtype) for rows in (5, 3))
    try:
        with torch.no_grad():
            layout = pack(weight)
            near = torch.allclose(packed_linear(inputs, layout, None), F.linear(inputs, weight), rtol=0.02, atol=0.02)
            return near and torch.equal(unpack(layout), weight)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


def int8_pack(numbers: Tensor, scales: Tensor) -> Any:
    """A matrix of int8, each row with its scale, laid out for a product with inputs that are rounded as they come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these operators are on their way out of PyTorch: hence `int8_packs`
        quantized = torch._make_per_channel_quantized_tensor(
            numbers, scales.double(), torch.zeros(len(numbers), dtype=torch.long), 0
        )
        return torch.ops.quantized.linear_prepack(quantized, None)


def int8_unpack(layout: Any) -> Tensor:
    """The numbers again."""
    numbers: Tensor = torch.ops.quantized.linear_unpack(layout)[0].int_repr()
    return numbers


def int8_packed_linear(inputs: Tensor, layout: Any) -> Tensor:
    """`W x`, the inputs rounded to 8 bits between the smallest and the largest of them all."""
    out: Tensor = torch.ops.quantized.linear_dynamic(inputs, layout, not _int8_right(reduced=False))
    return out


def int8_packs() -> bool:
    """Whether these operators are here and right; on a CPU whose sums of products overflow, with inputs of 7 bits."""
    return _int8_right(reduced=False) or _int8_right(reduced=True)


@cache
def _int8_right(*, reduced: bool) -> bool:
    """Whether a small product is right: the largest numbers there are, so that a sum that overflows shows."""
    numbers = torch.tensor([[127] * 8, [-127] * 8, [127, -127] * 4, [3, 5, -7, 11, -13, 17, 0, 1]], dtype=torch.int8)
    scales, inputs = torch.tensor([0.5, 0.25, 1.0, 2.0]), torch.linspace(-1, 1, 63)[:56].view(7, 8)
    inputs = torch.cat([inputs, torch.ones(1, 8)])
    try:
        with torch.no_grad():
            layout = int8_pack(numbers, scales)
            found = torch.ops.quantized.linear_dynamic(inputs, layout, reduced)
            expected = F.linear(inputs, numbers * scales[:, None])
            largest = (numbers.abs() * scales[:, None]).sum(dim=1)
            return bool(((found - expected).abs() <= largest / 100).all()) and torch.equal(int8_unpack(layout), numbers)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False

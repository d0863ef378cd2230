"""A product of a few rows with a weight on a GPU, in floats or 8 bits: every weight is read once, as the bytes it is.

PyTorch's own operator for 8 bits lets one thread walk along each row of the weights, far below what the memory gives; a
float of them made first costs five times their bytes. Here a program takes some rows of the weights and walks along all
of them in wide parts, numbers become floats in registers, and the scales come at the end. For one row of inputs that is
a sum of products; several rows are multiplied sixteen at a time, as a GPU's matrix units do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.layers.triton_kernel import TritonKernel, runs, size_above

MOST_ROWS = 16
"""Rows of inputs that are multiplied so, at most."""


@dataclass(frozen=True)
class Split:
    """How a product is divided among programs."""

    lines: int
    """Rows of the weights that a program takes."""
    part: int
    """Numbers of each that it takes at a time."""
    warps: int = 4
    stages: int = 1
    """How many parts are on their way from memory at once."""


BYTES, FLOATS = Split(8, 512, stages=4), Split(1, 512, warps=1)
"""Of one row of inputs, by weights in 8 bits and in floats; measured on an H200 (docs/LOG.md)."""
SEVERAL = Split(16, 256)
"""Of several rows."""
LARGE = 48 * 2**20
"""Bytes of a weight in floats from which PyTorch's own product of one row reads as fast as the memory gives."""

tl: Any = None


def suits(inputs: Float[Tensor, "rows width"], weight: Shaped[Tensor, "out width"]) -> bool:
    """Whether this product is done here: of one row, or of a few in half precision by 8 bits."""
    rows = len(inputs)
    return (
        0 < rows <= MOST_ROWS
        and inputs.dtype != torch.float64
        and _reads_faster(rows, inputs.dtype, weight)
        and runs("product", inputs.device, inputs.dtype, lambda: _example(inputs, weight))
    )


def _reads_faster(rows: int, dtype: torch.dtype, weight: Tensor) -> bool:
    if weight.dtype == torch.int8:
        return rows == 1 or dtype != torch.float32
    return rows == 1 and weight.is_contiguous() and weight.numel() * weight.element_size() <= LARGE


def few_rows_times(
    inputs: Float[Tensor, "rows width"],
    weight: Shaped[Tensor, "out width"],
    scales: Float[Tensor, "out"] | None = None,
    bias: Float[Tensor, "out"] | None = None,
) -> Float[Tensor, "rows out"]:
    """`s · W x + b`, summed in float32."""
    rows, (out, width) = len(inputs), weight.shape
    made = torch.empty(rows, out, dtype=inputs.dtype, device=inputs.device)
    one = BYTES if weight.dtype == torch.int8 else FLOATS
    kernel, split = (_row_times, one) if rows == 1 else (_rows_times, SEVERAL)
    kernel[(-(-out // split.lines),)](
        *(inputs.contiguous(), weight, weight if scales is None else scales, weight if bias is None else bias, made),
        *(rows, out, width, split.lines, min(split.part, size_above(width, 16)), split.stages),
        *(scales is not None, bias is not None),
        num_warps=split.warps,
    )
    return made


@TritonKernel
def _row_times(  # type: ignore[no-untyped-def]
    inputs, weight, scales, bias, made, rows, out, width: tl.constexpr,
    LINES: tl.constexpr, PART: tl.constexpr, STAGES: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    lines = tl.program_id(0) * LINES + tl.arange(0, LINES)
    there = lines < out
    places = weight + lines.to(tl.int64)[:, None] * width
    total = tl.zeros((LINES, PART), tl.float32)
    for first in tl.range(0, width, PART, num_stages=STAGES):
        at = first + tl.arange(0, PART)
        some = at < width
        read = tl.load(inputs + at, mask=some, other=0.0).to(tl.float32)
        part = tl.load(places + at[None, :], mask=there[:, None] & some[None, :], other=0)
        if (
            part.dtype == tl.int8
        ):  # b + 128 as the last bits of 2²³: a GPU turns integers into floats at a quarter's pace
            raised = part.to(tl.uint8, bitcast=True).to(tl.int32) ^ 0x4B000080
            part = raised.to(tl.float32, bitcast=True) - 8388736.0
        total += part.to(tl.float32) * read[None, :]
    found = tl.sum(total, axis=1)
    if SCALED:
        found = found * tl.load(scales + lines, mask=there, other=0.0).to(tl.float32)
    if BIASED:
        found = found + tl.load(bias + lines, mask=there, other=0.0).to(tl.float32)
    tl.store(made + lines, found.to(made.dtype.element_ty), mask=there)


@TritonKernel
def _rows_times(  # type: ignore[no-untyped-def]
    inputs, weight, scales, bias, made, rows, out, width: tl.constexpr,
    LINES: tl.constexpr, PART: tl.constexpr, STAGES: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    lines = tl.program_id(0) * LINES + tl.arange(0, LINES)
    there, row = lines < out, tl.arange(0, 16)
    places = weight + lines.to(tl.int64)[:, None] * width
    total = tl.zeros((16, LINES), tl.float32)
    for first in tl.range(0, width, PART, num_stages=STAGES):
        at = first + tl.arange(0, PART)
        some = at < width
        read = tl.load(
            inputs + row[:, None] * width + at[None, :], mask=(row < rows)[:, None] & some[None, :], other=0.0
        )
        part = tl.load(places + at[None, :], mask=there[:, None] & some[None, :], other=0).to(read.dtype)
        total = tl.dot(read, tl.trans(part), total)
    if SCALED:
        total = total * tl.load(scales + lines, mask=there, other=0.0).to(tl.float32)[None, :]
    if BIASED:
        total = total + tl.load(bias + lines, mask=there, other=0.0).to(tl.float32)[None, :]
    place = made + row[:, None] * out + lines[None, :]
    tl.store(place, total.to(made.dtype.element_ty), mask=(row < rows)[:, None] & there[None, :])


def _example(inputs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """One row and three, by 37 rows of 8 bits."""
    device = inputs.device
    numbers = torch.arange(37 * 75, device=device).remainder(255).sub(127).to(torch.int8).view(37, 75)
    rows = torch.linspace(-1, 1, 3 * 75, device=device).to(inputs.dtype).view(3, 75)
    scales, bias = torch.linspace(0.5, 1.5, 37, device=device), torch.linspace(-9, 9, 37, device=device)
    expected = rows.double() @ (numbers * scales[:, None]).double().T + bias.double()
    found = few_rows_times(rows[:1], numbers, scales, bias)
    if inputs.dtype == torch.float32:
        return found, expected[:1]
    return torch.cat([found, few_rows_times(rows, numbers, scales, bias)]), torch.cat([expected[:1], expected])

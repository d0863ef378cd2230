"""A product with weights of 8 bits on a GPU, for a row or a few: every weight is read once, as the byte it is.

PyTorch's own operator on a GPU lets one thread walk along each row of the weights, far below what the memory gives; a
float of them made first costs five times their bytes. Here a program takes some rows of the weights and walks along all
of them in wide parts; numbers become floats in registers, and the scale is multiplied at the end.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import unwrap
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor

LINES, PART = 8, 1024
"""Rows of the weights that a program takes, and how many numbers of each at a time."""

tl: Any = None  # Triton's language, once it is imported: what is compiled finds it here
constexpr: Any = "constexpr"  # what Triton knows its own by, read as an annotation


def available() -> bool:
    """Whether Triton is here: it comes with PyTorch for GPUs."""
    return find_spec("triton") is not None


def int8_times(
    inputs: Float[Tensor, "rows width"], numbers: Int8[Tensor, "out width"], scales: Float[Tensor, "out"]
) -> Float[Tensor, "rows out"]:
    """`s · N x`, summed in float32."""
    rows, (out, width) = len(inputs), numbers.shape
    made = torch.empty(rows, out, dtype=inputs.dtype, device=inputs.device)
    part = min(PART, 1 << max(4, (width - 1).bit_length()))
    grid = (-(-out // LINES), rows)
    _compiled()[grid](inputs.contiguous(), numbers, scales, made, out, width, LINES, part)
    return made


@cache
def _compiled() -> Any:
    """The kernel, compiled for each type and size when first asked for."""
    triton = import_module("triton")
    globals()["tl"] = import_module("triton.language")
    return triton.jit(unwrap(_int8_times))


def _int8_times(  # type: ignore[no-untyped-def]
    inputs, numbers, scales, made, out, width, together: constexpr, wide: constexpr
):
    row = tl.program_id(1)
    lines = tl.program_id(0) * together + tl.arange(0, together)
    there = lines < out
    total = tl.zeros((together, wide), tl.float32)
    for first in range(0, width, wide):
        at = first + tl.arange(0, wide)
        some = at < width
        read = tl.load(inputs + row * width + at, mask=some, other=0.0).to(tl.float32)
        part = tl.load(numbers + lines[:, None] * width + at[None, :], mask=there[:, None] & some[None, :], other=0)
        total += part.to(tl.float32) * read[None, :]
    found = tl.sum(total, axis=1) * tl.load(scales + lines, mask=there, other=0.0).to(tl.float32)
    tl.store(made + row * out + lines, found.to(made.dtype.element_ty), mask=there)

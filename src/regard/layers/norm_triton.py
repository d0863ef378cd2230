"""The sums, norms and gates between the products of a step, each as one kernel for a GPU.

    added_norm    x + f, and its norm beside it: LayerNorm or RMSNorm (norm.py)
    gated         act(gate) ⊙ up, of a product that has both side by side (feedforward.py)

Whatever else a norm or an activation is, PyTorch's own operators compute it, as they compute these where no kernel is.
Numbers are rounded where those round them: after the sum, after the norm, after the activation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.triton_kernel import TritonKernel, runs, size_above

WIDEST = 16384
"""Numbers of a row that one program holds, at most."""

tl: Any = None


def added_norm(
    stream: Float[Tensor, "rows width"], made: Float[Tensor, "rows width"] | None, norm: nn.Module
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "rows width"]]:
    """The stream with what was made added, where anything was, and its norm."""
    if _normalises(norm, stream) and runs("norm", stream.device, stream.dtype, partial(_norm_example, stream)):
        return _added_norm(stream, made, norm)
    return added_norm_plain(stream, made, norm)


def added_norm_plain(stream: Tensor, made: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The same by PyTorch's own operators."""
    total = stream if made is None else stream + made
    return total, norm(total)


def gated(both: Float[Tensor, "rows twice"], activation: Callable[[Tensor], Tensor]) -> Float[Tensor, "rows inner"]:
    """`act(gate) ⊙ up`, the gate being the first half."""
    if activation is F.silu and runs("gate", both.device, both.dtype, partial(_gate_example, both)):
        return _gated(both)
    return gated_plain(both, activation)


def gated_plain(both: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The same by PyTorch's own operators."""
    gate, up = both.chunk(2, dim=-1)
    return activation(gate) * up


def _normalises(norm: nn.Module, stream: Tensor) -> bool:
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm) or norm.weight is None or norm.eps is None:
        return False
    return norm.weight.dtype == stream.dtype and norm.weight.dim() == 1 and stream.shape[1] <= WIDEST


def _added_norm(stream: Tensor, made: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    rows, width = stream.shape
    stream = stream.contiguous()
    total = stream if made is None else torch.empty_like(stream)
    found = torch.empty_like(stream)
    bias = getattr(norm, "bias", None)
    made_or_not = stream if made is None else made.contiguous()
    block = size_above(width, 16)
    _norm[(rows,)](
        *(stream, made_or_not, norm.weight, norm.weight if bias is None else bias, total, found),
        *(norm.eps, width, block, made is not None, isinstance(norm, nn.LayerNorm), bias is not None),
        stream.dtype == torch.float64,
        num_warps=max(1, min(16, block // 512)),
    )
    return total, found


def _gated(both: Tensor) -> Tensor:
    rows, inner = both.shape[0], both.shape[1] // 2
    found = both.new_empty(rows, inner)
    block = 1024
    _gate[rows, -(-inner // block)](both.contiguous(), found, inner, block, both.dtype == torch.float64, num_warps=4)
    return found


@TritonKernel
def _norm(  # type: ignore[no-untyped-def]
    stream, made, weight, bias, totals, found,
    EPSILON: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr, CENTRED: tl.constexpr,
    BIASED: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    wide: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at = tl.arange(0, BLOCK)
    there = at < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + at
    numbers = tl.load(stream + place, mask=there, other=0.0).to(wide)
    if ADDS:
        numbers += tl.load(made + place, mask=there, other=0.0).to(wide)
        total = numbers.to(totals.dtype.element_ty)
        tl.store(totals + place, total, mask=there)
        numbers = total.to(wide)
    if CENTRED:
        numbers = tl.where(there, numbers - tl.sum(numbers, axis=0) / WIDTH, 0.0)
    numbers = numbers / tl.sqrt(tl.sum(numbers * numbers, axis=0) / WIDTH + EPSILON)
    numbers *= tl.load(weight + at, mask=there, other=0.0).to(wide)
    if BIASED:
        numbers += tl.load(bias + at, mask=there, other=0.0).to(wide)
    tl.store(found + place, numbers.to(found.dtype.element_ty), mask=there)


@TritonKernel
def _gate(both, found, INNER: tl.constexpr, BLOCK: tl.constexpr, DOUBLE: tl.constexpr):  # type: ignore[no-untyped-def]
    wide: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < INNER
    gate = tl.load(both + row * 2 * INNER + at, mask=there, other=0.0).to(wide)
    up = tl.load(both + (row * 2 + 1) * INNER + at, mask=there, other=0.0).to(wide)
    opened = (gate / (1.0 + tl.exp(-gate))).to(found.dtype.element_ty).to(wide)
    tl.store(found + row * INNER + at, (opened * up).to(found.dtype.element_ty), mask=there)


def _norm_example(like: Tensor) -> tuple[Tensor, Tensor]:
    """Of both kinds, with and without anything to add."""
    rows = torch.linspace(-3.0, 5.0, 3 * 75, device=like.device).sin().view(3, 75).to(like.dtype)
    norms = (nn.LayerNorm(75), nn.RMSNorm(75, eps=1e-6))
    pairs = []
    for norm in norms:
        norm = norm.to(like.device, like.dtype)
        for made in (None, rows.flip(0)):
            own, plain = (torch.cat(work(rows, made, norm)) for work in (_added_norm, added_norm_plain))
            pairs.append((own, plain))
    return torch.cat([own for own, _ in pairs]), torch.cat([plain for _, plain in pairs])


def _gate_example(like: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.linspace(-30.0, 30.0, 3 * 150, device=like.device).view(3, 150).to(like.dtype)
    return _gated(both), gated_plain(both, F.silu)

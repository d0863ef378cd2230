"""The end of a step in a few kernels for a GPU: what is chosen of the logits, what it was given, who is done.

    parts       every row by blocks of the vocabulary: the largest logit, its lowest id, the sum of exponentials,
                and where rows are drawn the largest logit of every group of ids (draw_triton.py)
    settled     the parts of a row joined; the token and its log probability kept, the row's numbers brought on

A row that holds NaN is given NaN, as by a log-softmax, and is found out when it is read back. What this computes is
`step_rows` without filters: `choose`, `log_softmax` and what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.counter_random import uniform
from regard.decoding.draw_triton import GROUP, drawn, draws, groups_of
from regard.decoding.requests import Rows
from regard.decoding.row_sampling import Kinds, choose
from regard.layers.triton_kernel import TritonKernel, runs, size_above

BLOCK = 4096
"""Logits of a part."""

tl: Any = None


@dataclass(frozen=True)
class Parts:
    """Of every row and part of the vocabulary."""

    tops: Float[Tensor, "rows parts"]
    places: Int[Tensor, "rows parts"]
    sums: Float[Tensor, "rows parts"]
    maxima: Float[Tensor, "rows groups"] | None
    """Of groups of neighbouring ids."""


def settles(logits: Float[Tensor, "rows vocab"]) -> bool:
    """Whether the end of a step is done here."""
    return runs("choice", logits.device, logits.dtype, lambda: _example(logits))


def settle(logits: Float[Tensor, "rows vocab"], rows: Rows, kinds: Kinds, lengths: Int[Tensor, "rows"]) -> None:
    """Choose, keep what was chosen, and see who is done, in every row; `lengths` of those that are done stay."""
    fast = kinds.draws and draws(logits, kinds)
    parts, ids = parts_of(logits, grouped=fast), None
    if fast and parts.maxima is not None and kinds.most_k is not None:
        ids = drawn(logits, parts.maxima, rows, kinds.most_k)
    elif kinds.draws:
        ids = choose(logits, rows.asked, kinds, uniform(rows.seeds, rows.written))
    count, blocks = parts.tops.shape
    _settled[(count,)](
        *(logits, parts.tops, parts.places, parts.sums, rows.ids if ids is None else ids),
        *(rows.ids, rows.going, rows.written, rows.limits, rows.read, rows.ends, rows.text, rows.likely, lengths),
        *(logits.stride(0), rows.text.stride(0), rows.likely.stride(0), rows.ends.stride(0)),
        *(logits.shape[1], blocks, size_above(blocks), rows.ends.shape[1], size_above(rows.ends.shape[1]), ids is None),
        num_warps=1,
    )


def parts_of(logits: Float[Tensor, "rows vocab"], *, grouped: bool = False) -> Parts:
    """The first stage."""
    rows, size = logits.shape
    blocks = -(-size // BLOCK)
    wide = torch.promote_types(logits.dtype, torch.float32)
    tops, sums = (torch.empty(rows, blocks, dtype=wide, device=logits.device) for _ in range(2))
    places = torch.empty(rows, blocks, dtype=torch.int32, device=logits.device)
    maxima = torch.empty(rows, groups_of(size), dtype=wide, device=logits.device) if grouped else None
    stride = logits.stride(0)
    behind = logits.untyped_storage().nbytes() // logits.element_size() - logits.storage_offset() - (rows - 1) * stride
    readable = max(size, min(stride, behind))  # with rows of zeros behind the vocabulary, wide reads need no mask there
    _parts[rows, blocks](
        *(logits, tops, places, sums, tops if maxima is None else maxima, stride, readable, size),
        *(BLOCK, GROUP, groups_of(size), maxima is not None, wide == torch.float64),
        num_warps=8,
    )
    return Parts(tops, places, sums, maxima)


@TritonKernel
def _parts(  # type: ignore[no-untyped-def]
    logits, tops, places, sums, maxima, row_stride, readable, size,
    BLOCK: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr, GROUPED: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    wide: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(logits + row * row_stride + at, mask=at < readable, other=-float("inf")).to(wide)
    numbers = tl.where(at < size, numbers, -float("inf"))
    top = tl.max(numbers, axis=0)
    shares = tl.where(numbers == -float("inf"), 0.0, tl.exp(numbers - top))
    if GROUPED:
        group = block * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
        largest = tl.max(tl.reshape(numbers, (BLOCK // GROUP, GROUP)), axis=1)
        tl.store(maxima + row * GROUPS + group, largest, mask=group < GROUPS)
    place = row * tl.num_programs(1) + block
    tl.store(tops + place, top)
    tl.store(places + place, tl.min(tl.where(numbers == top, at, size - 1), axis=0))
    tl.store(sums + place, tl.sum(shares, axis=0))


@TritonKernel
def _settled(  # type: ignore[no-untyped-def]
    logits, tops, places, sums, chosen, ids, going, written, limits, read, ends, text, likely, lengths,
    row_stride, text_stride, likely_stride, ends_stride, size,
    BLOCKS: tl.constexpr, SOME: tl.constexpr, ENDS: tl.constexpr, ENDING: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, SOME)
    there = block < BLOCKS
    top = tl.load(tops + row * BLOCKS + block, mask=there, other=-float("inf"))
    most = tl.max(top, axis=0)
    part = tl.load(sums + row * BLOCKS + block, mask=there, other=0.0)
    total = tl.sum(tl.where(top == -float("inf"), part, part * tl.exp(top - most)), axis=0)
    if LARGEST:
        place = tl.load(places + row * BLOCKS + block, mask=there, other=0)
        token = tl.min(tl.where(there & (top == most), place, size - 1), axis=0).to(tl.int64)
        logit = most
    else:
        token = tl.load(chosen + row)
        logit = tl.load(logits + row * row_stride + token).to(most.dtype)
    given = (logit - most) - tl.log(total)
    goes = tl.load(going + row).to(tl.int64)
    count = tl.load(written + row)
    at = tl.load(read + row) + count
    tl.store(text + row * text_stride + at, token)
    tl.store(likely + row * likely_stride + at, given.to(likely.dtype.element_ty))
    tl.store(lengths + row, tl.load(lengths + row) - (1 - goes))
    tl.store(written + row, count + goes)
    end = tl.arange(0, ENDING)
    ending = tl.load(ends + row * ends_stride + end, mask=end < ENDS, other=-1)
    ended = tl.sum(tl.where((ending == token) & (end < ENDS), 1, 0), axis=0)
    left = tl.load(limits + row) - count - goes
    tl.store(going + row, tl.where(left > 0, tl.where(ended > 0, 0, goes), 0).to(tl.int1))
    tl.store(ids + row, token)


def _example(like: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with ties between parts, beside the largest logit and the sum of exponentials as PyTorch finds them."""
    logits = torch.linspace(-40.0, 40.0, 3 * 9001, device=like.device).sin().mul(9).view(3, 9001).to(like.dtype)
    logits[1, 17] = logits[1, 8192] = 11.0
    logits[2] = -torch.inf
    logits[2, 9000] = 1.0
    parts, wide = parts_of(logits), logits.double()
    most, first = parts.tops.max(dim=1)
    total = (parts.sums * (parts.tops - most[:, None]).exp().where(parts.tops > -torch.inf, 0)).sum(dim=1)
    likely = torch.stack([most.double() + total.double().log(), parts.places.gather(1, first[:, None])[:, 0].double()])
    return likely, torch.stack([wide.logsumexp(dim=1), logits.max(dim=1).indices.double()])

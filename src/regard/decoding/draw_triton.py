"""A token drawn in every row among its k largest logits, in three kernels for a GPU.

    largest    the k groups of neighbouring ids with the largest maxima: the k largest logits stand in them (largest.py)
    largest    of what is in those the k largest, in the order of their ids
    drawn      temperature, top-k, top-p, min-p, and the token in whose slice of [0, 1) the row's number falls

The k-th largest number is found bit by bit, from the top: how many are at least as large. Of equals those with the
lower id are taken. The row's number is that of counter_random.py; all after the logits is in float64, as in `choose`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds
from regard.decoding.counter_random import FIRST, GOLDEN, SECOND, signed, uniform
from regard.decoding.requests import Rows
from regard.decoding.row_sampling import Kinds, choose
from regard.layers.triton_kernel import TritonKernel, runs, size_above

GROUP = 64
"""Neighbouring ids of which the largest logit is told."""
MOST = 128
"""The largest top-k."""
MOST_GROUPS = 8192
UNUSED_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
"""Of a float32: those that numbers of this type leave as they are."""

tl: Any = None


def groups_of(size: int) -> int:
    """How many groups so many ids are."""
    return -(-size // GROUP)


def draws(logits: Float[Tensor, "rows vocab"], kinds: Kinds) -> bool:
    """Whether these are drawn here: every row has a top-k, and none a large one."""
    groups = groups_of(logits.shape[1])
    if kinds.most_k is None or logits.dtype not in UNUSED_BITS:
        return False
    fits = kinds.most_k <= min(MOST, groups) and groups <= MOST_GROUPS
    return fits and runs("draw", logits.device, logits.dtype, lambda: _example(logits))


def drawn(logits: Float[Tensor, "rows vocab"], maxima: Float[Tensor, "rows groups"], rows: Rows, count: int) -> RowIds:
    """What is drawn in every row among no more than `count` logits; `maxima` are those of the groups."""
    groups, _ = _largest_of(maxima, None, count, UNUSED_BITS[logits.dtype])
    ids, values = _largest_of(logits, groups, count, UNUSED_BITS[logits.dtype])
    chosen = torch.empty_like(rows.ids)
    _drawn[(len(logits),)](
        *(values, ids, rows.temperature, rows.top_k, rows.top_p, rows.min_p, rows.seeds, rows.written, chosen),
        *(count, size_above(count, 16), *map(signed, (GOLDEN, FIRST, SECOND))),
        num_warps=8,
    )
    return chosen


def _largest_of(
    scores: Float[Tensor, "rows options"], groups: Int[Tensor, "rows most"] | None, count: int, unused: int
) -> tuple[Int[Tensor, "rows most"], Float[Tensor, "rows most"]]:
    """The places of the largest, in order, and what stands there; among these groups of them, where they are given."""
    padded, size = size_above(count, 16), scores.shape[1]
    block = padded * GROUP if groups is not None else size_above(size, 16)
    ids = torch.empty(len(scores), padded, dtype=torch.int32, device=scores.device)
    values = torch.empty(len(scores), padded, dtype=torch.float32, device=scores.device)
    _largest[(len(scores),)](
        *(scores, ids if groups is None else groups, ids, values, scores.stride(0), size),
        *(count, padded, block, GROUP, groups is not None, unused),
        num_warps=8,
    )
    return ids, values


@TritonKernel
def _largest(  # type: ignore[no-untyped-def]
    scores, groups, ids, values, row_stride, size,
    COUNT: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, GATHERS: tl.constexpr,
    UNUSED: tl.constexpr,
):  # fmt: skip
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    if GATHERS:
        given = place // GROUP < COUNT
        at = tl.load(groups + row * PADDED + place // GROUP, mask=given, other=0) * GROUP + place % GROUP
        there = given & (at < size)
    else:
        at, there = place, place < size
    score = tl.load(scores + row * row_stride + at, mask=there, other=0.0).to(tl.float32)
    bits = tl.where(score == 0, 0.0, score).to(tl.int32, bitcast=True)
    lowest: tl.constexpr = -(1 << (31 - UNUSED))
    key = tl.where(there, (bits ^ ((bits >> 31) & 0x7FFFFFFF)) >> UNUSED, lowest)  # in the order of the numbers
    threshold = tl.where(tl.sum((key >= 0).to(tl.int32), axis=0) >= COUNT, 0, lowest)
    half = tl.full((), 1 << (30 - UNUSED), tl.int32)
    for _ in range(31 - UNUSED):
        higher = threshold + half
        threshold = tl.where(tl.sum((key >= higher).to(tl.int32), axis=0) >= COUNT, higher, threshold)
        half = half // 2
    above, equal = key > threshold, key == threshold
    room = COUNT - tl.sum(above.to(tl.int32), axis=0)
    kept = above | (equal & (tl.cumsum(equal.to(tl.int32), axis=0) <= room))
    slot = row * PADDED + tl.cumsum(kept.to(tl.int32), axis=0) - 1
    tl.store(ids + slot, at, mask=kept)
    tl.store(values + slot, score, mask=kept)


@TritonKernel
def _drawn(  # type: ignore[no-untyped-def]
    values, ids, temperatures, top_ks, top_ps, min_ps, seeds, written, chosen,
    COUNT: tl.constexpr, PADDED: tl.constexpr, GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    there = place < COUNT
    score = tl.load(values + row * PADDED + place, mask=there, other=-float("inf")).to(tl.float64)
    mixed = tl.load(seeds + row)
    for turn in tl.static_range(2):
        mixed = mixed + GOLDEN
        mixed = (mixed ^ ((mixed >> 30) & 0x3FFFFFFFF)) * FIRST
        mixed = (mixed ^ ((mixed >> 27) & 0x1FFFFFFFFF)) * SECOND
        mixed = mixed ^ ((mixed >> 31) & 0x1FFFFFFFF)
        if turn == 0:
            mixed = mixed + tl.load(written + row) * GOLDEN
    draw = ((mixed >> 11) & 0x1FFFFFFFFFFFFF).to(tl.float64) * 1.1102230246251565e-16  # 2⁻⁵³

    larger, equal = score[:, None] > score[None, :], score[:, None] == score[None, :]
    ahead = larger | (equal & (place[:, None] < place[None, :]))
    rank = tl.sum(ahead.to(tl.int32), axis=0)
    score = (score - tl.max(score, axis=0)) / tl.load(temperatures + row)
    score = tl.where(there & (rank < tl.load(top_ks + row)), score, -float("inf"))
    share = tl.exp(score)
    share = share / tl.sum(share, axis=0)
    mass = tl.load(top_ps + row)
    before = tl.sum(tl.where(ahead, share[:, None], 0.0), axis=0)
    score = tl.where((before < tl.where(mass >= 1, float("inf"), mass)) | (rank == 0), score, -float("inf"))
    share = tl.exp(score)
    share = tl.where(share < tl.load(min_ps + row), 0.0, share)
    upto = tl.cumsum(share / tl.sum(share, axis=0), axis=0)
    point = draw * tl.max(upto, axis=0)
    last = tl.max(tl.where(share > 0, place, 0), axis=0)
    slot = tl.minimum(tl.sum((upto <= point).to(tl.int32), axis=0), last)
    tl.store(chosen + row, tl.load(ids + row * PADDED + slot).to(tl.int64))


def _example(like: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that ask for different things, with ties, beside what PyTorch's operators draw."""
    device, count, size = like.device, 9, 64 * 40 + 3
    logits = torch.linspace(0.0, 4000.0, 33 * size, device=device).sin().mul(40).round().div(8).view(33, size)
    logits = logits.to(like.dtype)
    rows = Rows.allocate(33, 3, 1, device)
    numbers = torch.arange(33, device=device)
    for held, new in (
        (rows.seeds, numbers * 7_919),
        (rows.written, numbers % 3),
        (rows.temperature, 0.3 + numbers / 20),
        (rows.top_k, 1 + numbers % count),
        (rows.top_p, 0.6 + numbers % 5 / 10),
        (rows.min_p, numbers % 4 / 20),
    ):
        held.copy_(new)
    maxima = torch.nn.functional.pad(logits.float(), (0, -size % GROUP), value=-torch.inf).view(33, -1, GROUP).amax(2)
    kinds = Kinds(draws=True, most_k=count, nucleus=True, smallest=True)
    expected = choose(logits, rows.asked, kinds, uniform(rows.seeds, rows.written))
    return drawn(logits, maxima, rows, count), expected

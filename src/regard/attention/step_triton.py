"""Attention of one token per row against a cache that is written in place, in one kernel for a GPU.

    mixed, one row    q q q q | k k | v v        the product of queries, keys and values, heads side by side
    a program         one query head of one row, or of a part of the row's keys where rows are few and texts long

A program turns its query and the row's new key (Su et al. 2021, §3.2), puts the new key and value where the row has
got to, and goes once over the keys before it with a running maximum (Milakov & Gimelshein 2018): nothing behind a
row's own length is read. The new token is what the running sums begin with, so no program waits for another. Parts
are joined by a second kernel. What it computes is `attend_few` behind `StaticKeyValues.write`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.cache import KeyValues, StaticKeyValues
from regard.attention.decode_step import StepTable, attend_few
from regard.attention.mask import Causal, Mask, Window
from regard.attention.rotary import Rotation
from regard.attention.similarity import ScaledDot
from regard.layers.triton_kernel import TritonKernel, runs, size_above

MANY = 264
"""Programs that keep a GPU busy: two for each of its 132 processors."""
PART = 512
"""Keys that a program goes over at least, before a row is divided."""
NUMBERS = 4096
"""Numbers of the keys that a program reads at a time where there are many; four times as many where there are few."""

tl: Any = None


@dataclass(frozen=True)
class StepShape:
    """What all rows have in common."""

    heads: int
    key_value_heads: int
    head_width: int
    scale: float
    window: int | None = None


def attend_step(
    mixed: Float[Tensor, "rows parts"],
    held: StaticKeyValues,
    lengths: Int[Tensor, "rows"],
    rotation: Rotation | None,
    shape: StepShape,
) -> Float[Tensor, "rows joined"]:
    """Write each row's new key and value at its length, and give what its query reads up to there, heads joined."""
    if held.keys.dtype == mixed.dtype and runs_here(mixed):
        return _started(mixed, held, lengths, rotation, shape)
    return attend_plain(mixed, held, lengths, rotation, shape)


def runs_here(like: Tensor) -> bool:
    """Whether the kernel is used for numbers of this type on their device."""
    return runs("attention", like.device, like.dtype, lambda: _example(like))


def attend_plain(
    mixed: Float[Tensor, "rows parts"],
    held: StaticKeyValues,
    lengths: Int[Tensor, "rows"],
    rotation: Rotation | None,
    shape: StepShape,
) -> Float[Tensor, "rows joined"]:
    """The same by PyTorch's own operators, over all the memory that is given."""
    heads, kv_heads, width = shape.heads, shape.key_value_heads, shape.head_width
    split = mixed.view(len(mixed), 1, -1, width).transpose(1, 2)
    query, key, value = torch.split(split, [heads, kv_heads, kv_heads], dim=1)
    if rotation is not None:
        query, key = rotation(query), rotation(key)
    positions = lengths[:, None]
    held.write(KeyValues(key, value), positions)
    mask: Mask = Causal() if shape.window is None else Causal() & Window(shape.window)
    query = query.to(held.keys.dtype)
    table = StepTable.of(mask, None, query, (*query.shape[:3], held.room), positions)
    out = attend_few(query, held.keys, held.values, ScaledDot(shape.scale), table)
    return out.to(mixed.dtype).flatten(1)


def _started(
    mixed: Tensor, held: StaticKeyValues, lengths: Tensor, rotation: Rotation | None, shape: StepShape
) -> Tensor:
    rows, width, programs = len(mixed), shape.head_width, len(mixed) * shape.heads
    out = mixed.new_empty(rows, shape.heads * width)
    turns = (mixed, mixed) if rotation is None else (rotation.cosine.contiguous(), rotation.sine.contiguous())
    parts = 1 if programs >= MANY else min(-(-MANY // programs), -(-min(held.room, shape.window or held.room) // PART))
    wide = torch.promote_types(mixed.dtype, torch.float32)
    sums = mixed.new_empty((rows, shape.heads, parts, width + 2), dtype=wide) if parts > 1 else out
    padded, few = size_above(width, 16), programs < MANY
    block = max(16, (4 if few else 1) * NUMBERS // padded)
    _attend[rows, shape.heads, parts](
        *(mixed, *turns, held.keys, held.values, lengths, sums),
        *(mixed.stride(0), *(one.stride(0) for one in (held.keys, held.values))),
        *(held.keys.stride(1), held.values.stride(1), shape.scale),
        *(shape.heads, shape.key_value_heads, width, padded, block, parts),
        *(rotation is not None, shape.window or 0, wide == torch.float64),
        num_warps=8 if few else 4,
    )
    if parts > 1:
        _join[rows, shape.heads](sums, out, width, padded, parts, size_above(parts), num_warps=1)
    return out


@TritonKernel
def _attend(  # type: ignore[no-untyped-def]
    mixed, cosines, sines, keys, values, lengths, sums,
    mixed_row, keys_row, values_row, keys_head, values_head,
    SCALE: tl.constexpr, HEADS: tl.constexpr, OWN: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr, TURNS: tl.constexpr, WINDOW: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    wide: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    own, column = head // (HEADS // OWN), tl.arange(0, PADDED)
    there = column < WIDTH
    length = tl.load(lengths + row).to(tl.int32)
    mixed += row * mixed_row
    queries_at, keys_at = mixed + head * WIDTH, mixed + (HEADS + own) * WIDTH
    value = tl.load(mixed + (HEADS + OWN + own) * WIDTH + column, mask=there, other=0.0)
    query = tl.load(queries_at + column, mask=there, other=0.0).to(wide)
    key = tl.load(keys_at + column, mask=there, other=0.0).to(wide)
    if TURNS:
        first = column < WIDTH // 2
        across = tl.where(first, column + WIDTH // 2, column - WIDTH // 2)
        angle = row * (WIDTH // 2) + tl.where(first, column, across)
        cosine = tl.load(cosines + angle, mask=there, other=0.0).to(wide)
        sine = tl.load(sines + angle, mask=there, other=0.0).to(wide) * tl.where(first, -1.0, 1.0)
        query = query * cosine + tl.load(queries_at + across, mask=there, other=0.0).to(wide) * sine
        key = key * cosine + tl.load(keys_at + across, mask=there, other=0.0).to(wide) * sine
    kept = key.to(keys.dtype.element_ty)
    keys += row * keys_row + own * keys_head
    values += row * values_row + own * values_head
    writes = column < tl.where(head % (HEADS // OWN) + part == 0, WIDTH, 0)  # of all that share a key head, one
    tl.store(keys + length * WIDTH + column, kept, mask=writes)
    tl.store(values + length * WIDTH + column, value, mask=writes)

    begin = tl.maximum(length - WINDOW + 1, 0) if WINDOW else 0
    each = tl.cdiv(tl.cdiv(length - begin, PARTS), BLOCK) * BLOCK
    begin += part * each
    end = tl.minimum(begin + each, length)
    most = tl.where(part == 0, tl.sum(query * kept.to(wide), axis=0) * SCALE, -float("inf"))
    total = tl.where(part == 0, 1.0, 0.0).to(wide)
    found = tl.where(part == 0, value.to(wide), 0.0)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        seen, place = at < end, at[:, None] * WIDTH + column[None, :]
        some = seen[:, None] & there[None, :]
        read = tl.load(keys + place, mask=some, other=0.0).to(wide)
        given = tl.load(values + place, mask=some, other=0.0).to(wide)
        score = tl.where(seen, tl.sum(read * query[None, :], axis=1) * SCALE, -float("inf"))
        higher = tl.maximum(most, tl.max(score, axis=0))
        weight, shrink = tl.exp(score - higher), tl.exp(most - higher)
        total = total * shrink + tl.sum(weight, axis=0)
        found = found * shrink + tl.sum(weight[:, None] * given, axis=0)
        most = higher
    if PARTS == 1:
        tl.store(sums + (row * HEADS + head) * WIDTH + column, (found / total).to(sums.dtype.element_ty), mask=there)
    else:
        sums += ((row * HEADS + head) * PARTS + part) * (WIDTH + 2)
        tl.store(sums + column, found, mask=there)
        tl.store(sums + WIDTH, most)
        tl.store(sums + WIDTH + 1, total)


@TritonKernel
def _join(  # type: ignore[no-untyped-def]
    sums, out, WIDTH: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr, SOME: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    column, part = tl.arange(0, PADDED), tl.arange(0, SOME)
    place = sums + (at * PARTS + part) * (WIDTH + 2)
    most = tl.load(place + WIDTH, mask=part < PARTS, other=-float("inf"))
    share = tl.exp(most - tl.max(most, axis=0))
    total = tl.sum(share * tl.load(place + WIDTH + 1, mask=part < PARTS, other=0.0), axis=0)
    some = (part < PARTS)[:, None] & (column < WIDTH)[None, :]
    found = tl.sum(share[:, None] * tl.load(place[:, None] + column[None, :], mask=some, other=0.0), axis=0)
    tl.store(out + at * WIDTH + column, (found / total).to(out.dtype.element_ty), mask=column < WIDTH)


def _example(like: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of several lengths, one at the edge of a block, with rotary positions and shared key heads."""
    shape = StepShape(heads=4, key_value_heads=2, head_width=64, scale=0.125)
    device = like.device
    numbers = torch.linspace(-2.0, 2.0, 3 * 8 * 64, device=device).sin().view(3, -1).to(like.dtype)
    held = torch.linspace(-3.0, 3.0, 3 * 2 * 192 * 64, device=device).cos().view(3, 2, 192, 64).to(like.dtype)
    lengths = torch.tensor([0, 64, 131], device=device)
    angles = (lengths[:, None] * torch.linspace(0.1, 1.0, 32, device=device)).view(3, 1, 1, 32)
    turns = Rotation(angles.cos().to(like.dtype), angles.sin().to(like.dtype))
    found, expected = (
        work(numbers, StaticKeyValues(held.clone(), held.flip(2)), lengths, turns, shape)
        for work in (_started, attend_plain)
    )
    return found, expected

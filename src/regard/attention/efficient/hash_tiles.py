"""Attention among the members of a bucket: tokens in the order of their buckets, in tiles, each reading its neighbours.

    order     a a a a a b b c c c c c c      sorted by bucket, in a bucket by place
    tiles     a a a a|a b b c|c c c c|c      of `window` tokens: what one may see is in its own tile, in the one
                                             before and, where it looks both ways, in the one behind

So nothing is n×n, and no bucket however large takes more. Every number is exact: whether two tokens are near is asked
of their places in the order, not of the tiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from regard.attention.efficient.chunked import widened
from regard.axes import Attended, Key, Query, Value
from regard.layers.dropout import drop

Numbers = Int[Tensor, "batch heads rounds tokens"]
Found = tuple[Float[Tensor, "batch heads tokens value_width"], Float[Tensor, "batch heads tokens 2"]]
"""Of a round: sums of values, not yet divided; the largest score of each token, and the sum of weights against it."""

NOBODY = -(2**30)
"""The place of what is no token."""


@dataclass(frozen=True, eq=False)
class Order:
    """Tokens in the order of their buckets, in every round."""

    window: int
    there: Numbers
    """The token at each place of the order."""
    back: Numbers
    """The place of each token in the order."""
    spaced: Numbers
    """Each token's place, with a gap between buckets in which nothing is near: of members less than `window` apart, and
    of nobody else, they differ by less than `window`."""
    ranks: Numbers
    """How many of its bucket stand before each token."""
    somewhere: Bool[Tensor, "batch heads tokens"]
    """Which tokens are in a bucket."""

    @classmethod
    def of(cls, buckets: Numbers, window: int) -> "Order":
        """Of whole numbers from 0, of which negative ones are in no bucket: near nobody."""
        tokens = buckets.shape[3]
        places = torch.arange(tokens, device=buckets.device).expand_as(buckets)
        alone = buckets < 0
        ordered, there = torch.where(alone, -1 - places, buckets).sort(dim=3, stable=True)
        starts = F.pad(ordered[..., 1:] != ordered[..., :-1], (1, 0), value=True)
        ranks = places - torch.where(starts, places, 0).cummax(dim=3).values
        spaced = places + starts.cumsum(dim=3) * window
        back = torch.empty_like(there).scatter_(3, there, places)
        small = torch.int32 if (tokens + 1) * (window + 2) < -NOBODY else torch.int64
        return cls(window, there, back, spaced.to(small).gather(3, back), ranks.gather(3, back), ~alone[:, :, 0])


def read_round(query: Query, key: Key, value: Value, order: Order, number: int, causal: bool, dropout: float) -> Found:
    """What every token reads of the members of its bucket in one round, those left out that an earlier one found."""
    there, tile = order.there[:, :, number], order.window
    queries = _tiles(_picked(query, there) * query.shape[3] ** -0.5, tile)
    keys, values = (_with_neighbours(_tiles(_picked(one, there), tile), causal) for one in (key, value))
    allowed: Tensor | None = None
    for earlier in range(number, -1, -1):
        near = _near(order.spaced[:, :, earlier].gather(2, there), tile, causal)
        allowed = near if allowed is None else allowed.logical_and_(near.logical_not_())
    assert allowed is not None
    scores = widened(queries @ keys.mT).masked_fill(~allowed, -torch.inf)
    largest = scores.detach().amax(dim=4, keepdim=True)
    weights = (scores - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    sums = torch.cat((largest, weights.sum(dim=4, keepdim=True)), dim=4)
    read = drop(weights.to(values.dtype), dropout) @ values
    back = order.back[:, :, number]
    return _picked(read.flatten(2, 3), back), _picked(sums.flatten(2, 3), back)


def joined_rounds(found: Sequence[Found], alone: Value) -> Attended:
    """One softmax over what all rounds found; where they found nothing, what the token has alone."""
    sums = torch.stack([one for _, one in found])
    largest = sums[..., :1].detach().amax(dim=0)
    factors = (sums[..., :1].detach() - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    total = (factors * sums[..., 1:]).sum(dim=0)
    nobody = total == 0
    read = (factors * torch.stack([one for one, _ in found])).sum(dim=0) / total.masked_fill(nobody, 1.0)
    return torch.where(nobody, alone, read.to(alone.dtype))


def _picked(
    tokens: Float[Tensor, "batch heads tokens width"], index: Int[Tensor, "batch heads places"]
) -> Float[Tensor, "batch heads places width"]:
    """Tokens by their numbers."""
    rows = torch.arange(index.shape[0] * index.shape[1], device=index.device).view(*index.shape[:2], 1)
    flat = (rows * tokens.shape[2] + index).flatten()
    return tokens.reshape(-1, tokens.shape[3]).index_select(0, flat).view(*index.shape, tokens.shape[3])


def _tiles(
    tokens: Float[Tensor, "batch heads tokens width"], tile: int
) -> Float[Tensor, "batch heads tiles tile width"]:
    whole = F.pad(tokens, (0, 0, 0, -tokens.shape[2] % tile))
    return whole.view(*whole.shape[:2], -1, tile, whole.shape[3])


def _with_neighbours(tiles: Tensor, causal: bool, filler: int = 0) -> Tensor:
    """Each tile, between the one before it and, where tokens look both ways, the one behind: along the fourth axis."""
    nothing = torch.full_like(tiles[:, :, :1], filler)
    parts = [torch.cat((nothing, tiles[:, :, :-1]), dim=2), tiles]
    if not causal:
        parts.append(torch.cat((tiles[:, :, 1:], nothing), dim=2))
    return torch.cat(parts, dim=3)


def _near(
    spaced: Int[Tensor, "batch heads places"], window: int, causal: bool
) -> Bool[Tensor, "batch heads tiles queries keys"]:
    """Which tokens of a tile see which of it and its neighbours; nobody itself."""
    whole = F.pad(spaced, (0, -spaced.shape[2] % window), value=NOBODY)
    tiles = whole.view(*whole.shape[:2], -1, window)
    away = tiles[..., None] - _with_neighbours(tiles, causal, NOBODY)[..., None, :]
    if causal:
        return (away > 0).logical_and_(away < window)
    return (away != 0).logical_and_(away.abs_() < window)

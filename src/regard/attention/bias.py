"""Numbers added to the scores before the softmax: positions told by distance instead of by vector.

`ALiBi` (Press et al. 2021, §3): a fixed slope per head times the distance. `RelativeBuckets` (T5, Raffel et al. 2019,
§2.1): a learnt number per head and bucket of distances. Both depend on `key − query` alone, so padding on the
left and cached decoding need nothing special, and a whole table is computed from one number per diagonal. A plain
tensor works as a bias too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask_algebra import Grid, Positions, Shape
from regard.errors import ConfigError

Terms = Callable[[Tensor, Tensor], Tensor]


class Bias(nn.Module, ABC):
    """A term added to the scores of so many heads, a function of the head and of `key − query`."""

    heads: int

    @abstractmethod
    def terms_on(self, device: torch.device) -> Terms:
        """The term as a function of (head, key − query), whole numbers that spread over each other."""

    def values(self, at: Grid) -> Float[Tensor, "tiles heads queries keys"]:
        """The term for each head, query and key of the grid."""
        return self.terms_on(at.head.device)(at.head, at.key - at.query)

    def dense(
        self, shape: Shape, device: torch.device, positions: Positions | None = None
    ) -> Float[Tensor, "#batch heads queries keys"]:
        """The same for all of scores shaped (batch, heads, queries, keys): one term per diagonal.

        Of the terms a b c d e f of six distances, four queries see three keys as `def`, `cde`, `bcd`, `abc`. Queries
        that stand anywhere make no diagonals: each entry is computed.
        """
        _, heads, queries, keys = shape
        if positions is not None:
            return self.values(Grid.of(shape, device, positions=positions))
        head = torch.arange(heads, device=device)[:, None]
        terms = self.terms_on(device)(head, torch.arange(1 - keys, queries, device=device))
        return terms.unfold(1, keys, 1).flip(1)[None]


class ALiBi(Bias):
    """`−slope_h · |query − key|` with slopes 2^(−8/heads), 2^(−16/heads), …

    For head counts that are not powers of two the slopes are those of the next lower power, then every other one
    of the next higher, as the paper's own code does.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.slopes = alibi_slopes(heads)

    def terms_on(self, device: torch.device) -> Terms:
        """Minus slope times distance."""
        slopes = alibi_slopes_on(self.heads, device)
        return lambda head, distance: -slopes[head] * distance.abs()


def alibi_slopes_on(heads: int, device: torch.device) -> Float[Tensor, "heads"]:
    """As a tensor, brought to a GPU once: what a CUDA graph captures may not come from the host."""
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(alibi_slopes(heads), dtype=torch.float64, device=device)
    return _brought(heads, device)


@cache
def _brought(heads: int, device: torch.device) -> Float[Tensor, "heads"]:
    with torch.inference_mode(False):
        return torch.tensor(alibi_slopes(heads), dtype=torch.float64, device=device)


def alibi_slopes(heads: int) -> list[float]:
    """One slope per head, geometric from 2^(−8/heads) down to 2^−8 where heads is a power of two."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8.0 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


class RelativeBuckets(Bias):
    """A learnt term per head for each bucket of `key − query`: exact nearby, logarithmic further off."""

    def __init__(self, heads: int, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        if buckets < 4 or max_distance <= buckets:
            raise ConfigError(
                f"{buckets} relative buckets up to distance {max_distance} leave no room for near and far",
                "use at least 4 buckets and a max_distance above their number",
            )
        self.heads = heads
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.terms = nn.Embedding(buckets, heads)

    def bucket(self, distance: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The bucket of `key − query`; one-directional buckets count the past only and put the future in 0."""
        buckets = self.buckets
        if self.bidirectional:
            buckets //= 2
            side = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            side = torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, far)

    def terms_on(self, device: torch.device) -> Terms:
        """The learnt term of the distance's bucket."""
        terms: Tensor = self.terms.weight
        return lambda head, distance: terms[self.bucket(distance), head]

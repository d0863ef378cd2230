"""What a mask becomes for a kernel: nothing, the causal flag, a dense table, or a table of live tiles.

A lowering is computed once for a mask and a shape and kept as long as the mask lives: the layers of a pass share
their masks, so the second layer pays nothing. Where positions are given, nothing is kept: they differ at every step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.mask import Causal
from regard.attention.mask_algebra import Grid, Mask, Positions, Shape, Tiles

Lowered = TypeVar("Lowered")
_KEPT: WeakKeyDictionary[Mask, dict[object, object]] = WeakKeyDictionary()


def kept(mask: Mask, key: object, make: Callable[[], Lowered]) -> Lowered:
    """What `make` gives, made once for this mask and key."""
    if torch.compiler.is_compiling():
        return make()
    known = _KEPT.setdefault(mask, {})
    if key not in known:
        known[key] = make()
    return known[key]  # type: ignore[return-value]


def sees_everything(mask: Mask | None, queries: int, positions: Positions | None = None) -> bool:
    """Whether the mask allows all, known from the expression alone: none, or causal with one query at the end."""
    return mask is None or (isinstance(mask, Causal) and queries == 1 and positions is None)


def fully_masked(added: Tensor) -> Bool[Tensor, "*shape 1"]:
    """The rows of a dense mask, of booleans or of numbers to add, in which nothing is allowed."""
    forbidden = ~added if added.dtype == torch.bool else added.isneginf()
    return forbidden.all(dim=-1, keepdim=True)


def fully_masked_rows(
    mask: Mask, shape: Shape, device: torch.device, positions: Positions | None = None
) -> Bool[Tensor, "#batch #heads queries 1"] | None:
    """The rows in which a mask allows nothing, looked for once; None where, on a CPU, none are found."""

    def make() -> Tensor | None:
        nothing = fully_masked(dense_table(mask, shape, device, positions))
        unseen = torch.compiler.is_compiling() or device.type != "cpu"  # to look would wait for the device
        return nothing if unseen or nothing.any() else None

    return make() if positions is not None else kept(mask, ("fully_masked", shape, device), make)


def is_causal_flag(mask: Mask | None, shape: Shape, positions: Positions | None = None) -> bool:
    """Whether PyTorch's causal flag says it: it aligns queries and keys at the start, so they must be as many."""
    if isinstance(mask, Causal) and positions is None and shape[2] == shape[3]:  # noqa: SIM103
        return True  # said by a branch: compiled with lengths that vary, the comparison itself would not be a bool
    return False


@dataclass(frozen=True, eq=False)
class LiveTiles:
    """Which tiles of the scores anything is allowed in, and in which everything is; one table per sequence or one."""

    size: int
    some: Bool[Tensor, "#batch rows columns"]
    all: Bool[Tensor, "#batch rows columns"]

    @property
    def share(self) -> float:
        """The part of all tiles that is live."""
        return float(self.some.float().mean())


def live_tiles(
    mask: Mask, shape: Shape, size: int, device: torch.device, positions: Positions | None = None
) -> LiveTiles:
    """The live tiles of a mask; heads are taken together. Never n×n: (n/size)²."""

    def make() -> LiveTiles:
        tiles = Tiles.of(shape, size, device, positions)
        bounds = mask.bounds(tiles)
        full = (bounds.some.shape[0], bounds.some.shape[1], tiles.first_query.shape[2], tiles.first_key.shape[3])
        return LiveTiles(size, bounds.some.expand(full).any(dim=1), bounds.all.expand(full).all(dim=1))

    return make() if positions is not None else kept(mask, ("tiles", shape, size, device), make)


def dense_table(
    mask: Mask, shape: Shape, device: torch.device, positions: Positions | None = None
) -> Bool[Tensor, "#batch #heads queries keys"]:
    """The whole table, n×n: for short texts, and for kernels that know nothing else."""
    if positions is not None:
        return mask.dense(shape, device, positions=positions)
    return kept(mask, ("dense", shape, device), lambda: mask.dense(shape, device))


def bias_values(bias: Bias | Tensor, grid: Grid, dtype: torch.dtype) -> Float[Tensor, "#batch #heads #queries #keys"]:
    """A bias object or tensor as numbers for this grid."""
    if isinstance(bias, Bias):
        return bias.values(grid).to(dtype)
    values = bias.view(*(1,) * (4 - bias.dim()), *bias.shape)
    return values.expand(-1, -1, grid.query.shape[2], grid.keys).to(dtype)


def dense_scores(
    mask: Mask | None, bias: Bias | Tensor | None, query: Tensor, shape: Shape, positions: Positions | None = None
) -> Float[Tensor, "#batch #heads queries keys"] | None:
    """Mask and bias as one tensor of numbers to add to the scores, `-inf` where nothing may be seen."""
    if mask is None and bias is None:
        return None
    if bias is None:
        added = query.new_zeros(1, 1, 1, 1)
    elif isinstance(bias, Bias):
        added = bias.dense(shape, query.device, positions).to(query.dtype)
    else:
        added = bias_values(bias, Grid.of(shape, query.device), query.dtype)
    return added if mask is None else torch.where(dense_table(mask, shape, query.device, positions), added, -torch.inf)

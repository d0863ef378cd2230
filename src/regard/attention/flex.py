"""Block-sparse attention on a GPU through PyTorch's FlexAttention (Dong et al. 2024), compiled.

The table of live tiles is built from the mask's bounds, so nothing n×n is ever made; inside a tile that is neither
empty nor full the mask's own predicate decides. On a CPU FlexAttention computes but does not train, and compiles for
half a minute: there it runs only when forced.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from regard.attention.bias import Bias
from regard.attention.kernels import Call, Kernel
from regard.attention.lowering import kept, live_tiles
from regard.attention.mask_algebra import Grid, Mask, Positions, Shape
from regard.axes import Attended

SIZE = 128
MOST_COMPILED = 256
"""Masks and shapes a process may use: each is compiled, and PyTorch would go on uncompiled, n×n, after its eighth."""
OPTIONS: dict[str, Any] = {"dynamic": None}
"""For the first shape as it is, from the second on for any: of ragged texts nearly every batch has one of its own."""
ON_A_CPU: dict[str, Any] = {"dynamic": False}
"""For every shape as it is: PyTorch 2.13 writes C++ that does not compile for some that may be any."""
SMALLEST = 1024 * 1024
"""Scores below which a dense mask costs less than a compiled kernel."""


class Flex(Kernel):
    """Any mask, block-sparse, on a GPU: forward and backward touch live tiles alone."""

    name = "flex"

    def unsupported(self, call: Call) -> str | None:
        """What FlexAttention cannot do or is not given here."""
        if call.not_inner:
            return call.not_inner
        if call.mask is None and call.bias is None:
            return "without a mask every tile is live"
        if call.dropout:
            return "it has no dropout"
        width = call.query.shape[-1]
        if width & (width - 1) or width < 16 or call.value.shape[-1] != width:
            return f"heads of width {width} do not fit it: it takes powers of two from 16"
        bias = [call.bias] if isinstance(call.bias, Tensor) else [] if call.bias is None else call.bias.parameters()
        learning = any(one.requires_grad for one in (call.query, call.key, call.value, *bias))
        if call.device.type == "cpu" and learning and torch.is_grad_enabled():
            return "on a CPU it does not train"
        return None

    def unsuitable(self, call: Call) -> str | None:
        """The CPU, short texts, and masks that need no table."""
        if call.device.type == "cpu":
            return "on a CPU gathered tiles do this, and train"
        if (call.sees_everything or call.causal_flag) and call.bias is None:
            return "SDPA needs no table for this mask"
        if isinstance(call.bias, Tensor):
            return "a bias that is a tensor already is a table"
        if call.shape[2] * call.shape[3] < SMALLEST:
            return "a dense mask costs less for so few scores"
        return None

    def why(self, call: Call) -> str:
        """It leaves out what the mask leaves out, and computes a bias where it is needed."""
        return "the mask is block-sparse there: only live tiles are computed and nothing n×n is made"

    def run(self, call: Call) -> Attended:
        """The compiled kernel, with the mask's live tiles and the bias computed entry by entry."""
        query, key, scale = call.dotted()
        mask, shape = call.mask, call.shape
        block_mask = None
        if mask is not None and call.positions is not None:
            block_mask = lower(mask, shape, query.device, call.positions)
        elif mask is not None:
            block_mask = kept(mask, ("flex", shape, query.device), lambda: lower(mask, shape, query.device))
        with torch._dynamo.config.patch(recompile_limit=MOST_COMPILED):
            out: Tensor = compiled(query.device.type)(
                query.contiguous(),
                key.contiguous(),
                call.value.contiguous(),
                score_mod=None if call.bias is None else added(call.bias, shape, query.device, call.positions),
                block_mask=block_mask,
                scale=scale,
                enable_gqa=shape[1] != key.shape[1],
            )
        return out


@cache
def compiled(device: str) -> Callable[..., Any]:
    """FlexAttention, compiled when first used."""
    return torch.compile(flex_attention, **(ON_A_CPU if device == "cpu" else OPTIONS))


def lower(mask: Mask, shape: Shape, device: torch.device, positions: Positions | None = None) -> BlockMask:
    """The mask as FlexAttention's table of tiles: those decided entry by entry, and those that are full.

    A ragged last tile is never full: what stands beyond the end must be left out.
    """
    _, _, queries, keys = shape
    live = live_tiles(mask, shape, SIZE, device, positions)
    full = live.all.clone()
    if queries % SIZE:
        full[:, -1] = False
    if keys % SIZE:
        full[:, :, -1] = False
    partial_count, partial = _listed(live.some & ~full)
    full_count, fulls = _listed(live.some & full)
    place = _places(shape, positions)

    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        row = None if positions is None else query
        return mask.allowed(Grid(batch, head, place(batch, query), key, keys, row))

    return BlockMask.from_kv_blocks(
        partial_count, partial, full_count, fulls, BLOCK_SIZE=SIZE, mask_mod=allowed, seq_lengths=(queries, keys)
    )


def _places(shape: Shape, positions: Positions | None) -> Callable[[Tensor, Tensor], Tensor]:
    """Where query number `query` of sequence `batch` stands among the keys."""
    if positions is None:
        shift = shape[3] - shape[2]
        return lambda batch, query: query + shift
    if positions.dim() == 1:
        return lambda batch, query: positions[query]
    spread = positions.expand(shape[0], -1)
    return lambda batch, query: spread[batch, query]


def added(
    bias: Bias | Tensor, shape: Shape, device: torch.device, positions: Positions | None = None
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The bias as FlexAttention's change of one score."""
    if isinstance(bias, Tensor):
        table = bias.expand(shape)
        return lambda score, batch, head, query, key: score + table[batch, head, query, key]
    terms, place = bias.terms_on(device), _places(shape, positions)
    return lambda score, batch, head, query, key: score + terms(head, key - place(batch, query)).to(score.dtype)


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles of each row are marked, and their columns first in the list of all."""
    order = tiles.int().sort(dim=-1, descending=True, stable=True).indices
    return tiles.sum(dim=-1).int()[:, None], order.int()[:, None].contiguous()

"""The largest scores of every row, found without a sort over the vocabulary and without asking a device.

The k largest stand in the k blocks of neighbouring ids with the largest maxima, of equal ones in the first: whatever is
in another block is preceded by k maxima.

    scores      3  7 | 5  5 | 1  5 | 2  0      the 2 largest, blocks of 2: maxima 7 5 5 2, so the first two blocks
    looked at   3  7   5  5                    of them the largest two: 7 and the first 5
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def largest(
    scores: Float[Tensor, "rows options"], count: int
) -> tuple[Float[Tensor, "rows most"], Int[Tensor, "rows most"]]:
    """The so many largest of every row, largest first, and their ids; of equals those with the lower id, first."""
    size = scores.shape[-1]
    width = 1 << max(0, round(math.log2(math.sqrt(size / count))))
    blocks = size // width
    if width == 1 or blocks <= count:
        ranked = scores.sort(dim=-1, descending=True, stable=True)
        return ranked.values[:, :count], ranked.indices[:, :count]
    whole, ids = scores[:, : blocks * width].view(-1, blocks, width), torch.arange(size, device=scores.device)
    maxima = whole.amax(dim=-1).sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(dim=-1).values
    found = whole.gather(1, maxima[:, :, None].expand(-1, -1, width)).flatten(1)
    numbers = (maxima[:, :, None] * width + ids[:width]).flatten(1)
    rest = size - blocks * width  # behind the last block, and looked at too
    found = torch.cat([found, scores[:, size - rest :]], dim=1)
    numbers = torch.cat([numbers, ids[size - rest :].expand(len(scores), -1)], dim=1)
    ranked = found.sort(dim=-1, descending=True, stable=True)
    return ranked.values[:, :count], numbers.gather(1, ranked.indices[:, :count])

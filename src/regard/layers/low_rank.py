"""A low-rank map beside a linear one (Hu et al. 2021, §4.1, eq. 3): `s · B A x`, with s = α ÷ rank.

x ──┬── W ─────────────── + ── W x + b + s · B A x
    └── dropout ─ A ─ B ──┘    A: rank × in, drawn; B: out × rank, zero: at first it changes nothing
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.dropout import Dropout


class LowRank(nn.Module):
    """`scale · up (down x)`: what is learnt of a map whose own weight stays as it is."""

    def __init__(self, width: int, out: int, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.rank, self.scale = rank, scale
        self.dropout = Dropout(dropout)
        self.down = nn.Parameter(torch.empty(rank, width))
        self.up = nn.Parameter(torch.zeros(out, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, inputs: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes out"]:
        """What is added to `W x + b`."""
        return F.linear(F.linear(self.dropout(inputs), self.down), self.up) * self.scale

    def change(self) -> Float[Tensor, "out width"]:
        """The same as one matrix: what W would have to be more, so that this were not needed."""
        return self.up @ self.down * self.scale

    def extra_repr(self) -> str:
        """Its sizes, where the module is printed."""
        return f"width={self.down.shape[1]}, out={len(self.up)}, rank={self.rank}, scale={self.scale:g}"

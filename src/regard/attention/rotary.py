"""Rotary positions (Su et al. 2021, §3.2): turn each pair of a query's and a key's coordinates by position × frequency.

The dot product of two turned vectors depends on the distance of their positions alone. Attention itself knows
nothing of this: the rotation is handed to it as a hook on the split heads. Pairs are (i, i + width/2), the layout
of LLaMA's published checkpoints.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError

Heads = Float[Tensor, "batch heads tokens head_width"]
Rotate = Callable[[Tensor], Tensor]


class Rotary(nn.Module):
    """Makes, for given positions, the function that turns heads by them."""

    def __init__(self, head_width: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        if head_width % 2:
            raise ConfigError(
                f"rotary positions turn pairs and a head width of {head_width} is odd",
                "choose width and heads so that width ÷ heads is even",
            )
        self.head_width, self.base = head_width, base

    def forward(self, positions: Int[Tensor, "#batch tokens"]) -> Rotate:
        """The rotation for tokens at these positions."""
        # Angles in float64: in float32, position 10,000 is already off by 1e-3 radians.
        exponents = torch.arange(0, self.head_width, 2, dtype=torch.float64, device=positions.device)
        frequencies = self.base ** (-exponents / self.head_width)
        angles = (positions[..., None] * frequencies)[:, None]  # [batch, 1, tokens, head_width / 2]
        cosine, sine = angles.cos(), angles.sin()

        def rotate(heads: Heads) -> Heads:
            cos, sin = cosine.to(heads.dtype), sine.to(heads.dtype)
            first, second = heads.chunk(2, dim=-1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

        return rotate

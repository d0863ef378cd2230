"""Absolute positions, added to the token vectors: sinusoidal (Vaswani et al. 2017, §3.5) or learnt.

Relative schemes do not live here: rotary turns queries and keys (`attention/rotary.py`), ALiBi and T5's buckets
are added to the scores (`attention/bias.py`).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import ConfigError


class Sinusoidal(nn.Module):
    """`PE(p, 2i) = sin(p / 10000^(2i/width))`, `PE(p, 2i+1) = cos(…)`: any length, nothing to learn."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError(f"sinusoidal positions come in pairs and a width of {width} is odd", "use an even width")
        self.width = width

    def forward(self, positions: Int[Tensor, "#batch tokens"]) -> Float[Tensor, "#batch tokens width"]:
        """The vectors of these positions, in float64: in float32 far positions lose their angle."""
        index = torch.arange(0, self.width, 2, dtype=torch.float64, device=positions.device)
        angles = positions[..., None] * torch.exp(index * (-math.log(10_000.0) / self.width))
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


class SinusoidalHalves(Sinusoidal):
    """The same numbers in another order: all sines, then all cosines, as Marian's models have them."""

    def forward(self, positions: Int[Tensor, "#batch tokens"]) -> Float[Tensor, "#batch tokens width"]:
        """The vectors of these positions, in float64."""
        interleaved = super().forward(positions)
        return torch.cat((interleaved[..., 0::2], interleaved[..., 1::2]), dim=-1)


class Learnt(nn.Module):
    """A trained vector for each of a fixed number of positions.

    They begin as sinusoids of mean square 0.02²: neighbours begin alike, which random vectors take thousands of steps
    to learn (`docs/LOG.md`, masked words).
    """

    def __init__(self, longest: int, width: int) -> None:
        super().__init__()
        waves = Sinusoidal(width + width % 2)(torch.arange(longest)[None])[0, :, :width]
        self.weight = nn.Parameter((0.02 * math.sqrt(2) * waves).to(torch.get_default_dtype()))

    def forward(self, positions: Int[Tensor, "#batch tokens"]) -> Float[Tensor, "#batch tokens width"]:
        """The vectors of these positions."""
        return self.weight[positions]

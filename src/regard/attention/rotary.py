"""Rotary positions (Su et al. 2021, §3.2): turn each pair of a query's and a key's coordinates by position × frequency.

The dot product of two turned vectors depends on the distance of their positions alone. Attention itself knows
nothing of this: the rotation is handed to it as a hook on the split heads. Pairs are (i, i + width/2), the layout
of LLaMA's published checkpoints.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.config import Config
from regard.errors import ConfigError

Heads = Float[Tensor, "batch heads tokens head_width"]
Rotate = Callable[[Tensor], Tensor]


class RotaryConfig(Config):
    """How fast the pairs turn. A model that was trained on short texts reads longer ones if they turn more slowly:
    all of them (`linear`, Chen et al. 2023), or only those that turn less than once in a short text (`llama3`)."""

    base: float = Field(10_000.0, gt=1, description="pair i turns by base^(−2i/width) at every position")
    scaling: Literal["none", "linear", "llama3"] = Field("none", description="which pairs are slowed down")
    factor: float = Field(1.0, ge=1, description="how many times")
    low_frequency_factor: float = Field(
        1.0, gt=0, description="llama3: pairs below this many turns in `original_max_positions` are slowed down"
    )
    high_frequency_factor: float = Field(4.0, gt=0, description="llama3: pairs above this many turns are left alone")
    original_max_positions: int = Field(8192, ge=1, description="llama3: the length of the texts it was trained on")

    @model_validator(mode="after")
    def _keys_have_a_meaning(self) -> "RotaryConfig":
        read = {
            "factor": ("linear", "llama3"),
            **dict.fromkeys(("low_frequency_factor", "high_frequency_factor", "original_max_positions"), ("llama3",)),
        }
        for key, schemes in read.items():
            if self.scaling not in schemes and getattr(self, key) != type(self).model_fields[key].default:
                raise ConfigError(
                    f"{key} = {getattr(self, key)} has no effect with scaling {self.scaling!r}",
                    f"use scaling {' or '.join(map(repr, schemes))}, or leave it out",
                )
        return self

    def frequencies(self, head_width: int, device: torch.device) -> Float[Tensor, "pairs"]:
        """Radians per position, in float64: in float32, position 10,000 is already off by 1e-3 radians."""
        exponents = torch.arange(0, head_width, 2, dtype=torch.float64, device=device)
        plain = self.base ** (-exponents / head_width)
        if self.scaling == "none":
            return plain
        if self.scaling == "linear":
            return plain / self.factor
        turns = self.original_max_positions * plain / (2 * math.pi)
        kept = ((turns - self.low_frequency_factor) / (self.high_frequency_factor - self.low_frequency_factor)).clamp(
            0, 1
        )
        return plain * (kept + (1 - kept) / self.factor)


PLAIN = RotaryConfig()


@dataclass(frozen=True, eq=False)
class Rotation:
    """The turn of every token: a function of heads, by the cosines and sines of its angles."""

    cosine: Float[Tensor, "#batch 1 tokens pairs"]
    sine: Float[Tensor, "#batch 1 tokens pairs"]

    def __call__(self, heads: Heads) -> Heads:
        cos, sin = self.cosine.to(heads.dtype), self.sine.to(heads.dtype)
        first, second = heads.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def of(self, row: int, tokens: slice) -> "Rotation":
        """That of one sequence's tokens."""
        row = row if len(self.cosine) > 1 else 0
        return Rotation(self.cosine[row : row + 1, :, tokens], self.sine[row : row + 1, :, tokens])

    @staticmethod
    def join(parts: "list[Rotation]") -> "Rotation":
        """One text's, read in these parts."""
        return Rotation(torch.cat([one.cosine for one in parts], 2), torch.cat([one.sine for one in parts], 2))


class Rotary(nn.Module):
    """Makes, for given positions, the function that turns heads by them."""

    def __init__(self, head_width: int, config: RotaryConfig = PLAIN) -> None:
        super().__init__()
        if head_width % 2:
            raise ConfigError(
                f"rotary positions turn pairs and a head width of {head_width} is odd",
                "choose width and heads so that width ÷ heads is even",
            )
        self.head_width, self.config = head_width, config

    def forward(self, positions: Int[Tensor, "#batch tokens"]) -> "Rotation":
        """The rotation for tokens at these positions."""
        frequencies = self.config.frequencies(self.head_width, positions.device)
        angles = (positions[..., None] * frequencies)[:, None]  # [batch, 1, tokens, head_width / 2]
        return Rotation(angles.cos(), angles.sin())

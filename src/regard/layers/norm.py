"""Normalisation of a token's vector: LayerNorm (Ba et al. 2016), RMSNorm (Zhang & Sennrich 2019), or none.

layer        (x − mean) / √(variance + ε) · w + b
rms          x / √(mean of x² + ε) · w
rms_offset   x / √(mean of x² + ε) · (1 + w): near 1, a weight in bfloat16 is kept more exactly so (Gemma Team 2024)
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

NormKind = Literal["layer", "rms", "rms_offset", "none"]


class OffsetRMSNorm(nn.Module):
    """The root mean square with a weight that is kept as what it differs from 1 by; counted in float32 at least."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Over the last axis."""
        wide = inputs if inputs.dtype == torch.float64 else inputs.float()
        weight = 1 + self.weight.to(wide.dtype)
        return F.rms_norm(wide, weight.shape, weight, self.epsilon).to(inputs.dtype)


def norm(kind: str, width: int, epsilon: float | None = None) -> nn.Module:
    """One of the kinds over the last axis; below the root 1e-5 for layer and 1e-6 for others if no other is given."""
    if kind == "none":
        return nn.Identity()
    if kind == "layer":
        return nn.LayerNorm(width, eps=epsilon or 1e-5)
    if kind == "rms_offset":
        return OffsetRMSNorm(width, epsilon or 1e-6)
    return nn.RMSNorm(width, eps=epsilon or 1e-6)

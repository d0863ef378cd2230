"""Normalisation of a token's vector: LayerNorm (Ba et al. 2016), RMSNorm (Zhang & Sennrich 2019), or none."""

from torch import nn


def norm(kind: str, width: int, epsilon: float | None = None) -> nn.Module:
    """`layer` or `rms` over the last axis, with 1e-5 or 1e-6 below the root if no other is given; or `none`."""
    if kind == "none":
        return nn.Identity()
    if kind == "layer":
        return nn.LayerNorm(width, eps=epsilon or 1e-5)
    return nn.RMSNorm(width, eps=epsilon or 1e-6)

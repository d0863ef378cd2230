"""Normalisation of a token's vector: LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""

from torch import nn


def norm(name: str, width: int) -> nn.Module:
    """The normalisation called `layer` or `rms`; the config has checked the name."""
    return nn.LayerNorm(width) if name == "layer" else nn.RMSNorm(width, eps=1e-6)

"""Normalisation of a token's vector: LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""

from torch import nn

from regard.blocks.config import BlockConfig


def norm(config: BlockConfig) -> nn.Module:
    """The normalisation the config names."""
    if config.norm == "layer":
        return nn.LayerNorm(config.width, eps=config.epsilon or 1e-5)
    return nn.RMSNorm(config.width, eps=config.epsilon or 1e-6)

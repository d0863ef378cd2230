"""The residual connection around a sublayer f, and where the normalisation stands.

    post   norm(x + f(x))     Vaswani et al. 2017, §3.1
    pre    x + f(norm(x))     Xiong et al. 2020; a stack of these ends with one norm more

A layer writes both as `stream = around.add(stream, f(around.enter(stream)))`.
"""

from torch import nn

from regard.attention.dropout import Dropout
from regard.axes import Hidden
from regard.blocks.config import BlockConfig
from regard.blocks.norm import norm


class Residual(nn.Module):
    """Adds what a sublayer makes of the stream to the stream, with dropout and a norm of its own."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.norm = norm(config)
        self.dropout = Dropout(config.dropout)
        self.placement = config.norm_placement

    def enter(self, stream: Hidden) -> Hidden:
        """What the sublayer reads."""
        out: Hidden = self.norm(stream) if self.placement == "pre" else stream
        return out

    def add(self, stream: Hidden, made: Hidden) -> Hidden:
        """The stream with what the sublayer made of it."""
        total = stream + self.dropout(made)
        out: Hidden = self.norm(total) if self.placement == "post" else total
        return out


def final_norm(config: BlockConfig) -> nn.Module:
    """What ends a stack: a norm where the layers normalise before their sublayers, nothing where they do after."""
    return norm(config) if config.norm_placement == "pre" else nn.Identity()

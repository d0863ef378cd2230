"""The encoder (Vaswani et al. 2017, §3.1): self-attention and feed-forward, every token seeing every other."""

from torch import nn

from regard.attention.bias import Bias
from regard.attention.mask import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.rotary import Rotate
from regard.axes import Hidden
from regard.blocks.config import BlockConfig
from regard.blocks.feedforward import FeedForward
from regard.blocks.residual import Residual, final_norm


def attention(config: BlockConfig) -> MultiHeadAttention:
    """A multi-head attention as the config describes it."""
    return MultiHeadAttention(
        config.width,
        config.heads,
        key_value_heads=config.key_value_heads,
        head_width=config.head_size,
        similarity=config.similarity,
        bias=config.bias,
        dropout=config.attention_dropout,
    )


def feedforward(config: BlockConfig) -> FeedForward:
    """A feed-forward network as the config describes it."""
    inner = config.feedforward_width or 4 * config.width
    return FeedForward(config.feedforward, config.width, inner, config.dropout, bias=config.bias)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.self_attention = attention(config)
        self.around_self = Residual(config)
        self.feedforward = feedforward(config)
        self.around_feedforward = Residual(config)

    def forward(
        self,
        stream: Hidden,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        rotate: Rotate | None = None,
    ) -> Hidden:
        """One layer further."""
        inputs = self.around_self.enter(stream)
        stream = self.around_self.add(stream, self.self_attention(inputs, mask=mask, bias=bias, rotate=rotate))
        return self.around_feedforward.add(stream, self.feedforward(self.around_feedforward.enter(stream)))


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: BlockConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(layers))
        self.norm = final_norm(config)

    def forward(
        self,
        stream: Hidden,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        rotate: Rotate | None = None,
    ) -> Hidden:
        """Through every layer."""
        for layer in self.layers:
            stream = layer(stream, mask=mask, bias=bias, rotate=rotate)
        out: Hidden = self.norm(stream)
        return out

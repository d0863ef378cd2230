"""The encoder (Vaswani et al. 2017, §3.1): self-attention and feed-forward, every token seeing every other."""

from collections.abc import Iterator

from torch import nn

from regard.attention.mechanism import LayerContext, Mechanism, MechanismShape, attended
from regard.attention.slot import Site
from regard.axes import Hidden
from regard.blocks.config import BlockConfig
from regard.layers.feedforward import FeedForward
from regard.layers.norm import norm
from regard.layers.residual import Residual
from regard.layers.reversible import Change, Reversible


def attention(config: BlockConfig, site: Site) -> Mechanism:
    """The attention of that place as the config describes it."""
    return config.mechanism(site).build(config.slot(site))


def feedforward(config: BlockConfig) -> FeedForward:
    """A feed-forward network as the config describes it."""
    inner = config.feedforward_width or 4 * config.width
    chunks = config.feedforward_chunks
    return FeedForward(config.feedforward, config.width, inner, config.dropout, bias=config.bias, chunks=chunks)


def residual(config: BlockConfig) -> Residual:
    """The residual connection around a sublayer as the config describes it."""
    norms = [norm(config.norm, config.width, config.epsilon) for _ in range(1 + (config.norm_placement == "sandwich"))]
    return Residual(norms, config.norm_placement, config.dropout, adds=bool(config.residual))


def reversible(config: BlockConfig) -> Reversible | None:
    """What runs a stack's sublayers, where the config asks for a reversible one."""
    return Reversible() if config.residual == "reversible" else None


def final_norm(config: BlockConfig) -> nn.Module:
    """What ends a stack: a norm where what the layers add is not normalised with the stream, else nothing."""
    return nn.Identity() if config.norm_placement == "post" else norm(config.norm, config.width, config.epsilon)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    def __init__(self, config: BlockConfig, index: int = 0) -> None:
        super().__init__()
        self.self_attention = attention(config, Site("encoder", index, "self"))
        self.self_residual = residual(config)
        self.feedforward = feedforward(config)
        self.feedforward_residual = residual(config)

    def forward(self, stream: Hidden, context: LayerContext) -> Hidden:
        """One layer further."""
        made, _ = attended(self.self_attention, self.self_residual.enter(stream), None, context)
        stream = self.self_residual.add(stream, made)
        return self.feedforward_residual.add(stream, self.feedforward(self.feedforward_residual.enter(stream)))

    def changes(self, context: LayerContext) -> Iterator[Change]:
        """What each sublayer adds, of the stream it reads."""

        def own_read(stream: Hidden) -> Hidden:
            made, _ = attended(self.self_attention, self.self_residual.enter(stream), None, context)
            return self.self_residual.change(made)

        yield own_read
        yield lambda stream: self.feedforward_residual.change(self.feedforward(self.feedforward_residual.enter(stream)))


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: BlockConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config, index) for index in range(layers))
        self.norm = final_norm(config)
        self.reversible = reversible(config)
        firsts: dict[MechanismShape, Mechanism] = {}
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, EncoderLayer)
            first = firsts.setdefault(config.mechanism(Site("encoder", index, "self")), layer.self_attention)
            if first is not layer.self_attention:
                layer.self_attention.share(first)

    def forward(self, stream: Hidden, context: LayerContext) -> Hidden:
        """Through every layer."""
        if self.reversible is not None:
            layers = (layer for layer in self.layers if isinstance(layer, EncoderLayer))
            stream = self.reversible([change for layer in layers for change in layer.changes(context)], stream)
        else:
            for layer in self.layers:
                stream = layer(stream, context)
        out: Hidden = self.norm(stream)
        return out

"""What a model ends with: from the last layer's vectors to what it is asked for.

tokens   logits over the vocabulary
masked   the same behind a small network of its own (Devlin et al. 2018: a linear layer, the activation, a norm)
labels   logits over classes, from the first token's pooled vector
spans    two logits for every token: that an answer begins there, that it ends there
none     the vectors themselves
"""

import torch
from torch import Tensor, nn

from regard.axes import Hidden, Logits
from regard.blocks.config import BlockConfig
from regard.embedding.tokens import TokenEmbedding
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.linear import Linear, MapModule
from regard.layers.norm import norm
from regard.models.config import TransformerConfig


class MaskedLMTransform(nn.Module):
    """The network before the output of a masked language model."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.linear = Linear(config.width, config.width)
        self.activation = ACTIVATIONS[config.feedforward]
        self.norm = norm(config.norm, config.width, config.epsilon)

    def forward(self, hidden: Hidden) -> Hidden:
        """Turn, bend, normalise."""
        out: Hidden = self.norm(self.activation(self.linear(hidden)))
        return out


class TokenOutput(MapModule):
    """Logits over the vocabulary, by a table of its own or, where tied, by the embedding table read backwards."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.change = MaskedLMTransform(config) if config.head == "masked" else None
        self.tied = config.tie_embeddings
        self.weight = None if self.tied else nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None
        self.factor = config.width**-0.5 if config.output_scaled else 1.0

    def forward(self, hidden: Hidden, embedding: TokenEmbedding) -> Logits:
        """How well each token fits each place."""
        hidden = hidden if self.change is None else self.change(hidden)
        hidden = hidden if self.factor == 1.0 else hidden * self.factor
        return embedding.logits(hidden, self.bias) if self.tied else self.times(hidden, self.bias)


class Pooler(nn.Module):
    """One vector for a whole text (Devlin et al. 2018, §3.1): the first token's, through a linear layer and tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = Linear(width, width)

    def forward(self, first: Tensor) -> Tensor:
        """Of each text's first vector."""
        out: Tensor = self.linear(first).tanh()
        return out

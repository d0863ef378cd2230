"""Token embeddings (Vaswani et al. 2017, §3.4): a table of vectors, scaled by √width, read backwards as output."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.axes import Hidden, Ids, Logits
from regard.layers.linear import MapModule


class TokenEmbedding(MapModule):
    """The vector of every token. Drawn with variance 1/width, so that scaled vectors and tied logits start near 1."""

    looked_up = True

    def __init__(self, vocabulary: int, width: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width).normal_(std=width**-0.5))
        self.factor = width**0.5 if scaled else 1.0

    def forward(self, ids: Ids) -> Hidden:
        """The vectors of these tokens, times √width where scaled."""
        found = F.embedding(ids, self.plain_weight())
        return found if self.factor == 1.0 else found * self.factor

    def logits(self, hidden: Hidden, bias: Tensor | None = None) -> Logits:
        """The table as output projection: how well each token's vector fits (tied weights)."""
        return self.times(hidden, bias)

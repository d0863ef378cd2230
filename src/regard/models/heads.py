"""What a model ends with: from the last layer's vectors to what it is asked for.

tokens   logits over the vocabulary
masked   the same behind a small network of its own (Devlin et al. 2018: a linear layer, the activation, a norm)
labels   logits over classes, from the first token's pooled vector, or the mean of all; where asked, from n-grams too
spans    two logits for every token: that an answer begins there, that it ends there
none     the vectors themselves
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from regard.axes import Hidden, Logits
from regard.blocks.config import BlockConfig
from regard.data.batching import Padded
from regard.embedding.tokens import TokenEmbedding
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.linear import Linear, MapModule
from regard.layers.norm import norm
from regard.models.config import PoolerKind, TransformerConfig


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
        self.factor = config.width**-0.5 if config.scale_output else 1.0
        self.cap = config.output_softcap

    def forward(self, hidden: Hidden, embedding: TokenEmbedding) -> Logits:
        """How well each token fits each place."""
        hidden = hidden if self.change is None else self.change(hidden)
        hidden = hidden if self.factor == 1.0 else hidden * self.factor
        logits = embedding.logits(hidden, self.bias) if self.tied else self.times(hidden, self.bias)
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


class Pooler(nn.Module):
    """One vector for a whole text (Devlin et al. 2018, §3.1): the first token's, turned and bent."""

    def __init__(self, width: int, kind: PoolerKind) -> None:
        super().__init__()
        self.linear = Linear(width, width)
        self.activation = {"tanh": torch.tanh, "relu": torch.relu}[kind]

    def forward(self, first: Tensor) -> Tensor:
        """Of each text's first vector."""
        out: Tensor = self.activation(self.linear(first))
        return out


class NgramLogits(nn.Module):
    """A linear map from which tokens and pairs of neighbours a text has to logits: the wide part beside the deep one.

    Wide and deep are added and trained together (Cheng et al. 2016). Tokens and pairs are hashed into a table with one
    row of logits for each bucket (Joulin et al. 2016, §2.2), drawn as zero: two that meet in a bucket share its row,
    and a bucket counts once however often the text meets it (Pang et al. 2002).

        the bank  →  [CLS]  the  bank  [SEP]  [CLS] the  the bank  bank [SEP]  →  RATE · Σ rows
    """

    RATE = 8.0
    """AdamW moves every number about as far as any other: by this factor the wide part learns before the deep one."""
    PRIME, LAST, FIRST = 2**31 - 1, 1_000_003, 747_796_405

    def __init__(self, buckets: int, labels: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, labels)
        nn.init.zeros_(self.table.weight)

    def forward(self, tokens: Padded) -> Float[Tensor, "batch labels"]:
        """The sum over the text; padding is in no n-gram."""
        ids, real, weight = tokens.ids, tokens.real, self.table.weight
        found = torch.cat([self.bucket(ids), self.bucket(ids[:, 1:], ids[:, :-1])], dim=1)
        kept = torch.cat([real, real[:, 1:] & real[:, :-1]], dim=1)
        found = found.masked_fill(~kept, self.table.num_embeddings).sort(dim=1).values
        kept = found < self.table.num_embeddings
        kept[:, 1:] &= found[:, 1:] != found[:, :-1]
        found = found.clamp(max=self.table.num_embeddings - 1)
        out: Tensor = embedding_bag(found, weight, mode="sum", per_sample_weights=kept.to(weight.dtype))
        return self.RATE * out

    def bucket(
        self, ids: Int[Tensor, "batch tokens"], before: Int[Tensor, "batch tokens"] | None = None
    ) -> Int[Tensor, "batch tokens"]:
        """Of tokens, or of pairs: `((a·id + b·(before + 1)) mod p) mod buckets` (Carter & Wegman 1979)."""
        mixed = self.LAST * ids if before is None else self.LAST * ids + self.FIRST * (before + 1)
        return mixed % self.PRIME % self.table.num_embeddings

"""How weights begin: as Glorot and Bengio (2010) draw them, or `normal`, as GPT-2 does (Radford et al. 2019, §2.3).

`mimetic` is Glorot's draw in which a token looks first at what is like it, itself and the same word elsewhere, as heads
of trained models do (Trockman & Kolter 2023, §3: the product of queries' and keys' weights near the identity). A model
then need not find out for every word that it is the same in a question and in a passage. The paper also draws values
and output together, which is left out here, and reaches the product by a singular value decomposition.
"""

import torch
from torch import nn

from regard.attention.projections import Projections
from regard.embedding.tokens import TokenEmbedding
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.heads import TokenOutput

ADDED = ("self_attention.output.weight", "cross_attention.output.weight", "feedforward.down.weight")
"""What makes the vectors that a sublayer adds to the stream."""
LIKENESS = 0.7
"""Correlation of a head's keys with its queries where they begin alike: β of the paper."""


def init_weights(model: nn.Module, config: TransformerConfig) -> None:
    """Linear layers, biases at zero; `normal`: σ = 0.02, divided by √(number of sublayers) where they add up.

    Tables of tokens and segments are drawn like the layers where all are normal, so that no kind drowns another.
    """
    sublayers = config.layers * (3 if config.architecture == "encoder_decoder" else 2) if config.residual else 1
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if config.init == "normal" and (isinstance(owner, TokenEmbedding) or name == "segments.weight"):
            nn.init.normal_(parameter, std=0.02)
        elif isinstance(owner, nn.Linear | TokenOutput) and parameter.dim() == 1:
            nn.init.zeros_(parameter)
        elif isinstance(owner, nn.Linear | TokenOutput) and config.init == "normal":
            nn.init.normal_(parameter, std=0.02 / sublayers**0.5 if name.endswith(ADDED) else 0.02)
        elif isinstance(owner, nn.Linear | TokenOutput):
            nn.init.xavier_uniform_(parameter)
    if config.init == "mimetic":
        found = [module for module in model.modules() if isinstance(module, Projections)]
        if not found:
            raise ConfigError(
                "init is 'mimetic', which likens keys to queries, and no layer has keys of its own", "use glorot"
            )
        for module in found:
            liken(module)


def liken(attention: Projections) -> None:
    """Every head's keys become, up to a draw of their own, its queries: W_Q W_Kᵀ begins as about 0.7 of the identity.

    Shared keys are likened to the first of the queries that read them.
    """
    query, key = attention.query.weight, attention.key.weight
    groups = query.view(attention.key_value_heads, -1, attention.head_width, query.shape[1])
    per_key = groups[:, 0].reshape(key.shape)
    with torch.no_grad():
        like = per_key * (key.std() / per_key.std())  # shared keys are drawn wider
        key.mul_((1 - LIKENESS**2) ** 0.5).add_(like, alpha=LIKENESS)

"""How weights begin: as Glorot and Bengio (2010) draw them, or `normal`, as GPT-2 does (Radford et al. 2019, §2.3)."""

from torch import nn

from regard.embedding.tokens import TokenEmbedding
from regard.models.config import TransformerConfig
from regard.models.heads import TokenOutput

ADDED = ("self_attention.output.weight", "cross_attention.output.weight", "feedforward.down.weight")
"""What makes the vectors that a sublayer adds to the stream."""


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

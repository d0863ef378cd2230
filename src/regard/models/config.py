"""A whole Transformer as one frozen, validated value; what `config.json` holds."""

from typing import Literal

from pydantic import Field, model_validator

from regard.blocks.config import BlockConfig
from regard.errors import ConfigError

Architecture = Literal["encoder-decoder", "encoder", "decoder"]
PositionScheme = Literal["sinusoidal", "learnt", "rotary", "alibi", "t5", "none"]


class TransformerShape(BlockConfig):
    """Left alone, the plain Transformer of 2017 at a small size: post-norm, ReLU, sinusoidal, scaled embeddings."""

    architecture: Architecture = Field("encoder-decoder", description="which stacks there are")
    layers: int = Field(2, ge=1, description="layers of each stack")
    encoder_layers: int | None = Field(None, ge=1, description="of the encoder, where it has another number")
    positions: PositionScheme = Field("sinusoidal", description="how tokens know where they stand")
    longest: int = Field(512, ge=1, description="how many positions `learnt` learns; other schemes have no limit")
    tied: bool = Field(True, description="the output reads the embedding table backwards")
    scaled: bool = Field(True, description="embeddings are multiplied by √width")

    @model_validator(mode="after")
    def _positions_fit(self) -> "TransformerShape":
        if self.positions == "sinusoidal" and self.width % 2:
            raise ConfigError(
                f"sinusoidal positions come in pairs and a width of {self.width} is odd", "use an even width"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ConfigError(
                f"rotary positions turn pairs and a head width of {self.head_width} is odd",
                "choose width and heads so that width ÷ heads is even",
            )
        return self


class TransformerConfig(TransformerShape):
    """A shape with the vocabulary it is built for."""

    vocabulary: int = Field(ge=1, description="entries of the vocabulary; source and target share it")

"""What a layer is made of, as one frozen and validated value that every block reads."""

from typing import Literal

from pydantic import Field, model_validator

from regard.attention.multihead import check_heads
from regard.attention.similarity import check_similarity
from regard.config import Config

MOST = 2**27
"""No width, vocabulary or length is larger: products of four such numbers would not fit into 64 bits."""


class BlockConfig(Config):
    """One Transformer layer. The defaults are the 2017 paper's choices at a small size."""

    width: int = Field(128, ge=1, le=MOST, description="size of a token's vector")
    heads: int = Field(4, ge=1, le=MOST, description="attention heads; they split the width")
    key_value_heads: int | None = Field(
        None, ge=1, le=MOST, description="fewer shared key/value heads; as many as heads if absent"
    )
    head_width: int | None = Field(
        None, ge=1, le=MOST, description="width of one head, where heads do not split the width"
    )
    similarity: str = Field("scaled_dot", description="how queries and keys are compared")
    feedforward: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "swiglu"] = Field(
        "relu", description="the position-wise network; _tanh is GELU's tanh approximation"
    )
    feedforward_width: int | None = Field(None, ge=1, le=MOST, description="its inner width; 4 × width if absent")
    norm: Literal["layer", "rms", "none"] = Field(
        "layer", description="layer normalisation, root mean square, or nothing in its place"
    )
    epsilon: float | None = Field(
        None, gt=0, description="what a norm adds below its root; 1e-5 for layer and 1e-6 for rms if absent"
    )
    norm_placement: Literal["post", "pre"] = Field("post", description="after the residual sum, or before the sublayer")
    residual: bool = Field(True, description="what a sublayer makes is added to what it read, or takes its place")
    bias: bool = Field(True, description="linear layers add a learnt vector")
    dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="on embeddings, sublayer outputs and inside the feed-forward"
    )
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the attention weights")

    @model_validator(mode="after")
    def _parts_fit(self) -> "BlockConfig":
        check_heads(self.width, self.heads, self.key_value_heads or self.heads, self.head_width)
        check_similarity(self.similarity)
        return self


def head_width(config: BlockConfig) -> int:
    """One head's part of the width, or what the config says instead."""
    return config.head_width or config.width // config.heads

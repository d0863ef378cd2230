"""What a layer is made of, as one frozen and validated value that every block reads."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, model_validator

import regard.attention.efficient  # noqa: F401  (registers every mechanism)
from regard.attention.exact import ExactShape
from regard.attention.mechanism import MECHANISMS, MechanismShape, read_mechanism, read_mechanisms
from regard.attention.similarity import check_similarity
from regard.attention.slot import Site, Slot, Stack, check_heads
from regard.config import Config
from regard.errors import ConfigError
from regard.layers.norm import NormKind
from regard.layers.residual import Placement

MOST = 2**27
"""No width, vocabulary or length is larger: products of four such numbers would not fit into 64 bits."""


OneMechanism = Annotated[SerializeAsAny[MechanismShape], PlainValidator(read_mechanism)]
Mechanisms = Annotated[
    SerializeAsAny[MechanismShape] | tuple[SerializeAsAny[MechanismShape], ...], PlainValidator(read_mechanisms)
]
"""One for every layer, or a list that the layers go through, again and again."""


class BlockConfig(Config):
    """One Transformer layer. The defaults are the 2017 paper's choices at a small size."""

    unions: ClassVar[Mapping[str, Mapping[str, type[Config]]]] = {
        "attention": MECHANISMS,
        "encoder_attention": MECHANISMS,
        "cross_attention": MECHANISMS,
    }

    width: int = Field(128, ge=1, le=MOST, description="size of a token's vector")
    heads: int = Field(4, ge=1, le=MOST, description="attention heads; they split the width")
    key_value_heads: int | None = Field(
        None, ge=1, le=MOST, description="fewer shared key/value heads; as many as heads if absent"
    )
    head_width: int | None = Field(
        None, ge=1, le=MOST, description="width of one head, where heads do not split the width"
    )
    attention: Mechanisms = Field(
        ExactShape(), description="how layers attend: a mechanism, or a list that they go through, again and again"
    )
    encoder_attention: Mechanisms | None = Field(
        None, description="how the encoder's layers attend, where they do otherwise"
    )
    cross_attention: OneMechanism = Field(ExactShape(), description="how a decoder attends to what the encoder read")
    similarity: str = Field("scaled_dot", description="how queries and keys are compared")
    feedforward: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "swiglu"] = Field(
        "relu", description="the position-wise network; _tanh is GELU's tanh approximation"
    )
    feedforward_width: int | None = Field(None, ge=1, le=MOST, description="its inner width; 4 × width if absent")
    feedforward_chunks: int = Field(
        1, ge=1, le=MOST, description="pieces that a text goes through it in, one after another: less memory"
    )
    norm: NormKind = Field(
        "layer",
        description="layer normalisation, root mean square, the same with 1 + its weight, or nothing in its place",
    )
    epsilon: float | None = Field(
        None, gt=0, description="what a norm adds below its root; 1e-5 for layer and 1e-6 for others if absent"
    )
    norm_placement: Placement = Field(
        "post", description="after the residual sum, before the sublayer, or before it and after it"
    )
    residual: bool | Literal["reversible"] = Field(
        True,
        description="what a sublayer makes is added to what it read, or takes its place; reversible: it is added to "
        "the other of two streams, and training keeps the activations of one layer alone",
    )
    bias: bool = Field(True, description="linear layers add a learnt vector")
    dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="on embeddings, sublayer outputs and inside the feed-forward"
    )
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the attention weights")

    @model_validator(mode="after")
    def _parts_fit(self) -> "BlockConfig":
        check_heads(self.width, self.heads, self.key_value_heads or self.heads, self.head_width)
        check_similarity(self.similarity)
        if self.residual == "reversible" and self.norm_placement == "post" and self.norm != "none":
            raise ConfigError(
                "a reversible sum is taken back and a norm behind it (norm_placement = 'post') cannot be",
                "use model.norm_placement=pre",
            )
        return self

    @property
    def rotates(self) -> bool:
        """Whether positions turn queries and keys."""
        return False

    @property
    def adds_to_scores(self) -> bool:
        """Whether positions add to the scores."""
        return False

    @property
    def most_tokens(self) -> int | None:
        """The longest text there can be, where there is one."""
        return None

    def mechanisms(self, stack: Stack) -> tuple[MechanismShape, ...]:
        """How the self-attentions of this stack attend; its layers go through them, again and again."""
        own = self.encoder_attention if stack == "encoder" else None
        found = self.attention if own is None else own
        return found if isinstance(found, tuple) else (found,)

    def mechanism(self, site: Site) -> MechanismShape:
        """How the attention there attends."""
        if site.kind == "cross":
            return self.cross_attention
        listed = self.mechanisms(site.stack)
        return listed[site.index % len(listed)]

    @property
    def attending(self) -> tuple[MechanismShape, ...]:
        """Every mechanism that it names."""
        return (*self.mechanisms("encoder"), *self.mechanisms("decoder"), self.cross_attention)

    def slot(self, site: Site) -> Slot:
        """What the attention there has to be."""
        cross = site.kind == "cross"
        return Slot(
            width=self.width,
            heads=self.heads,
            key_value_heads=self.key_value_heads or self.heads,
            head_width=head_width(self),
            bias=self.bias,
            dropout=self.attention_dropout,
            similarity=self.similarity,
            causal=site.stack == "decoder" and not cross,
            cross=cross,
            rotary=self.rotates and not cross,
            score_bias=self.adds_to_scores and not cross,
            epsilon=self.epsilon,
            max_tokens=self.most_tokens,
            site=site,
        )

    def check_layers(self, stack: Stack, layers: int, *, cross: bool) -> None:
        """Raise ConfigError where a layer of this stack cannot attend as it is asked to."""
        listed = self.mechanisms(stack)
        if not 0 < len(listed) <= layers:
            raise ConfigError(
                f"attention lists {len(listed)} mechanisms for {layers} layers of the {stack}",
                "list one for each, or fewer, which the layers go through again and again",
            )
        sites = [Site(stack, index, "self") for index in range(len(listed))]
        for site in (*sites, Site(stack, 0, "cross")) if cross else sites:
            self.mechanism(site).check(self.slot(site))


def head_width(config: BlockConfig) -> int:
    """One head's part of the width, or what the config says instead."""
    return config.head_width or config.width // config.heads

"""A whole Transformer as one frozen, validated value; what `config.json` holds."""

from typing import Literal

from pydantic import Field, model_validator

from regard.attention.rotary import PLAIN, RotaryConfig
from regard.attention.slot import Stack
from regard.blocks.config import MOST, BlockConfig, head_width
from regard.errors import ConfigError
from regard.models.network import Head, NetworkConfig, NetworkShape, Reads

Architecture = Literal["encoder_decoder", "encoder", "decoder"]
PoolerKind = Literal["tanh", "relu"]
PositionScheme = Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "alibi", "t5", "none"]

MOST_LAYERS = 10_000
"""No model is deeper; one of a billion layers is a config gone wrong, and would take hours to refuse otherwise."""


class TransformerShape(BlockConfig, NetworkShape):
    """Left alone, the plain Transformer of 2017 at a small size: post-norm, ReLU, sinusoidal, scaled embeddings."""

    kinds = "architecture 'decoder' or 'encoder_decoder'"

    name: Literal["transformer"] = Field("transformer", description="the kind of network")
    architecture: Architecture = Field("encoder_decoder", description="which stacks there are")
    layers: int = Field(2, ge=1, le=MOST_LAYERS, description="layers of each stack")
    encoder_layers: int | None = Field(
        None, ge=1, le=MOST_LAYERS, description="of the encoder, where it has another number"
    )
    positions: PositionScheme = Field("sinusoidal", description="how tokens know where they stand")
    max_positions: int = Field(
        512, ge=1, le=MOST, description="how many positions `learned` learns; other schemes have no limit"
    )
    rotary: RotaryConfig = Field(PLAIN, description="how `rotary` turns")
    relative_buckets: int = Field(32, ge=4, le=MOST, description="classes of distance that `t5` tells apart")
    relative_distance: int = Field(128, ge=5, le=MOST, description="distance from which on `t5` tells none apart")
    segments: int = Field(
        0, ge=0, le=MOST, description="kinds of segments an encoder tells apart, such as question and passage"
    )
    embedding_norm: bool = Field(False, description="embeddings are normalised before the first layer of each stack")
    init: Literal["glorot", "normal", "mimetic"] = Field(
        "glorot",
        description="how weights begin; normal: σ = 0.02, less for what is added to the stream, as in GPT-2; "
        "mimetic: heads begin by looking at what is like a token",
    )
    head: Head = Field("tokens", description="what the last vectors become")
    pooled: bool = Field(False, description="there is one vector for a whole text, as in BERT")
    pooling: Literal["first", "mean"] = Field(
        "first", description="the vector of a whole text: its first token's, or the mean of all its tokens'"
    )
    pooler: PoolerKind = Field("tanh", description="what the pooled vector goes through last")
    ngram_buckets: int = Field(
        0,
        ge=0,
        le=MOST,
        description="buckets of hashed tokens and pairs that a linear map reads beside the layers, for labels; 0: none",
    )
    tie_embeddings: bool = Field(True, description="the output layer shares the weights of the embedding")
    scale_embeddings: bool = Field(True, description="embeddings are multiplied by √width")
    scale_output: bool = Field(False, description="what the output reads is divided by √width, as in T5")
    output_softcap: float | None = Field(
        None, gt=0, description="no logit over the vocabulary is beyond it: c · tanh(logit / c)"
    )
    output_bias: bool = Field(False, description="the output adds a learnt number for each token")

    @property
    def reads(self) -> tuple[Reads, ...]:
        return ("tokens", "source") if self.architecture == "encoder_decoder" else ("tokens",)

    @property
    def decodes(self) -> bool:
        return self.architecture != "encoder" and self.head != "none"

    @property
    def outputs(self) -> Head:
        return self.head

    @property
    def position_limit(self) -> int | None:
        stacks: tuple[Stack, ...] = ("encoder", "decoder")
        unused = {"decoder": "encoder", "encoder": "decoder"}.get(self.architecture)
        limits = [one.position_limit for stack in stacks if stack != unused for one in self.mechanisms(stack)]
        return min((limit for limit in (self.most_tokens, *limits) if limit is not None), default=None)

    @property
    def reads_packed(self) -> bool:
        able = all(one.abilities.documents for one in self.mechanisms("decoder"))
        return self.architecture == "decoder" and able

    @property
    def segment_kinds(self) -> int:
        return self.segments

    @property
    def words(self) -> str:
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        if self.reads_source:
            layers = f"{self.encoder_layers or self.layers} + {self.layers} layers"
        return f"{self.architecture}, {layers}, width {self.width}, {self.heads} heads"

    def idle(self) -> dict[str, str]:
        read = {"max_positions": "learned", "relative_buckets": "t5", "relative_distance": "t5", "rotary": "rotary"}
        found = {
            key: f"use model.positions={scheme}, or leave it out"
            for key, scheme in read.items()
            if self.positions != scheme
        }
        if not self.reads_source:
            found["encoder_layers"] = "use model.layers, which are all there are, or leave it out"
            found["cross_attention"] = "only an encoder–decoder has it: leave it out"
            found["encoder_attention"] = "use model.attention, which is that of all layers, or leave it out"
        if self.head not in ("tokens", "masked"):
            reason = f"head {self.head!r} reads no table of tokens: leave it out"
            found |= dict.fromkeys(("tie_embeddings", "scale_output", "output_softcap", "output_bias"), reason)
        if self.norm == "none":
            reason = "use model.norm=layer, rms or rms_offset, or leave it out"
            found |= dict.fromkeys(("epsilon", "norm_placement", "embedding_norm"), reason)
        if self.head == "labels":
            found["pooled"] = "head 'labels' pools in any case: leave it out"
        elif not self.pooled:
            found["pooler"] = "only a pooled vector goes through it: leave it out"
        if self.head != "labels":
            found["pooling"] = "only head 'labels' reads one vector of a text: leave it out"
        fields = type(self).model_fields
        return {key: why for key, why in found.items() if getattr(self, key) != fields[key].default}

    @property
    def rotates(self) -> bool:
        return self.positions == "rotary"

    @property
    def adds_to_scores(self) -> bool:
        return self.positions in ("alibi", "t5")

    @property
    def most_tokens(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    @model_validator(mode="after")
    def _layers_can_attend(self) -> "TransformerShape":
        if self.architecture != "decoder":
            self.check_layers("encoder", self.encoder_layers or self.layers, cross=False)
        if self.architecture != "encoder":
            self.check_layers("decoder", self.layers, cross=self.reads_source)
        return self

    @model_validator(mode="after")
    def _positions_fit(self) -> "TransformerShape":
        if self.positions in ("sinusoidal", "sinusoidal_halves") and self.width % 2:
            raise ConfigError(
                f"sinusoidal positions come in pairs and a width of {self.width} is odd", "use an even width"
            )
        if self.positions == "rotary" and head_width(self) % 2:
            raise ConfigError(
                f"rotary positions turn pairs and a head width of {head_width(self)} is odd",
                "choose width and heads so that width ÷ heads is even",
            )
        return self

    @model_validator(mode="after")
    def _encoder_has_what_it_alone_can(self) -> "TransformerShape":
        wanted = {
            f"head = {self.head!r}": self.head not in ("tokens", "none"),
            "a pooled vector": self.pooled,
            f"segments = {self.segments}": self.segments > 0,
        }
        for what, given in wanted.items():
            if given and self.architecture != "encoder":
                raise ConfigError(
                    f"{what} is an encoder's and the architecture is {self.architecture!r}",
                    "use architecture 'encoder', or leave it out",
                )
        return self

    @model_validator(mode="after")
    def _ngrams_lead_to_labels(self) -> "TransformerShape":
        if self.ngram_buckets and self.head != "labels":
            raise ConfigError(
                f"ngram_buckets = {self.ngram_buckets} lead to labels and the head is {self.head!r}",
                "use head 'labels', or leave ngram_buckets out",
            )
        return self


def _settled(config: TransformerShape) -> dict[str, object]:
    """What the values that may be absent then are."""
    return {
        "key_value_heads": config.key_value_heads or config.heads,
        "head_width": head_width(config),
        "feedforward_width": config.feedforward_width or 4 * config.width,
        "epsilon": config.epsilon or (1e-5 if config.norm == "layer" else 1e-6),
        "encoder_layers": config.encoder_layers or config.layers,
    }


class TransformerConfig(TransformerShape, NetworkConfig):
    """A shape with the vocabulary it is built for."""

    family: str | None = Field(None, description="of which family a loaded model is: what it is written as again")

    @model_validator(mode="after")
    def _labels_have_names(self) -> "TransformerConfig":
        if (self.head == "labels") != bool(self.labels):
            raise ConfigError(
                f"head = {self.head!r} with {len(self.labels)} names of classes",
                "name the classes where the head is 'labels', and only there",
            )
        return self

    @model_validator(mode="after")
    def _named_ids_are_there(self) -> "TransformerConfig":
        beyond = [one for mechanism in self.attending for one in mechanism.named_ids if one >= self.vocabulary]
        if beyond:
            raise ConfigError(
                f"attention names token {max(beyond)} and the vocabulary has {self.vocabulary}",
                f"use ids from 0 to {self.vocabulary - 1}",
            )
        return self

    @property
    def made_for(self) -> int:
        return self.max_positions

    def with_head(self, outputs: Head, labels: tuple[str, ...] = ()) -> "TransformerConfig":
        return TransformerConfig.model_validate(self.model_dump() | {"head": outputs, "labels": labels})

    def settled(self) -> "TransformerConfig":
        """The same model with nothing left to a default."""
        return self.model_copy(update=_settled(self))


def transformer_config(config: NetworkConfig) -> TransformerConfig:
    """The config of a network that must be a Transformer: what other libraries' files describe."""
    if not isinstance(config, TransformerConfig):
        raise ConfigError(f"a {config.name} network has no form that other libraries read", "keep it as Regard's")
    return config

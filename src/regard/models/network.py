"""The Network contract: what a model must be for the rest of the house to train, decode, watch, save and measure it.

    shape      what a recipe's [model] says of it: a frozen config with a `name` of its own
    config     the shape with what it is built for: the vocabulary, the classes, the longest text of its training
    network    a module built from the config: `Inputs` in, logits out, and what decoding needs

`register_network(Shape, Network)` makes one known: to recipes (`[model] name`), to checkpoints (`model_type`), to the
laws, to `size`. Nothing outside this folder asks which network it has; it asks what the network can do:

    reads            tokens alone, or also a source
    decodes          whether it can write text, token by token
    outputs          what the head gives: logits over the vocabulary, over classes …
    position_limit   tokens beyond which it has no position
    reads_packed     whether a row may hold several texts, parted by `documents`
"""

import os.path
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field, create_model, field_validator
from torch import Tensor, nn

from regard.axes import Hidden, Logits, RowIds, RowLogits
from regard.blocks.config import MOST
from regard.config import Config, refuse_foreign_keys
from regard.data.batching import Inputs
from regard.embedding.tokens import TokenEmbedding
from regard.errors import ConfigError, InputError, choose
from regard.models.adapter_table import AdapterTable
from regard.models.estimates import Estimates
from regard.plugins import load_plugins

Head = Literal["tokens", "masked", "labels", "spans", "none"]
Reads = Literal["tokens", "source"]


class NetworkShape(Config):
    """What a recipe says of a network. Derive from it, give `name` a default, and say what the network can do."""

    name: str = Field(description="the kind of network")
    vectors: str | None = Field(
        None, min_length=1, description="a file of word vectors that tokens which are words begin with"
    )

    kinds: ClassVar[str] = "other networks"
    """What would do what this one cannot, in words for a remedy."""

    @field_validator("vectors", mode="after")
    @classmethod
    def _absolute_vectors(cls, value: str | None) -> str | None:
        return None if value is None else os.path.abspath(os.path.expanduser(value))

    @property
    def reads(self) -> tuple[Reads, ...]:
        """What it reads."""
        return ("tokens",)

    @property
    def decodes(self) -> bool:
        """Whether it writes text."""
        return True

    @property
    def outputs(self) -> Head:
        """What its head gives."""
        return "tokens"

    @property
    def position_limit(self) -> int | None:
        """How many tokens have a position; None where there is no limit."""
        return None

    @property
    def reads_packed(self) -> bool:
        """Whether it reads rows that hold several texts."""
        return False

    @property
    def segment_kinds(self) -> int:
        """How many kinds of segments it tells apart; 0 where it tells none apart."""
        return 0

    @property
    def reads_source(self) -> bool:
        """Whether it reads a source besides the tokens."""
        return "source" in self.reads

    @property
    def words(self) -> str:
        """What it is, in a few words for people."""
        return self.name

    @property
    def begins_in(self) -> str | None:
        """The folder whose weights it begins with, where it does not begin with drawn ones."""
        return None

    def idle(self) -> dict[str, str]:
        """Keys that were given a value and change nothing beside the others, each with what to do instead."""
        return {}

    def built_for(self, vocabulary: int, labels: tuple[str, ...] = ()) -> "NetworkConfig":
        """The whole config."""
        return registered(self.name).config(
            **self.model_dump(exclude={"vectors"}), vocabulary=vocabulary, labels=labels
        )


class Checkpoint(NetworkShape):
    """The network in a folder, Regard's or Hugging Face's, its weights and its tokenizer: where fine-tuning begins.

    Everything else about it is in the folder; what it can do is known once that is read.
    """

    name: Literal["checkpoint"] = Field("checkpoint", description="the network of a folder", exclude=True)
    vectors: str | None = Field(None, description="none: the folder's own are begun with", exclude=True)
    folder: str = Field(alias="from", min_length=1, description="the folder of a trained model to begin with")
    dropout: float | None = Field(None, ge=0.0, lt=1.0, description="in place of the folder's")
    adapter: AdapterTable | None = Field(
        None, description="small maps that learn beside the folder's network, which stays as it is"
    )

    @field_validator("folder", mode="after")
    @classmethod
    def _absolute_folder(cls, value: str) -> str:
        return os.path.abspath(os.path.expanduser(value))

    @field_validator("adapter", mode="before")
    @classmethod
    def _kind_alone(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @property
    def begins_in(self) -> str | None:
        return self.folder

    def idle(self) -> dict[str, str]:
        return {} if self.vectors is None else {"vectors": "leave it out: the folder's own vectors are begun with"}

    @property
    def reads_packed(self) -> bool:
        return True

    @property
    def words(self) -> str:
        return f"the network in {self.folder}"


class NetworkConfig(NetworkShape):
    """A shape with what it is built for."""

    vocabulary: int = Field(ge=1, le=MOST, description="entries of the vocabulary; source and target share it")
    labels: tuple[str, ...] = Field((), description="the names of the classes, for head 'labels'")
    trained_length: int | None = Field(
        None, ge=1, le=MOST, description="tokens of the longest text it was trained on at once, where that is known"
    )

    @property
    def context(self) -> int | None:
        """How many tokens it reads well at once: as many as in training, and no more than have a position."""
        return min((known for known in (self.trained_length, self.position_limit) if known is not None), default=None)

    @property
    def made_for(self) -> int:
        """Tokens of the texts that its size is told of, where nothing else is said."""
        return self.context or 512

    def with_head(self, outputs: Head, labels: tuple[str, ...] = ()) -> "NetworkConfig":
        """The same network with another head, where it can have one."""
        if outputs != self.outputs:
            raise ConfigError(f"{self.words} has no head that gives {outputs!r}", "begin with another model")
        return self.model_copy(update={"labels": labels})

    def build(self) -> "Network":
        """The network of this config, its weights drawn."""
        return registered(self.name).network(self)


class Network(nn.Module, ABC):
    """A model as everything else sees it. One that does not decode leaves out `start` and `extend`.

    Laws: padding and neighbours change nothing; where it decodes, no token sees a later one, and `start` with steps
    gives what `forward` does (`inspection/laws` has them all).
    """

    config: NetworkConfig
    embedding: TokenEmbedding
    parts: ClassVar[tuple[str, ...]] = ()
    """The parts that its parameters are counted by, in order; those that `part` names beside these follow."""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights."""
        return next(self.parameters()).dtype

    def forward(self, inputs: Inputs) -> Float[Tensor, "batch *places out"]:
        """What the head makes of the vectors: of a token that is read by a decoder, the logits of the next one."""
        return self.logits(self.hidden(inputs))

    @abstractmethod
    def hidden(self, inputs: Inputs) -> Hidden:
        """The last vectors, one for each token."""

    @abstractmethod
    def logits(self, hidden: Float[Tensor, "batch tokens width"]) -> Logits:
        """From the last vectors to what the head gives."""

    def start(self, inputs: Inputs) -> Any:
        """Consume the source and all of the prompt but its last token, which the first `step` gets."""
        raise InputError(f"a {self.config.name} network does not decode", f"use {self.config.kinds} to generate text")

    def step(self, ids: RowIds, state: Any) -> tuple[RowLogits, Any]:
        """One token further in every row."""
        logits, state = self.extend(ids[:, None], state)
        return logits[:, -1], state

    def extend(self, ids: Int[Tensor, "rows tokens"], state: Any) -> tuple[Float[Tensor, "rows tokens vocab"], Any]:
        """Several tokens further at once, with the logits after each."""
        raise InputError(f"a {self.config.name} network does not decode", f"use {self.config.kinds} to generate text")

    def in_place_unsupported(self) -> str | None:
        """Why it has no Stepper that writes in place (see in_place.py); None where it has."""
        return f"a {self.config.name} network has no decoder in place" if self.config.decodes else "it does not decode"

    def in_place(self) -> Any:
        """A Stepper of the same weights that writes into memory that never moves, where there is one."""
        reason = self.in_place_unsupported()
        if reason is not None:
            raise InputError(reason, "decode with the model itself")

    def vectors(self, ids: Int[Tensor, "rows tokens"], state: Any) -> tuple[Float[Tensor, "rows tokens width"], Any]:
        """Several tokens further at once, with the last vectors in place of the logits that `extend` makes of them."""
        raise InputError(f"a {self.config.name} network tells no vectors of what it writes", "use another strategy")

    def part(self, parameter: str) -> str:
        """Of which part a parameter is, by its name; those of `embedding` are looked up, and not multiplied by."""
        return parameter.split(".", maxsplit=1)[0]

    def estimates(self, context: int) -> Estimates:
        """What it takes for texts of this length: here a multiplication and an addition for each weight of a matrix."""
        named = self.named_parameters()
        met = sum(one.numel() for name, one in named if one.dim() >= 2 and self.part(name) != "embedding")
        return Estimates(work=2.0 * met, formulas=(("work", "2 × the weights of matrices, all there is to know here"),))


@dataclass(frozen=True)
class Registered:
    """A network that is known by name."""

    shape: type[NetworkShape]
    config: type[NetworkConfig]
    network: Callable[[Any], Network]


NETWORKS: dict[str, Registered] = {}
"""Every network by the name that recipes and folders call it."""


def register_network(
    shape: type[NetworkShape], network: Callable[[Any], Network], config: type[NetworkConfig] | None = None
) -> None:
    """Make a network known by the default of its shape's `name`: `network` builds one from its config.

    The config is the shape with a vocabulary, classes and a trained length; it is derived where none is given. A saved
    model names its network and does not hold its code: register it again before loading one.
    """
    name = shape.model_fields["name"].default
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(
            f"{shape.__name__} has no name a recipe could say", 'give it one: name: Literal["mine"] = "mine"'
        )
    if name in NETWORKS:
        raise ConfigError(f"network {name!r} is there already", "choose another name")
    if config is None:
        derived = create_model(shape.__name__.removesuffix("Shape") + "Config", __base__=(shape, NetworkConfig))
        config = cast(type[NetworkConfig], derived)
    NETWORKS[name] = Registered(shape, config, network)


def registered(name: str) -> Registered:
    """The network of this name; an unknown one is refused with the nearest known."""
    load_plugins()
    if name not in NETWORKS:
        raise ConfigError(f"network {name!r} is unknown", choose(name, NETWORKS))
    return NETWORKS[name]


def read_shape(values: Mapping[str, Any]) -> NetworkShape:
    """The shape that a recipe's [model] describes; a Transformer's where no name is given."""
    if "from" in values:
        return Checkpoint.model_validate(dict(values))
    name = str(values.get("name", "transformer"))
    found = registered(name).shape
    if "adapter" in values:
        raise ConfigError(
            f"key 'adapter' has no effect on a {name} network that is drawn anew",
            "name the folder it stands beside: model.from=FOLDER",
        )
    refuse_foreign_keys(values, name, {other: one.shape for other, one in NETWORKS.items()})
    return found.model_validate(dict(values))

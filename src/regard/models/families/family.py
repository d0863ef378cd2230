"""What a family of models is: which parts it is made of, how large its members are, and how its publishers name things.

Everything but a few lines of each page is data that is read in both directions: `keys` from our config to theirs,
`names` from our parameters to theirs. So what is loaded can be written again, and nothing is left over unnoticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ConfigError
from regard.models.config import Head, TransformerConfig
from regard.models.families.reading import architecture, labels, value_of

Values = dict[str, Any]


@dataclass(frozen=True)
class Slot:
    """Where a parameter of ours is in theirs, if it does not simply have another name."""

    name: str
    part: int = 0
    of: int = 1
    """Several of ours stand one below the other in one of theirs."""
    transposed: bool = False
    """Their matrix is [in, out]."""
    skip_rows: int = 0
    """So many first rows of theirs are never used."""
    squeeze: bool = False
    """Theirs is a matrix of one row."""


Names = Mapping[str, str | Slot]
"""From our modules and parameters to theirs; `*` is the number of a layer."""


@dataclass(frozen=True)
class Family:
    """One page: parts, sizes, objective, names."""

    name: str
    model_type: str
    """What their config.json calls it."""
    paper: str
    objective: str
    """The task it is trained by before any other."""
    shape: Values
    """What every member has, as values of our config."""
    sizes: Mapping[str, Values]
    """The named members: the values that make them."""
    keys: Mapping[str, tuple[str, Any]]
    """Our config key → theirs of the same meaning, and what theirs is where it is absent."""
    fixed: Mapping[str, Any]
    """Their keys that we have for one value only."""
    architectures: Mapping[Head, str]
    """Their class for each head."""
    body: str
    """What their names begin with; absent in a file of the body alone."""
    names: Callable[[TransformerConfig], Names]
    copies: Mapping[str, str] = field(default_factory=dict)
    """Their names that repeat another one of theirs where weights are tied."""
    dropped: tuple[str, ...] = ()
    """Regular expressions of what is in their files and is no weight of these models."""
    from_hf_extra: Callable[[Values], Values] = lambda theirs: {}
    """Our values that are no plain copies of theirs."""
    to_hf_extra: Callable[[TransformerConfig], Values] = lambda config: {}
    """And back."""

    def config(self, size: str) -> TransformerConfig:
        """The member of that name."""
        return TransformerConfig(**(self.shape | self.sizes[size]))

    def read(self, theirs: Values, *, pooled: bool = False) -> TransformerConfig:
        """Our config of their config.json; `pooled`: their weights have a pooler."""
        if theirs.get("quantization_config"):
            raise ConfigError("the weights are quantised", "take the model in float32, float16 or bfloat16")
        for key, value in self.fixed.items():
            if theirs.get(key, value) != value:
                raise ConfigError(
                    f"{key} = {theirs[key]!r} is not known of {self.name} models here",
                    f"this version reads those with {key} = {value!r}",
                )
        values = self.shape | {ours: value_of(theirs, key, default) for ours, (key, default) in self.keys.items()}
        head = self._head(theirs)
        if head == "labels":
            values["labels"] = labels(theirs)
        return TransformerConfig(**(values | {"head": head, "pooled": pooled} | self.from_hf_extra(theirs)))

    def write(self, config: TransformerConfig) -> Values:
        """Their config.json of our config; raise ConfigError if no such model of theirs exists."""
        for key, back in self.lacking(config).items():
            raise ConfigError(
                f"{key} = {getattr(config.settled(), key)!r} cannot be said of a {self.name} model, which has {back!r}",
                "convert to a family that has it, or train a model of this family",
            )
        return self._theirs(config.settled())

    def lacking(self, config: TransformerConfig) -> Values:
        """What a model of this family would have in slot of what the config has."""
        config = config.settled()
        theirs = self._theirs(config)
        try:
            again = self.read(theirs, pooled=config.pooled)
        except ConfigError as error:
            raise ConfigError(f"this model is no {self.name} model: {error.problem}", error.remedy) from error
        written, ours = again.settled().model_dump(), config.model_dump()
        return {key: written[key] for key in ours if ours[key] != written[key] and key not in _OF_TRAINING}

    def _theirs(self, config: TransformerConfig) -> Values:
        if config.head not in self.architectures:
            raise ConfigError(
                f"a {self.name} model with head = {config.head!r} does not exist",
                f"use {' or '.join(map(repr, self.architectures))}",
            )
        if config.positions == "rotary" and config.trained_length is not None:  # their files have one number for both
            config = config.model_copy(update={"max_positions": config.trained_length})
        theirs = {key: getattr(config, ours) for ours, (key, _) in self.keys.items()}
        theirs |= {"model_type": self.model_type, "architectures": [self.architectures[config.head]], **self.fixed}
        if config.labels:
            theirs["id2label"] = {str(index): name for index, name in enumerate(config.labels)}
            theirs["label2id"] = {name: index for index, name in enumerate(config.labels)}
        return theirs | self.to_hf_extra(config)

    def _head(self, theirs: Values) -> Head:
        given = architecture(theirs)
        for head, name in self.architectures.items():
            if given is not None and (given == name or (head, given) in _ALSO):
                return head
        if given is not None:
            known = ", ".join(self.architectures.values())
            raise ConfigError(f"a {given} is not known here", f"of {self.name} models this version reads {known}")
        return next(iter(self.architectures))


_OF_TRAINING = ("init", "dropout", "attention_dropout", "max_positions", "trained_length")
"""What changes nothing that a trained model computes, but for how long a text may be."""
_ALSO = {("masked", "BertForPreTraining"), ("tokens", "GPT2Model"), ("tokens", "LlamaModel"), ("tokens", "MarianModel")}

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their names of activations → ours. The first name of ours is the one that is written."""


def hf_activation(ours: str) -> str:
    """Theirs of ours."""
    return next((theirs for theirs, known in ACTIVATIONS.items() if known == ours), ours)


def in_each_layer(stack: str, theirs: str, names: Mapping[str, str | Slot]) -> dict[str, str | Slot]:
    """Names of one layer, as names in all layers of a stack."""
    found: dict[str, str | Slot] = {}
    for ours, slot in names.items():
        whole = Slot(slot) if isinstance(slot, str) else slot
        found[f"{stack}.layers.*.{ours}"] = Slot(
            f"{theirs}.*.{whole.name}", whole.part, whole.of, whole.transposed, whole.skip_rows, whole.squeeze
        )
    return found

"""What a family of models is: which parts it is made of, how large its members are, and how its publishers name things.

Everything but a few lines of each page is data that is read in both directions, from Regard's to Hugging Face's: `keys`
of configs, `names` of parameters. So what is loaded can be written again, and nothing is left over unnoticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.reading import architecture, labels, refuse_patterns, value_of
from regard.models.network import Head

Values = dict[str, Any]


@dataclass(frozen=True)
class TensorSlot:
    """Where Regard's parameter is in Hugging Face's files, if it does not simply have another name."""

    name: str
    part: int = 0
    of: int = 1
    """Several of Regard's stand one below the other in one of Hugging Face's."""
    transposed: bool = False
    """Hugging Face's matrix is [in, out]."""
    skip_rows: int = 0
    """So many first rows of Hugging Face's are never used, and written as zeros."""
    squeeze: bool = False
    """Hugging Face's is a matrix of one row."""


Names = Mapping[str, str | TensorSlot]
"""From Regard's modules and parameters to Hugging Face's; `*` is the number of a layer."""


@dataclass(frozen=True)
class Family:
    """One page: parts, sizes, objective, names."""

    name: str
    model_type: str
    """What config.json calls it."""
    paper: str
    objective: str
    """The task it is trained by before any other."""
    shape: Values
    """What every member has, as values of Regard's config."""
    sizes: Mapping[str, Values]
    """The named members: the values that make them."""
    keys: Mapping[str, tuple[str, Any]]
    """Regard's config key → Hugging Face's of the same meaning, and what that is where it is absent."""
    fixed: Mapping[str, Any]
    """Hugging Face's keys that Regard reads with one value only."""
    architectures: Mapping[Head, str]
    """Hugging Face's class for each head."""
    body: str
    """What the names of tensors begin with; absent in a file of the body alone."""
    names: Callable[[TransformerConfig], Names]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Hugging Face's other names of keys, which win where both are there."""
    patterns: tuple[str, ...] = ()
    """Hugging Face's keys of what each layer sees that are read: `from_hf_extra` makes the layers of them."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Names of tensors that repeat another one where weights are tied."""
    dropped: tuple[str, ...] = ()
    """Regular expressions of what is in Hugging Face's files and is no weight of these models."""
    zero: tuple[str, ...] = ()
    """Names of tensors that are all zero where a file lacks them."""
    from_hf_extra: Callable[[Values], Values] = lambda hf: {}
    """Regard's values that are no plain copies of Hugging Face's."""
    to_hf_extra: Callable[[TransformerConfig], Values] = lambda config: {}
    """And back."""

    def fits(self, config: TransformerConfig) -> bool:
        """Whether its members have the same stacks."""
        return bool(self.shape["architecture"] == config.architecture)

    def config(self, size: str) -> TransformerConfig:
        """The member of that name."""
        return TransformerConfig(**(self.shape | self.sizes[size]))

    def read(self, hf: Values, *, pooled: bool = False) -> TransformerConfig:
        """Regard's config of Hugging Face's config.json; `pooled`: the weights have a pooler."""
        if hf.get("quantization_config"):
            raise ConfigError("the weights are quantised", "take the model in float32, float16 or bfloat16")
        if self.shape["architecture"] != "encoder":
            refuse_patterns({key: value for key, value in hf.items() if key not in self.patterns})
        hf = hf | {key: hf[alias] for alias, key in self.aliases.items() if alias in hf}
        for key, value in self.fixed.items():
            if hf.get(key, value) != value:
                raise ConfigError(
                    f"{key} = {hf[key]!r} is not known of {self.name} models here",
                    f"this version reads those with {key} = {value!r}",
                )
        values = self.shape | {name: value_of(hf, key, default) for name, (key, default) in self.keys.items()}
        head = self._head(hf)
        if head == "labels":
            values["labels"] = labels(hf)
        return TransformerConfig(**(values | {"head": head, "pooled": pooled} | self.from_hf_extra(hf)))

    def write(self, config: TransformerConfig) -> Values:
        """Hugging Face's config.json of Regard's config; raise ConfigError if no such model exists."""
        for key, back in self.lacking(config).items():
            raise ConfigError(
                f"{key} = {getattr(config.settled(), key)!r} cannot be said of a {self.name} model, which has {back!r}",
                "convert to a family that has it, or train a model of this family",
            )
        return self._hf(config.settled())

    def lacking(self, config: TransformerConfig) -> Values:
        """What a model of this family would have in place of what the config has."""
        config = config.settled()
        hf = self._hf(config)
        try:
            again = self.read(hf, pooled=config.pooled)
        except ConfigError as error:
            raise ConfigError(f"this model is no {self.name} model: {error.problem}", error.remedy) from error
        written, meant = again.settled().model_dump(), config.model_dump()
        differing = [key for key in meant if meant[key] != written[key] and key not in _OF_TRAINING]
        return {key: repr(getattr(again, key)) if key in config.unions else written[key] for key in differing}

    def _hf(self, config: TransformerConfig) -> Values:
        if config.head not in self.architectures:
            raise ConfigError(
                f"a {self.name} model with head = {config.head!r} does not exist",
                f"use {' or '.join(map(repr, self.architectures))}",
            )
        if config.positions == "rotary" and config.trained_length is not None:  # config.json has one number for both
            config = config.model_copy(update={"max_positions": config.trained_length})
        hf = {key: getattr(config, name) for name, (key, _) in self.keys.items()}
        hf |= {"model_type": self.model_type, "architectures": [self.architectures[config.head]], **self.fixed}
        if config.labels:
            hf["id2label"] = {str(index): name for index, name in enumerate(config.labels)}
            hf["label2id"] = {name: index for index, name in enumerate(config.labels)}
        return hf | self.to_hf_extra(config)

    def _head(self, hf: Values) -> Head:
        given = architecture(hf)
        for head, name in self.architectures.items():
            if given is not None and (given == name or (head, given) in _ALSO):
                return head
        if given is not None:
            known = ", ".join(self.architectures.values())
            raise ConfigError(f"a {given} is not known here", f"of {self.name} models this version reads {known}")
        return next(iter(self.architectures))


_OF_TRAINING = (
    *("init", "dropout", "attention_dropout", "feedforward_chunks"),
    *("max_positions", "trained_length", "family"),
)
"""What changes nothing that a trained model computes, but for how long a text may be."""
_BARE = ("GPT2", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma2", "Gemma3Text", "Marian", "Bart", "OPT")
_ALSO = {("masked", "BertForPreTraining"), *(("tokens", f"{name}Model") for name in _BARE)}

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Hugging Face's names of activations → Regard's; of several for one, the first is written."""


def hf_activation(name: str) -> str:
    """Hugging Face's name of an activation."""
    return next((hf for hf, known in ACTIVATIONS.items() if known == name), name)


def in_each_layer(stack: str, hf: str, names: Mapping[str, str | TensorSlot]) -> dict[str, str | TensorSlot]:
    """Names of one layer, as names in all layers of a stack."""
    found: dict[str, str | TensorSlot] = {}
    for name, slot in names.items():
        whole = TensorSlot(slot) if isinstance(slot, str) else slot
        found[f"{stack}.layers.*.{name}"] = TensorSlot(
            f"{hf}.*.{whole.name}", whole.part, whole.of, whole.transposed, whole.skip_rows, whole.squeeze
        )
    return found

"""The Mechanism contract: attention as a part of a layer with a state of its own, chosen by name.

    Slot            what a layer asks for (slot.py)
    MechanismShape  what a recipe's [model.attention] says: a name and the mechanism's own options; builds it for a slot
    Mechanism       a module: inputs, a state and the layer's context in; what was read and the state after them out
    Abilities       what a mechanism can be asked for; the rest is refused when it is built

`register_mechanism(Shape)` makes one known: to recipes (`model.attention = "mine"`), to folders, to the laws, to
`regard list mechanisms`. A layer passes state through and never looks inside. Exact attention (exact.py) is one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.cache import AttentionState
from regard.attention.mask import Mask, Padding
from regard.attention.mask_algebra import Positions
from regard.attention.mask_parts import MaskParts, split
from regard.attention.rotary import Rotary, Rotate, Rotation
from regard.attention.slot import Slot
from regard.axes import Hidden, Ids, Weights
from regard.config import Config, refuse_foreign_keys
from regard.errors import ConfigError, InputError, choose
from regard.plugins import load_plugins

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class LayerContext:
    """What every layer of one pass is told: who may see whom, and where tokens stand."""

    mask: Mask | None = None
    """Of the self-attention, over what was read before and the new tokens; None where a single new one sees it all."""
    bias: Bias | None = None
    rotate: Rotate | None = None
    memory_mask: Mask | None = None
    past: int = 0
    """Columns that were read before the new tokens."""
    places: Int[Tensor, "#batch tokens"] | None = None
    """Where the new tokens stand in their texts: what positions are counted by."""
    behind: Padding | None = None
    """Padding that stands behind the text of tokens that look back: the mask need not hide it."""
    ids: Ids | None = None
    """An encoder's tokens themselves, for a mechanism that treats some of them otherwise."""
    query_positions: Positions | None = None
    """Where the new tokens stand among the keys of a cache with room; where absent, behind all that were read."""
    columns: Int[Tensor, "batch tokens"] | None = None
    """Where a cache with room keeps the new tokens, if not at their positions: the mask says what each may see."""
    _made: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """What `make` gives, made for the first layer that asks and shared with those that ask for the same."""
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    def narrow(self, own: Mask) -> Mask:
        """The mask and a layer's own pattern, one object for all layers that have it: it is lowered once for them."""
        mask = self.mask
        if mask is None or torch.compiler.is_compiling():
            return own if mask is None else mask & own
        return self.once(own, lambda: mask & own)

    @property
    def cross(self) -> "LayerContext":
        """What attention to the memory is told."""
        return LayerContext(self.memory_mask)

    def rotation(self, rotary: Rotary) -> Rotate:
        """The turn of the new tokens by another rotary than the network's."""
        if self.places is None:
            raise InputError("nothing says where the tokens stand that are to be turned", "give `places`")
        rotation: Rotation = rotary(self.places)
        return rotation

    def parts(self) -> MaskParts:
        """The mask taken apart, the padding behind the text included."""
        parts = split(self.mask)
        if parts.padding is None and self.behind is not None:
            parts = MaskParts(parts.causal, self.behind, parts.documents, parts.rest)
        return parts


@dataclass(frozen=True)
class Abilities:
    """What a mechanism can be asked for. Every one respects padding and takes any length."""

    exact: bool = False
    """It computes the softmax over every key that its mask allows."""
    causal: bool = False
    """A token sees what came before it alone, and decoding goes on from a state."""
    bidirectional: bool = True
    """Every token sees every other."""
    cross: bool = False
    """It attends to a memory."""
    documents: bool = False
    """Several texts in one row, each seeing itself alone."""
    masks: bool = False
    """Masks beyond causal, padding and documents."""
    rotary: bool = True
    """Positions that turn queries and keys."""
    score_bias: bool = False
    """Positions that add to the scores: `alibi`, `t5`."""
    similarities: bool = False
    """Any similarity; else the scaled dot product alone."""
    shared_heads: bool = True
    """Fewer key/value heads than query heads."""
    dropout: bool = False
    """Dropout on attention weights."""

    @property
    def words(self) -> str:
        """What it attends as."""
        kinds = {"causal": self.causal, "bidirectional": self.bidirectional, "cross": self.cross}
        return ", ".join(name for name, can in kinds.items() if can)


class Mechanism(nn.Module, ABC):
    """Attention of one layer. It owns its projections: most derive from `Projections` as well.

    Laws: padding and neighbours change nothing; where it is causal no token sees a later one, and reading a text piece
    by piece gives what reading it at once does; gradients are finite; any length works. Buffers are persistent or made
    at every call: a loaded model is built without memory first.
    """

    slot: Slot
    """What it was built for; `Projections` keeps it."""

    def start(self, memory: Hidden | None = None) -> AttentionState | None:
        """The state before any token; of cross-attention what is computed of the memory once."""
        if memory is not None:
            raise InputError(f"{type(self).__name__} has no memory to attend to", "give none")
        return None

    @abstractmethod
    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, AttentionState | None]:
        """What each new token reads, and the state with them in it: a whole text, where there is none, or a step."""

    @abstractmethod
    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        """The effective weights of a whole small text, `[batch, heads, queries, keys]`: what pictures show.

        What a head reads is these weights times its values; for a linear mechanism they are those it implies.
        """

    def share(self, first: "Mechanism") -> None:
        """Take from the first of an encoder's layers that are built alike what all of them have in common."""


def attended(
    mechanism: Mechanism, inputs: Hidden, state: AttentionState | None, context: LayerContext
) -> tuple[Hidden, AttentionState | None]:
    """What a mechanism gives, one vector for each token: another shape would be spread over the stream silently."""
    given = mechanism(inputs, state, context)
    if torch.compiler.is_compiling():
        found: tuple[Hidden, AttentionState | None] = given
        return found
    name = type(mechanism).__name__
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Tensor):
        raise ConfigError(f"{name}.forward gave {_words(given)}", "return what was read and the state, or None for it")
    if given[0].shape != inputs.shape:
        raise ConfigError(
            f"{name}.forward was given {tuple(inputs.shape)} to read and gave {tuple(given[0].shape)}",
            "return a vector of the same width for every token",
        )
    return given


def _words(given: object) -> str:
    if isinstance(given, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in given)}"
    return f"a {type(given).__name__}"


class AttentionCosts(NamedTuple):
    """What one layer's attention takes for a token, beyond its projections."""

    work: float
    """Operations."""
    cached: int
    """Numbers kept of it to decode on."""
    kept: int | None
    """Numbers kept of it for the backward pass, where that is known."""


class MechanismShape(Config, ABC):
    """What a recipe says of a mechanism. Derive from it, give `name` a default, say what it can, and `make` it."""

    name: str = Field(description="how a layer attends")

    abilities: ClassVar[Abilities]
    samples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Options that the laws are measured with: such that a text of a few tokens is several of its blocks or windows."""

    borrowing: ClassVar[Mapping[str, Any]] = {}
    """Options that leave it the fewest weights besides exact attention's: what a trained model is compared by."""

    @property
    def named_ids(self) -> tuple[int, ...]:
        """The ids of tokens that it treats otherwise than the rest."""
        return ()

    @property
    def position_limit(self) -> int | None:
        """The longest text it can read, where there is one."""
        return None

    def __repr__(self) -> str:
        given = {key: value for key, value in self if value != type(self).model_fields[key].default}
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" if given else self.name

    def check(self, slot: Slot) -> None:
        """Raise ConfigError if it cannot be in this slot: by its abilities; a mechanism adds what it needs of sizes."""
        able = self.abilities
        asked = (
            (slot.cross and not able.cross, "attention to a memory"),
            (not slot.cross and slot.causal and not able.causal, "causal attention, which a decoder needs"),
            (
                not slot.cross and not slot.causal and not able.bidirectional,
                "attention in both directions, which an encoder needs",
            ),
            (slot.rotary and not able.rotary, "positions that turn queries and keys (model.positions=rotary)"),
            (slot.score_bias and not able.score_bias, "positions that add to the scores (model.positions=alibi or t5)"),
            (slot.similarity != "scaled_dot" and not able.similarities, f"similarity {slot.similarity!r}"),
            (
                slot.key_value_heads != slot.heads and not able.shared_heads,
                f"{slot.key_value_heads} key/value heads for {slot.heads} heads",
            ),
            (
                slot.dropout > 0 and not able.dropout,
                f"dropout on weights, attention_dropout = {slot.dropout}",
            ),
        )
        for wanted, what in asked:
            if wanted:
                raise ConfigError(
                    f"attention {self.name!r} cannot do {what}", f"it can do {able.words}; {others(what, self, slot)}"
                )

    def build(self, slot: Slot) -> Mechanism:
        """The mechanism for this slot, its weights drawn; refused where it cannot be."""
        self.check(slot)
        return self.make(slot)

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts | None:
        """What it takes for a token of a text of so many, for `regard size`; None where nothing is said."""
        return None

    @abstractmethod
    def make(self, slot: Slot) -> Mechanism:
        """The module itself; `slot` has been checked."""


MECHANISMS: dict[str, type[MechanismShape]] = {}
"""Every mechanism by the name that recipes and folders call it."""


def register_mechanism(shape: type[MechanismShape]) -> None:
    """Make a mechanism known by the default of its shape's `name`; a saved model names it and holds no code."""
    name = shape.model_fields["name"].default
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(
            f"{shape.__name__} has no name a recipe could say", 'give it one: name: Literal["mine"] = "mine"'
        )
    if not isinstance(getattr(shape, "abilities", None), Abilities):
        raise ConfigError(f"{shape.__name__} does not say what it can do", "give it abilities = Abilities(…)")
    if name in MECHANISMS:
        raise ConfigError(f"mechanism {name!r} is there already", "choose another name")
    MECHANISMS[name] = shape


def read_mechanism(value: Any) -> MechanismShape:
    """The shape that a name, or a table with one, describes; exact attention where a table has none."""
    if isinstance(value, MechanismShape):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{value!r} names no attention", f"give a name, or a table with one: {', '.join(MECHANISMS)}")
    load_plugins()
    name = value.get("name", "exact")
    if name not in MECHANISMS:
        raise ConfigError(
            f"attention {name!r} is unknown",
            f"{choose(str(name), MECHANISMS)}; register one of your own first, by `regard.register_mechanism(Shape)`",
        )
    refuse_foreign_keys(value, name, MECHANISMS)
    return MECHANISMS[name].model_validate(dict(value))


def read_mechanisms(value: Any) -> MechanismShape | tuple[MechanismShape, ...]:
    """One for all layers, or a list of them."""
    return tuple(map(read_mechanism, value)) if isinstance(value, list | tuple) else read_mechanism(value)


def others(what: str, shape: MechanismShape, slot: Slot) -> str:
    """The mechanisms that this slot could have instead, as a remedy."""
    fitting = [name for name, one in MECHANISMS.items() if name != shape.name and _fits(one, slot)]
    return f"use {', '.join(fitting)}" if fitting else f"do without {what}"


def _fits(shape: type[MechanismShape], slot: Slot) -> bool:
    """Whether a mechanism, left to its defaults, could be in this slot; asked without asking it for another remedy."""
    able = shape.abilities
    kind = able.cross if slot.cross else able.causal if slot.causal else able.bidirectional
    positions = (able.rotary or not slot.rotary) and (able.score_bias or not slot.score_bias)
    alike = able.similarities or slot.similarity == "scaled_dot"
    heads = able.shared_heads or slot.key_value_heads == slot.heads
    return kind and positions and alike and heads and (able.dropout or not slot.dropout)

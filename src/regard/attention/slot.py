"""What a layer asks of an attention: the sizes of its heads, what they may see, and where in the network it stands."""

from dataclasses import dataclass
from typing import Literal

from regard.attention.similarity import Similarity
from regard.errors import ConfigError

Stack = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Site:
    """Where in a network an attention stands: `decoder.1.cross`. The name is what recordings and pictures call it."""

    stack: Stack
    index: int
    kind: Literal["self", "cross"]

    def __str__(self) -> str:
        return f"{self.stack}.{self.index}.{self.kind}"


@dataclass(frozen=True)
class Slot:
    """A place for an attention, with all it has to be: a mechanism is built for it or refuses it."""

    width: int
    heads: int
    key_value_heads: int
    head_width: int
    bias: bool = True
    """Whether its linear layers add a learnt vector."""
    dropout: float = 0.0
    """On the attention weights."""
    similarity: str | Similarity = "scaled_dot"
    causal: bool = False
    """Whether a token sees itself and what came before it alone; such a one is also decoded with, step by step."""
    cross: bool = False
    """Whether what is attended to is another sequence, the memory."""
    rotary: bool = False
    """Whether positions turn queries and keys."""
    score_bias: bool = False
    """Whether positions add to the scores."""
    epsilon: float | None = None
    """What its norms, if it has any, add below their roots."""
    max_tokens: int | None = None
    """The longest text there can be, where that is known."""
    site: Site | None = None

    def __post_init__(self) -> None:
        check_heads(self.width, self.heads, self.key_value_heads, self.head_width)


def check_heads(width: int, heads: int, key_value_heads: int, head_width: int | None = None) -> None:
    """Heads must split the width unless they have one of their own, and key/value heads the heads."""
    if heads < 1 or (head_width is None and width % heads):
        fitting = ", ".join(str(count) for count in range(1, width + 1) if width % count == 0 and count <= 64)
        raise ConfigError(f"width {width} does not split into {heads} heads", f"use {fitting}")
    if key_value_heads < 1 or heads % key_value_heads:
        fitting = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
        raise ConfigError(f"{key_value_heads} key/value heads do not divide {heads} heads", f"use {fitting}")

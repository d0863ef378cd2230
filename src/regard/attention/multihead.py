"""Multi-head attention (Vaswani et al. 2017, §3.2.2): project, attend in every head, concatenate, project.

One module serves self-attention (no memory), cross-attention (memory is another sequence) and cached decoding
(memory is a `KeyValues`); grouped- and multi-query attention are fewer key/value heads. Where positions rotate
queries and keys, they come as the `rotate` hook: this file knows nothing of positions.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.cache import KeyValues
from regard.attention.core import attend
from regard.attention.decode_step import attend_one, suits_one_query
from regard.attention.mask import Mask
from regard.attention.mask_algebra import MaskMod, as_mask
from regard.attention.rotary import Rotate
from regard.attention.similarity import Similarity, require_similarity, similarity_module
from regard.axes import Attended, Hidden, Query
from regard.errors import ConfigError
from regard.layers.linear import Linear


@dataclass(frozen=True)
class Site:
    """Where in a network an attention stands: `decoder.1.cross`. The name is what recordings and pictures call it."""

    stack: Literal["encoder", "decoder"]
    index: int
    kind: Literal["self", "cross"]

    def __str__(self) -> str:
        return f"{self.stack}.{self.index}.{self.kind}"


class Attend(nn.Module):
    """The call of `attend` as a module of its own, so that a hook on it sees exactly what attention was given."""

    def __init__(self, similarity: Similarity, dropout: float = 0.0, site: Site | None = None) -> None:
        super().__init__()
        self.similarity = similarity
        self.dropout = dropout
        self.site = site

    def forward(
        self, query: Query, memory: KeyValues, mask: Mask | None = None, bias: Bias | Tensor | None = None
    ) -> Attended:
        """The attended values of every head."""
        dropout = self.dropout if self.training else 0.0
        if suits_one_query(query, self.similarity, bias, dropout):
            return attend_one(query, memory.keys, memory.values, self.similarity, mask)
        return attend(
            query,
            memory.keys,
            memory.values,
            similarity=self.similarity,
            mask=mask,
            bias=bias,
            dropout=dropout,
        )


class MultiHeadAttention(nn.Module):
    """Attention in `heads` subspaces at once; `similarity` is a name or an object of your own."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        head_width: int | None = None,
        similarity: str | Similarity = "scaled_dot",
        bias: bool = True,
        dropout: float = 0.0,
        site: Site | None = None,
    ) -> None:
        super().__init__()
        key_value_heads = heads if key_value_heads is None else key_value_heads
        check_heads(width, heads, key_value_heads, head_width)
        self.heads, self.key_value_heads, self.head_width = heads, key_value_heads, head_width or width // heads
        self.query = Linear(width, heads * self.head_width, bias=bias)
        self.key = Linear(width, key_value_heads * self.head_width, bias=bias)
        self.value = Linear(width, key_value_heads * self.head_width, bias=bias)
        compare = (
            similarity_module(similarity, self.head_width)
            if isinstance(similarity, str)
            else require_similarity(similarity)
        )
        self.attend = Attend(compare, dropout, site)
        self.output = Linear(heads * self.head_width, width, bias=bias)

    def keys_values(self, memory: Hidden, rotate: Rotate | None = None) -> KeyValues:
        """The memory's keys and values, split into heads."""
        key, value = self.key(memory), self.value(memory)
        return KeyValues(self._split(key, self.key_value_heads, rotate), self._split(value, self.key_value_heads))

    def forward(
        self,
        inputs: Hidden,
        memory: Float[Tensor, "batch keys width"] | KeyValues | None = None,
        *,
        mask: Mask | MaskMod | None = None,
        bias: Bias | Tensor | None = None,
        rotate: Rotate | None = None,
    ) -> Hidden:
        """What each input token reads from the memory; from the inputs themselves where none is given."""
        query = self._split(self.query(inputs), self.heads, rotate)
        if not isinstance(memory, KeyValues):
            memory = self.keys_values(inputs if memory is None else memory, rotate)
        dtype = query.dtype
        if memory.keys.dtype != dtype:  # a cache may be wider than the model
            if any(True for _ in self.attend.similarity.parameters()):  # which compares vectors of its own type
                memory = KeyValues(memory.keys.to(dtype), memory.values.to(dtype))
            query = query.to(memory.keys.dtype)
        attended = self.attend(query, memory, mask=None if mask is None else as_mask(mask), bias=bias)
        out: Hidden = self.output(attended.transpose(1, 2).flatten(2).to(dtype))
        return out

    def _split(self, projected: Hidden, heads: int, rotate: Rotate | None = None) -> Query:
        """Into heads: [batch, tokens, heads · head_width] to [batch, heads, tokens, head_width]."""
        batch, tokens, _ = projected.shape
        split = projected.view(batch, tokens, heads, self.head_width).transpose(1, 2)
        return rotate(split) if rotate else split


def check_heads(width: int, heads: int, key_value_heads: int, head_width: int | None = None) -> None:
    """Heads must split the width unless they have one of their own, and key/value heads the heads."""
    if heads < 1 or (head_width is None and width % heads):
        fitting = ", ".join(str(count) for count in range(1, width + 1) if width % count == 0 and count <= 64)
        raise ConfigError(f"width {width} does not split into {heads} heads", f"use {fitting}")
    if key_value_heads < 1 or heads % key_value_heads:
        fitting = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
        raise ConfigError(f"{key_value_heads} key/value heads do not divide {heads} heads", f"use {fitting}")

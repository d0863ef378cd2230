"""The four matrices around attention (Vaswani et al. 2017, §3.2.2): into heads, and out of them again.

Whoever attends in heads derives from `Projections`, so that the parameters of all have the same names: the weights of
one mechanism can be read by another.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.cache import KeyValues
from regard.attention.rotary import Rotate
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Query
from regard.layers.linear import Linear
from regard.layers.norm import NormKind, norm
from regard.layers.stacked import StackedMaps

Projection = Literal["query", "key", "value", "output"]
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value", "output")


@dataclass(frozen=True)
class ProjectionOptions:
    """What differs from the paper's four matrices."""

    value_width: int | None = None
    """Of a head's values; as wide as its keys if absent."""
    biases: tuple[Projection, ...] | None = None
    """Which add a learnt vector; all or none, as the slot says, if absent."""
    query_key_norm: NormKind = "none"
    """What normalises each head's queries and keys, before positions turn them (Dehghani et al. 2023, §2.1)."""


PLAIN = ProjectionOptions()


class Projections(nn.Module):
    """`query`, `key` and `value` of a slot's heads, and `output`, which joins them."""

    def __init__(self, slot: Slot, options: ProjectionOptions = PLAIN) -> None:
        super().__init__()
        self.slot = slot
        self.heads, self.key_value_heads, self.head_width = slot.heads, slot.key_value_heads, slot.head_width
        self.value_width = options.value_width or slot.head_width

        def biased(name: Projection) -> bool:
            return slot.bias if options.biases is None else name in options.biases

        self.query = Linear(slot.width, slot.heads * slot.head_width, bias=biased("query"))
        self.key = Linear(slot.width, slot.key_value_heads * slot.head_width, bias=biased("key"))
        self.value = Linear(slot.width, slot.key_value_heads * self.value_width, bias=biased("value"))
        self.output = Linear(slot.heads * self.value_width, slot.width, bias=biased("output"))
        normed = options.query_key_norm != "none"
        self.query_norm, self.key_norm = (
            norm(options.query_key_norm, slot.head_width, slot.epsilon) if normed else None for _ in range(2)
        )

    def queries(self, inputs: Hidden, rotate: Rotate | None = None) -> Query:
        """The inputs' queries: [batch, heads, tokens, head_width]."""
        return self._asked(self.query(inputs), rotate)

    def keys_values(self, memory: Hidden, rotate: Rotate | None = None) -> KeyValues:
        """The memory's keys and values: [batch, key_value_heads, tokens, head_width and value_width]."""
        return self._kept(self.key(memory), self.value(memory), rotate)

    def stacked(self) -> StackedMaps | None:
        """The maps of queries, keys and values as one; None where they are not plain."""
        return StackedMaps.of([self.query, self.key, self.value])

    def together(self, inputs: Hidden, maps: StackedMaps, rotate: Rotate | None = None) -> tuple[Query, KeyValues]:
        """Queries, keys and values of the same inputs by one product."""
        query, key, value = maps.times(inputs)
        return self._asked(query, rotate), self._kept(key, value, rotate)

    def joined(self, attended: Attended) -> Hidden:
        """What every head read, side by side, projected: [batch, tokens, width]."""
        out: Hidden = self.output(attended.transpose(1, 2).flatten(2))
        return out

    def _asked(self, projected: Float[Tensor, "batch tokens query_part"], rotate: Rotate | None) -> Query:
        query = self._split(projected, self.heads)
        query = query if self.query_norm is None else self.query_norm(query)
        return rotate(query) if rotate else query

    def _kept(
        self,
        keys: Float[Tensor, "batch tokens key_part"],
        values: Float[Tensor, "batch tokens value_part"],
        rotate: Rotate | None,
    ) -> KeyValues:
        key, value = (self._split(one, self.key_value_heads) for one in (keys, values))
        key = key if self.key_norm is None else self.key_norm(key)
        return KeyValues(rotate(key) if rotate else key, value)

    def _split(self, projected: Hidden, heads: int) -> Float[Tensor, "batch heads tokens part"]:
        """Into heads: [batch, tokens, heads · part] to [batch, heads, tokens, part]."""
        batch, tokens, width = projected.shape
        return projected.view(batch, tokens, heads, width // heads).transpose(1, 2)

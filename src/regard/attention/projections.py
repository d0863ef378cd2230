"""The four matrices around attention (Vaswani et al. 2017, §3.2.2): into heads, and out of them again.

Whoever attends in heads derives from `Projections`, so that the parameters of all have the same names: the weights of
one mechanism can be read by another.
"""

from torch import nn

from regard.attention.cache import KeyValues
from regard.attention.rotary import Rotate
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Query
from regard.layers.linear import Linear


class Projections(nn.Module):
    """`query`, `key` and `value` of a slot's heads, and `output`, which joins them."""

    def __init__(self, slot: Slot) -> None:
        super().__init__()
        self.slot = slot
        self.heads, self.key_value_heads, self.head_width = slot.heads, slot.key_value_heads, slot.head_width
        self.query = Linear(slot.width, slot.heads * slot.head_width, bias=slot.bias)
        self.key = Linear(slot.width, slot.key_value_heads * slot.head_width, bias=slot.bias)
        self.value = Linear(slot.width, slot.key_value_heads * slot.head_width, bias=slot.bias)
        self.output = Linear(slot.heads * slot.head_width, slot.width, bias=slot.bias)

    def queries(self, inputs: Hidden, rotate: Rotate | None = None) -> Query:
        """The inputs' queries: [batch, heads, tokens, head_width]."""
        return self._split(self.query(inputs), self.heads, rotate)

    def keys_values(self, memory: Hidden, rotate: Rotate | None = None) -> KeyValues:
        """The memory's keys and values: [batch, key_value_heads, tokens, head_width]."""
        key, value = self.key(memory), self.value(memory)
        return KeyValues(self._split(key, self.key_value_heads, rotate), self._split(value, self.key_value_heads))

    def joined(self, attended: Attended) -> Hidden:
        """What every head read, side by side, projected: [batch, tokens, width]."""
        out: Hidden = self.output(attended.transpose(1, 2).flatten(2))
        return out

    def _split(self, projected: Hidden, heads: int, rotate: Rotate | None = None) -> Query:
        """Into heads: [batch, tokens, heads · head_width] to [batch, heads, tokens, head_width]."""
        batch, tokens, _ = projected.shape
        split = projected.view(batch, tokens, heads, self.head_width).transpose(1, 2)
        return rotate(split) if rotate else split

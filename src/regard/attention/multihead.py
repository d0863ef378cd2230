"""Multi-head attention (Vaswani et al. 2017, §3.2.2): project, attend in every head, concatenate, project.

`MultiHeadAttention` serves self-attention (no memory), cross-attention (memory is another sequence) and cached decoding
(memory is a `KeyValues`); grouped- and multi-query attention are fewer key/value heads. Where positions rotate
queries and keys, they come as the `rotate` hook: this file knows nothing of positions. What layers attend by, with a
state of its own, is `ExactAttention` (exact.py), which computes the same.
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.bias import Bias
from regard.attention.cache import KeyValues
from regard.attention.core import attend
from regard.attention.decode_step import StepTable, attend_few, suits_one_query
from regard.attention.mask import Mask
from regard.attention.mask_algebra import MaskMod, Positions, as_mask
from regard.attention.projections import PLAIN, ProjectionOptions, Projections
from regard.attention.rotary import Rotate
from regard.attention.similarity import Similarity, require_similarity, similarity_module
from regard.attention.slot import Site, Slot, check_heads
from regard.axes import Attended, Hidden, Query


class Attend(nn.Module):
    """The call of `attend` as a module of its own, so that a hook on it sees exactly what attention was given."""

    def __init__(self, similarity: Similarity, dropout: float = 0.0, site: Site | None = None) -> None:
        super().__init__()
        self.similarity = similarity
        self.dropout = dropout
        self.site = site

    def forward(
        self,
        query: Query,
        memory: KeyValues,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        query_positions: Positions | None = None,
    ) -> Attended:
        """The attended values of every head."""
        dropout = self.dropout if self.training else 0.0
        if isinstance(mask, StepTable) or suits_one_query(query, self.similarity, bias, dropout):
            return attend_few(query, memory.keys, memory.values, self.similarity, mask, query_positions)
        return attend(
            query,
            memory.keys,
            memory.values,
            similarity=self.similarity,
            mask=mask,
            bias=bias,
            dropout=dropout,
            query_positions=query_positions,
        )


def slot_similarity(slot: Slot) -> Similarity:
    """How a slot's queries and keys are compared: a fresh one by its name, or the object itself."""
    if isinstance(slot.similarity, str):
        return similarity_module(slot.similarity, slot.head_width)
    return require_similarity(slot.similarity)


class HeadAttention(Projections):
    """The projections of a slot and, between them, the call of `attend`."""

    def __init__(self, slot: Slot, options: ProjectionOptions = PLAIN, similarity: Similarity | None = None) -> None:
        super().__init__(slot, options)
        self.attend = Attend(similarity or slot_similarity(slot), slot.dropout, slot.site)

    def read(
        self,
        query: Query,
        memory: KeyValues,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        query_positions: Positions | None = None,
    ) -> Hidden:
        """What the queries read from the memory, joined."""
        return self.joined(self.attended(query, memory, mask=mask, bias=bias, query_positions=query_positions))

    def attended(
        self,
        query: Query,
        memory: KeyValues,
        *,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        query_positions: Positions | None = None,
    ) -> Attended:
        """What the queries of every head read from the memory."""
        dtype = query.dtype
        if memory.keys.dtype != dtype:  # a cache may be wider than the model
            if any(True for _ in self.attend.similarity.parameters()):  # which compares vectors of its own type
                memory = KeyValues(memory.keys.to(dtype), memory.values.to(dtype))
            query = query.to(memory.keys.dtype)
        attended: Attended = self.attend(query, memory, mask=mask, bias=bias, query_positions=query_positions)
        return attended.to(dtype)


class MultiHeadAttention(HeadAttention):
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
        key_value_heads = heads if key_value_heads is None else key_value_heads
        check_heads(width, heads, key_value_heads, head_width)
        slot = Slot(width, heads, key_value_heads, head_width or width // heads, bias, dropout, similarity, site=site)
        super().__init__(slot)

    def forward(
        self,
        inputs: Hidden,
        memory: Float[Tensor, "batch keys width"] | KeyValues | None = None,
        *,
        mask: Mask | MaskMod | None = None,
        bias: Bias | Tensor | None = None,
        rotate: Rotate | None = None,
        query_positions: Positions | None = None,
    ) -> Hidden:
        """What each input token reads from the memory; from the inputs themselves where none is given.

        `query_positions` says where the inputs stand among a memory's tokens; at their end where nothing is given.
        """
        query = self.queries(inputs, rotate)
        if not isinstance(memory, KeyValues):
            memory = self.keys_values(inputs if memory is None else memory, rotate)
        found = None if mask is None else as_mask(mask)
        return self.read(query, memory, mask=found, bias=bias, query_positions=query_positions)

"""Attention of a recurrent decoder over its encoder's states: one head, which the alignments of 2014 and 2015 draw.

What a similarity makes of the keys alone is computed once for a source (`U h` of Bahdanau et al. 2014, §A.1.2), not at
every step; the values are the encoder's states as they are.
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.cache import KeyValues
from regard.attention.mask import Mask
from regard.attention.multihead import Attend
from regard.attention.similarity import split_similarity
from regard.attention.slot import Site
from regard.axes import Hidden


class Alignment(nn.Module):
    """`c = Σ_j softmax_j score(s, h_j) · h_j`."""

    def __init__(self, similarity: str, width: int, memory_width: int) -> None:
        super().__init__()
        self.keys, compare = split_similarity(similarity, width, memory_width)
        self.attend = Attend(compare, site=Site("decoder", 0, "cross"))

    def keys_values(self, memory: Hidden) -> KeyValues:
        """The memory as it is attended to: mapped to be compared, and as it is.

        In mixed precision maps give other numbers than recurrent layers: the memory's type is that of all attention.
        """
        return KeyValues(self.keys(memory).to(memory.dtype)[:, None], memory[:, None])

    def forward(
        self, queries: Float[Tensor, "rows queries width"], memory: KeyValues, mask: Mask | None
    ) -> Float[Tensor, "rows queries memory_width"]:
        """The context of every query."""
        context: Tensor = self.attend(queries[:, None].to(memory.keys.dtype), memory, mask=mask)
        return context.squeeze(1).to(queries.dtype)

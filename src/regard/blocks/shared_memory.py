"""Rows that read the same memory, as the beams of a text do: its keys are kept once, and the rows are queries of it.

    rows of the step     a0 a1 a2 b0 b1        memories   a b
    folded               a: a0 a1 a2           as many queries of each as the most rows that read it; where some have
                         b: b0 b1 ·            fewer there is room that nobody looks at

A query of attention to a memory depends on itself alone, so what it reads is what it would read in a row of its own.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import Hidden, RowIds


@dataclass(frozen=True, eq=False)
class SharedMemory:
    """Which of so many memories each row reads, `size` rows at most the same one."""

    source: RowIds
    memories: int
    size: int
    slots: Int[Tensor, "rows"] | None
    """The place of each row among `memories × size`; None where that is its own number."""

    @classmethod
    def of(cls, source: RowIds, memories: int) -> "SharedMemory | None":
        """None where every row has one of its own, in order."""
        counts = torch.bincount(source, minlength=memories)
        size, rows = int(counts.max()), torch.arange(len(source), device=source.device)
        order = source.argsort(stable=True)
        rank = torch.empty_like(rows)
        rank[order] = rows - (counts.cumsum(0) - counts)[source[order]]
        slots = source * size + rank
        plain = len(source) == memories * size and torch.equal(slots, rows)
        return None if plain and size == 1 else cls(source, memories, size, None if plain else slots)

    def fold(self, stream: Hidden) -> Float[Tensor, "memories queries width"]:
        """The tokens of all rows that read a memory, side by side."""
        _, tokens, width = stream.shape
        if self.slots is not None:
            room = stream.new_zeros(self.memories * self.size, tokens, width)
            stream = room.index_copy_(0, self.slots, stream)
        return stream.reshape(self.memories, self.size * tokens, width)

    def unfold(self, read: Float[Tensor, "memories queries width"]) -> Hidden:
        """Each row's again."""
        whole = read.reshape(self.memories * self.size, -1, read.shape[2])
        return whole if self.slots is None else whole[self.slots]

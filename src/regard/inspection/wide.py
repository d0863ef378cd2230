"""Scores of half-precision queries and keys, added up in float32, as the fused kernels do.

In bfloat16 a score of 9.7 is known to 0.06, and a row of weights adds up to 1 only within some thousandths.
"""

import torch
from torch import Tensor

from regard.attention.similarity import Similarity
from regard.axes import Key, Query, Scores


def is_half(dtype: torch.dtype) -> bool:
    """Whether numbers of this type have fewer digits than a sum of their products needs."""
    return dtype in (torch.bfloat16, torch.float16)


def widened(tensor: Tensor) -> Tensor:
    """In float32 if it is in half precision."""
    return tensor.float() if is_half(tensor.dtype) else tensor


class InFloat32(Similarity):
    """Another similarity: what it maps is mapped as the model does, and what it multiplies is added up in float32."""

    def __init__(self, inner: Similarity) -> None:
        super().__init__()
        self.inner = inner

    @property
    def widths(self) -> tuple[int, int] | None:
        """The other's."""
        return self.inner.widths

    def scores(self, query: Query, key: Key) -> Scores:
        """The other's, wider."""
        dotted = self.inner.as_dot(query, key)
        if dotted is None:
            return self.inner.scores(query, key).float()
        one, other, scale = dotted
        return (one.float() @ other.float().transpose(-2, -1)) * scale

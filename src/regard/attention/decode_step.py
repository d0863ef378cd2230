"""Attention of a few queries per row, as every step of decoding asks it: PyTorch's fused kernel, without a choice.

The work is so little that choosing a kernel for it would take longer than the kernel; this is what `MultiHeadAttention`
calls while decoding on a CPU, and anywhere from a cache that is written in place. Equal to the reference to rounding.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

from regard.attention.bias import Bias
from regard.attention.core import check_numbers
from regard.attention.kernels import Sdpa
from regard.attention.lowering import dense_table
from regard.attention.mask import Dense, Mask
from regard.attention.mask_algebra import Positions, Shape
from regard.attention.similarity import InnerProduct, Similarity
from regard.axes import Attended, Key, Query, Value


@dataclass(frozen=True, eq=False)
class StepTable(Dense):
    """What a step of decoding adds to the scores of a few queries per row, worked out once for all layers.

    Mask and bias are both in `numbers`, `-inf` where nothing may be seen. Every query sees itself, so that no row is
    empty: whoever makes one knows it.
    """

    numbers: Float[Tensor, "#batch #heads queries keys"]

    @classmethod
    def of(cls, mask: Mask, bias: Bias | None, query: Query, shape: Shape, positions: Positions | None) -> "StepTable":
        """For scores of this shape."""
        table = mask.dense(shape, query.device, positions=positions)
        added = query.new_zeros(1) if bias is None else bias.dense(shape, query.device, positions).to(query.dtype)
        return cls(table, added.where(table, -torch.inf))


def suits_one_query(query: Query, similarity: Similarity, bias: Bias | Tensor | None, dropout: float) -> bool:
    """Whether a call is one step of decoding on a CPU: one query, an inner product, nothing to add, no gradient."""
    return (
        query.shape[2] == 1
        and bias is None
        and not dropout
        and isinstance(similarity, InnerProduct)
        and query.device.type == "cpu"
        and not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
    )


def attend_few(
    query: Query,
    key: Key,
    value: Value,
    similarity: Similarity,
    mask: Mask | None,
    positions: Positions | None = None,
) -> Attended:
    """`softmax(scale · q Kᵀ, where the mask allows) · V`; query heads that share a key head are queries of it."""
    assert isinstance(similarity, InnerProduct)
    check_numbers(query)
    batch, heads, queries, _ = query.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    table = None
    if isinstance(mask, StepTable):
        table = mask.numbers
    elif mask is not None:
        table = dense_table(mask, (batch, heads, queries, keys), query.device, positions)
    if table is not None and table.shape[1] > 1:
        table = table.expand(batch, -1, -1, -1).reshape(batch, kv_heads, -1, keys)
    elif table is not None and queries > 1 and heads > kv_heads:
        table = table.repeat(1, 1, heads // kv_heads, 1)
    query, key, scale = similarity.as_dot(query, key)
    grouped = query.reshape(batch, kv_heads, heads // kv_heads * queries, -1)
    with nullcontext() if query.device.type == "cpu" else sdpa_kernel(list(Sdpa.backends)):
        out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=table, scale=scale)
    return out.reshape(batch, heads, queries, -1)

"""Attention of one query per row, as every step of decoding asks it: two small products and a softmax.

The work is so little that choosing a kernel for it would take longer than the kernel; this is what `MultiHeadAttention`
calls while decoding on a CPU, equal to the reference to rounding.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.bias import Bias
from regard.attention.lowering import dense_table
from regard.attention.mask import Mask
from regard.attention.similarity import InnerProduct, Similarity
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError

FEW = 1 << 16
"""Numbers in the keys up to which the fused kernel is faster than two products."""


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


def attend_one(query: Query, key: Key, value: Value, similarity: Similarity, mask: Mask | None) -> Attended:
    """`softmax(scale · q Kᵀ, where the mask allows) · V`; query heads that share a key head are rows of one product."""
    assert isinstance(similarity, InnerProduct)
    if not math.isfinite(query.sum(dtype=None if query.dtype == torch.float64 else torch.float32)):
        raise InputError("the queries hold NaN or infinity", "look where they come from: inputs and weights")
    batch, heads, _, _ = query.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    table = None if mask is None else dense_table(mask, (batch, heads, 1, keys), query.device)
    query, key, scale = similarity.as_dot(query, key)
    if key.numel() <= FEW:  # fused and in float32, which costs a copy of the keys: for few of them less than a product
        return _fused(query.reshape(batch, kv_heads, heads // kv_heads, -1), key, value, scale, table).view(
            batch, heads, 1, -1
        )
    if key.dtype == torch.bfloat16:
        key = key.contiguous()  # with room behind each head's keys the product in bfloat16 takes three times as long
    rows = batch * kv_heads
    scores = torch.bmm(query.reshape(rows, heads // kv_heads, -1), key.reshape(rows, keys, -1).transpose(1, 2))
    scores *= scale
    if table is not None:
        scores = scores.view(batch, heads, 1, keys).masked_fill_(~table, -torch.inf).view(scores.shape)
    weights = scores.softmax(dim=-1)
    if table is not None:  # a softmax over nothing is 0/0: such rows are zero instead
        weights = weights.nan_to_num_(nan=0.0)
    return torch.bmm(weights, value.reshape(rows, keys, -1)).view(batch, heads, 1, -1)


def _fused(query: Tensor, key: Tensor, value: Tensor, scale: float, table: Tensor | None) -> Tensor:
    """The same by PyTorch's fused kernel, in float32 at least; the query heads of a group are its queries."""
    dtype = value.dtype
    if dtype != torch.float64:
        query, key, value = query.float(), key.float(), value.float()
    if table is not None and table.shape[1] > 1:
        table = table.expand(len(query), -1, -1, -1).reshape(*query.shape[:3], -1)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=table, scale=scale).to(dtype)

"""Attention as three plain products, n×n in memory: for short texts in bfloat16 on a CPU, where SDPA is slow.

Two things make it faster than the obvious three lines: a few heads are worked on at a time, so that their scores stay
in the caches, and the first half of causal queries never meets the second half of the keys.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.dropout import drop
from regard.attention.kernels import Call, Kernel
from regard.attention.lowering import dense_scores, is_causal_flag, sees_nothing
from regard.axes import Attended

CACHED = 1 << 20
"""Scores that one thread works on at a time: two megabytes in bfloat16."""
HALVED = 256
"""Causal queries from which two halves cost less than one whole."""

Queries = Float[Tensor, "rows queries width"]
Keys = Float[Tensor, "rows keys width"]
Values = Float[Tensor, "rows keys value_width"]
Table = Float[Tensor, "rows queries keys"]
Mixed = Float[Tensor, "rows queries value_width"]


class Explicit(Kernel):
    """Scores, softmax and sum, each as one product over all heads; any mask and bias as numbers to add."""

    name = "explicit"
    longest = 512

    def refuses(self, call: Call) -> str | None:
        """What is not an inner product it cannot score."""
        return call.not_inner

    def declines(self, call: Call) -> str | None:
        """Anything but bfloat16 on a CPU, and long texts."""
        if call.device.type != "cpu" or call.query.dtype != torch.bfloat16:
            return "it pays only in bfloat16 on a CPU"
        if max(call.shape[2:]) > self.longest:
            return f"beyond {self.longest} tokens its n×n table costs more than it saves"
        return None

    def why(self, call: Call) -> str:
        """It is short and in bfloat16."""
        return "short texts in bfloat16 on a CPU run fastest as three plain products"

    def run(self, call: Call) -> Attended:
        """Batch and key heads become one axis, the query heads that share a key head more queries of it."""
        query, key, scale = call.dotted()
        batch, heads, queries, keys = call.shape
        rows, folded = batch * key.shape[1], heads // key.shape[1] * queries
        halved = folded == queries >= HALVED and call.bias is None and is_causal_flag(call.mask, call.shape)
        added = dense_scores(call.mask, call.bias, query, call.shape)
        nothing = None if added is None or halved else sees_nothing(added)
        together = (
            rows if torch.compiler.is_compiling() else max(1, CACHED * torch.get_num_threads() // (folded * keys))
        )
        tables: Sequence[Tensor | None] = [None] * -(-rows // together)
        if added is not None:
            if nothing is not None:  # a softmax over nothing is 0/0: such rows are uniform, and zeroed at the end
                added = added.masked_fill(nothing, 0.0)
            if added.shape[:2] != (1, 1) or folded > queries:
                added = added.expand(batch, heads, queries, keys)
            tables = torch.split(added.reshape(-1, folded, keys).expand(rows, -1, -1), together)
        parts = zip(
            torch.split(query.reshape(rows, folded, -1), together),
            torch.split(key.reshape(rows, keys, -1), together),
            torch.split(call.value.reshape(rows, keys, -1), together),
            tables,
            strict=True,
        )
        mix = halves if halved else three_products
        out = [mix(some, their, values, table, scale, call.dropout) for some, their, values, table in parts]
        whole = (torch.cat(out) if len(out) > 1 else out[0]).view(batch, heads, queries, -1)
        return whole if nothing is None else whole.masked_fill(nothing, 0.0)


def three_products(
    query: Queries, key: Keys, value: Values, added: Table | None, scale: float, dropout: float
) -> Mixed:
    """`softmax(scale · QKᵀ + added) · V`, the first product adding as it goes."""
    if added is None:
        scores = torch.baddbmm(query.new_empty(1, 1, 1), query, key.transpose(1, 2), beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(added, query, key.transpose(1, 2), alpha=scale)
    weights = scores.softmax(dim=-1)
    return torch.bmm(drop(weights, dropout), value)


def halves(query: Queries, key: Keys, value: Values, added: Table | None, scale: float, dropout: float) -> Mixed:
    """The same of causal queries, the first half of which sees the first half of the keys alone."""
    assert added is not None
    middle = query.shape[1] // 2
    first, second = torch.split(query, [middle, query.shape[1] - middle], dim=1)
    early = three_products(first, key[:, :middle], value[:, :middle], added[:, :middle, :middle], scale, dropout)
    return torch.cat([early, three_products(second, key, value, added[:, middle:], scale, dropout)], dim=1)

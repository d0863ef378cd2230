"""Attention as three plain products, n×n in memory: where SDPA is slow on a CPU, in bfloat16 and for learnt biases.

Three things make it faster than the obvious three lines: a few heads are worked on at a time, so that their scores stay
in the caches; scores become weights in their place, and gradients of weights those of scores; and the first half of
causal queries never meets the second half of the keys.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.bias import Bias
from regard.attention.kernels import Call, Kernel
from regard.attention.lowering import dense_scores, fully_masked, fully_masked_rows
from regard.axes import Attended
from regard.layers.dropout import drop
from regard.layers.private_ops import softmax_, softmax_gradient_

CACHED = 1 << 20
"""Scores that one thread works on at a time: two megabytes in bfloat16."""
HALVED = 256
"""Causal queries from which two halves cost less than one whole."""

Queries = Float[Tensor, "rows queries width"]
Keys = Float[Tensor, "rows keys width"]
Values = Float[Tensor, "rows keys value_width"]
Table = Float[Tensor, "rows queries keys"]
Mixed = Float[Tensor, "rows queries value_width"]


class Bmm(Kernel):
    """Scores, softmax and sum, each as one product over all heads; any mask and bias as numbers to add."""

    name = "bmm"
    longest = 512

    def unsupported(self, call: Call) -> str | None:
        """What is not an inner product it cannot score."""
        return call.not_inner

    def unsuitable(self, call: Call) -> str | None:
        """On a CPU, what SDPA fuses well: anything but bfloat16 and long texts, unless a bias learns."""
        if call.device.type != "cpu":
            return "it pays only on a CPU"
        if _learns(call.bias):
            return None
        if call.query.dtype != torch.bfloat16:
            return "it pays only in bfloat16 or where a bias learns"
        if max(call.shape[2:]) > self.longest:
            return f"beyond {self.longest} tokens its n×n table costs more than it saves"
        return None

    def why(self, call: Call) -> str:
        """A bias learns, or it is short and in bfloat16."""
        if _learns(call.bias):
            return "on a CPU no fused kernel has the gradient of a bias, and three plain products are the fastest"
        return "short texts in bfloat16 on a CPU run fastest as three plain products"

    def run(self, call: Call) -> Attended:
        """Batch and key heads become one axis, the query heads that share a key head more queries of it."""
        query, key, scale = call.dotted()
        batch, heads, queries, keys = call.shape
        rows, folded = batch * key.shape[1], heads // key.shape[1] * queries
        halved = folded == queries >= HALVED and call.bias is None and call.causal_flag
        added = dense_scores(call.mask, call.bias, query, call.shape, call.positions)
        nothing = None if added is None or halved else _fully_masked(call, added)
        if added is not None:
            if nothing is not None:  # a softmax over nothing is 0/0: such rows are uniform, and zeroed at the end
                added = added.masked_fill(nothing, 0.0)
            if added.shape[:2] != (1, 1) or folded > queries:
                added = added.expand(batch, heads, queries, keys)
            added = added.reshape(-1, folded, keys).expand(rows, -1, -1)
        given = query.reshape(rows, folded, -1), key.reshape(rows, keys, -1), call.value.reshape(rows, keys, -1)
        learnt = added is not None and added.requires_grad
        if call.dropout or learnt or torch.compiler.is_compiling():
            mixed = three_products(*given, added, scale, call.dropout)
        else:
            mixed = InPlace.apply(*given, added, scale, halved)  # type: ignore[no-untyped-call]
        whole: Attended = mixed.view(batch, heads, queries, -1)
        return whole if nothing is None else whole.masked_fill(nothing, 0.0)


def _fully_masked(call: Call, added: Tensor) -> Tensor | None:
    """The rows in which nothing is allowed: a bias object forbids nothing, a tensor may."""
    if isinstance(call.bias, Tensor):
        return fully_masked(added)
    return None if call.mask is None else fully_masked_rows(call.mask, call.shape, call.device, call.positions)


def _learns(bias: Bias | Tensor | None) -> bool:
    """Whether a gradient of the bias will be asked for."""
    if bias is None or not torch.is_grad_enabled():
        return False
    return bias.requires_grad if isinstance(bias, Tensor) else any(one.requires_grad for one in bias.parameters())


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


class InPlace(torch.autograd.Function):
    """The same without dropout: some rows at a time, and no table is written that another one could be written over."""

    @staticmethod
    def forward(
        ctx: Any, query: Queries, key: Keys, value: Values, added: Table | None, scale: float, halved: bool
    ) -> Mixed:
        """Keeps the weights, where gradients will be asked for."""
        blocks = list(_blocks(query.shape[1], key.shape[1], halved))
        together = max(1, CACHED * torch.get_num_threads() // (query.shape[1] * key.shape[1]))
        kept = any(ctx.needs_input_grad)
        rows = len(query) if kept else together
        tables = [query.new_empty(rows, block.stop - block.start, seen) for block, seen in blocks]
        out = query.new_empty(len(query), query.shape[1], value.shape[2])
        for first in range(0, len(query), together):
            some = slice(first, first + together)
            for (block, seen), table in zip(blocks, tables, strict=True):
                weights = table[some] if kept else table[: len(query) - first]
                plus = weights if added is None else added[some, block, :seen]
                keys = key[some, :seen].transpose(1, 2)
                torch.baddbmm(plus, query[some, block], keys, beta=int(added is not None), alpha=scale, out=weights)
                softmax_(weights)
                torch.bmm(weights, value[some, :seen], out=out[some, block])
        ctx.save_for_backward(query, key, value, *tables)
        ctx.scale, ctx.blocks, ctx.together = scale, blocks, together
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Mixed) -> tuple[Tensor | None, ...]:
        """Of the queries, keys and values."""
        query, key, value, *tables = ctx.saved_tensors
        to_query, to_key, to_value = map(torch.empty_like, (query, key, value))
        buffers = [table.new_empty(ctx.together, *table.shape[1:]) for table in tables]
        for first in range(0, len(query), ctx.together):
            some = slice(first, first + ctx.together)
            for (block, seen), table, buffer in zip(ctx.blocks, tables, buffers, strict=True):
                weights, mixed = table[some], given[some, block]
                change = torch.bmm(mixed, value[some, :seen].transpose(1, 2), out=buffer[: len(weights)])
                before = int(seen < key.shape[1])  # what sees all keys comes first and begins their gradients
                to_value[some, :seen].baddbmm_(weights.transpose(1, 2), mixed, beta=before)
                softmax_gradient_(change, weights)
                to_query[some, block].baddbmm_(change, key[some, :seen], beta=0, alpha=ctx.scale)
                to_key[some, :seen].baddbmm_(change.transpose(1, 2), query[some, block], beta=before, alpha=ctx.scale)
        return to_query, to_key, to_value, None, None, None


def _blocks(queries: int, keys: int, halved: bool) -> Iterator[tuple[slice, int]]:
    """Which queries are worked on together, and how many keys they see: those that see all first."""
    yield slice(queries // 2 if halved else 0, queries), keys
    if halved:
        yield slice(0, queries // 2), queries // 2

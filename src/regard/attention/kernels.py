"""Ways to compute the same attention, and the choice between them.

A kernel looks at a call and either says why it cannot run it or runs it. `choose` takes the first of the list that
accepts, or the one forced by name; `attend` and `explain` both go through it, so what `explain` says is what runs.
The reference kernel is the ten lines in `core.py`; here is PyTorch's fused scaled_dot_product_attention (SDPA).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.attention.bias import Bias
from regard.attention.mask import Causal, Grid, Mask
from regard.attention.similarity import Similarity
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError, choose


@dataclass(frozen=True, eq=False)
class Call:
    """Everything one attention call was given."""

    query: Query
    key: Key
    value: Value
    similarity: Similarity
    mask: Mask | None
    bias: Bias | Tensor | None
    dropout: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the scores: (batch, heads, queries, keys)."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]


@dataclass(frozen=True)
class KernelChoice:
    """Which kernel a call takes, why, and why not the ones before it."""

    name: str
    why: str
    refused: dict[str, str] = field(default_factory=dict)


class Kernel(ABC):
    """One way to compute attention, equal to the reference to float rounding wherever it accepts."""

    name: str

    @abstractmethod
    def refuses(self, call: Call) -> str | None:
        """Why this kernel cannot run the call, or None where it can."""

    @abstractmethod
    def why(self, call: Call) -> str:
        """What makes it the right one, said of a call it accepts."""

    @abstractmethod
    def run(self, call: Call) -> Attended:
        """The attended values."""


def choose_kernel(call: Call, kernels: Sequence[Kernel], forced: str | None) -> tuple[Kernel, KernelChoice]:
    """The first kernel that accepts the call, or the forced one if it does."""
    if forced is not None:
        named = {kernel.name: kernel for kernel in kernels}
        if forced not in named:
            raise InputError(f"kernel {forced!r} is unknown", choose(forced, named))
        reason = named[forced].refuses(call)
        if reason:
            raise InputError(
                f"kernel {forced!r} cannot run this call: {reason}",
                "leave `kernel` out and the right one is chosen",
            )
        return named[forced], KernelChoice(forced, "forced by name")
    refused: dict[str, str] = {}
    for kernel in kernels:
        reason = kernel.refuses(call)
        if reason is None:
            return kernel, KernelChoice(kernel.name, kernel.why(call), refused)
        refused[kernel.name] = reason
    raise AssertionError("the reference kernel accepts every call")


def bias_values(bias: Bias | Tensor, grid: Grid, dtype: torch.dtype) -> Float[Tensor, "#batch #heads queries keys"]:
    """A bias object or tensor as numbers for this grid."""
    if isinstance(bias, Bias):
        return bias.values(grid).to(dtype)
    values = bias.view(*(1,) * (4 - bias.dim()), *bias.shape)
    return values.expand(-1, -1, grid.query.shape[2], grid.keys).to(dtype)


def sees_everything(mask: Mask | None, queries: int) -> bool:
    """Whether the mask allows all, known from the expression alone: none, or causal with one query at the end."""
    return mask is None or (isinstance(mask, Causal) and queries == 1)


class Sdpa(Kernel):
    """PyTorch's fused attention: no n×n table for no mask or a causal flag, a dense mask otherwise."""

    name = "sdpa"

    def refuses(self, call: Call) -> str | None:
        """What is not an inner product it cannot score."""
        if type(call.similarity).as_dot is Similarity.as_dot:
            return f"{type(call.similarity).__name__} is not an inner product of queries and keys"
        return None

    def why(self, call: Call) -> str:
        """Names the lowering the mask takes."""
        return f"an inner product runs fused; {self.lowering(call)}"

    def lowering(self, call: Call) -> str:
        """How the mask reaches the kernel, in words."""
        _, _, queries, keys = call.shape
        if call.bias is not None:
            return "the bias, with the mask folded in, goes as a dense tensor of numbers"
        if sees_everything(call.mask, queries):
            return "no mask is needed"
        if isinstance(call.mask, Causal) and queries == keys:
            return "the mask is the causal flag"
        return "the mask goes as a dense boolean tensor"

    def run(self, call: Call) -> Attended:
        """Lower the mask, fold shared key/value heads into the batch, and call SDPA."""
        dotted = call.similarity.as_dot(call.query, call.key)
        assert dotted is not None
        query, key, scale = dotted
        batch, heads, queries, keys = call.shape
        dense: Tensor | None = None
        causal = False
        if call.bias is not None:
            dense = bias_values(call.bias, Grid.of(call.shape, query.device), query.dtype)
            if call.mask is not None:
                dense = dense.masked_fill(~call.mask.dense(call.shape, query.device), -torch.inf)
        elif isinstance(call.mask, Causal) and queries == keys:
            causal = True
        elif not sees_everything(call.mask, queries):
            assert call.mask is not None
            dense = call.mask.dense(call.shape, query.device)
        value = call.value
        kv_heads = key.shape[1]
        group = heads // kv_heads
        if group > 1:
            # A group of query heads shares one key head: [batch·kv_heads, group, …] with the keys expanded, not copied.
            if dense is not None:
                dense = dense.expand(batch, heads, queries, keys).reshape(batch * kv_heads, group, queries, keys)
            query = query.reshape(batch * kv_heads, group, queries, -1)
            key, value = (
                shared.reshape(batch * kv_heads, 1, keys, -1).expand(-1, group, -1, -1) for shared in (key, value)
            )
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=dense, dropout_p=call.dropout, is_causal=causal, scale=scale
        )
        return out.reshape(batch, heads, queries, -1)

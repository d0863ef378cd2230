"""Ways to compute the same attention, and the choice between them.

A kernel looks at a call and says why it cannot run it (`unsupported`), why another is better for it (`unsuitable`), or
neither. `choose_kernel` takes the first of the list that does neither, or the one forced by name, which may be
declined but not refused; `attend` and `which_kernel` both go through it, so what `which_kernel` says is what runs.

The reference kernel is the ten lines in `core.py`. Here are PyTorch's fused ones; `bmm.py` holds the one for
short texts in bfloat16 and for learnt biases, `gathered.py` and `flex.py` those that work on live tiles.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention.bias import Bias
from regard.attention.lowering import dense_scores, dense_table, fully_masked, is_causal_flag, kept, sees_everything
from regard.attention.mask_algebra import Mask, Positions, Shape, structure
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
    positions: Positions | None = None
    """Where the queries stand among the keys; at their end where nothing is given."""

    @property
    def shape(self) -> Shape:
        """Of the scores: (batch, heads, queries, keys)."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.query.device

    @property
    def learns(self) -> bool:
        """Whether a gradient of the queries, keys or values may be asked for."""
        return torch.is_grad_enabled() and any(one.requires_grad for one in (self.query, self.key, self.value))

    @property
    def sees_everything(self) -> bool:
        """Whether the mask is known to allow all."""
        return sees_everything(self.mask, self.shape[2], self.positions)

    @property
    def causal_flag(self) -> bool:
        """Whether PyTorch's causal flag is the mask."""
        return is_causal_flag(self.mask, self.shape, self.positions)

    @property
    def kind(self) -> Hashable:
        """All that the choice of a kernel goes by, but for the mask: no number of a tensor is in it."""
        bias: Hashable = None
        if self.bias is not None:
            tensors = (self.bias,) if isinstance(self.bias, Tensor) else tuple(self.bias.parameters())
            bias = type(self.bias), any(one.requires_grad for one in tensors)
        grad = torch.is_grad_enabled(), self.query.requires_grad, self.key.requires_grad, self.value.requires_grad
        sizes = self.query.shape, self.key.shape, self.value.shape
        given = self.positions is not None, self.dropout > 0
        return (*sizes, self.query.dtype, self.device, type(self.similarity), bias, *grad, *given)

    @property
    def not_inner(self) -> str | None:
        """Why a kernel for inner products cannot score it."""
        if type(self.similarity).as_dot is Similarity.as_dot:
            return f"{type(self.similarity).__name__} is not an inner product of queries and keys"
        return None

    def dotted(self) -> tuple[Query, Key, float]:
        """(query', key', scale) of a similarity that is an inner product."""
        found = self.similarity.as_dot(self.query, self.key)
        assert found is not None
        return found


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
    def unsupported(self, call: Call) -> str | None:
        """Why this kernel cannot run the call, or None where it can."""

    def unsuitable(self, call: Call) -> str | None:
        """Why another kernel is better for the call, or None where this one is right."""
        return None

    @abstractmethod
    def why(self, call: Call) -> str:
        """What makes it the right one, said of a call it accepts."""

    @abstractmethod
    def run(self, call: Call) -> Attended:
        """The attended values."""


CHOICES = 4096
"""Kinds of calls whose kernel is remembered; beyond them all are forgotten."""
_chosen: dict[Hashable, tuple[Kernel, dict[str, str]]] = {}


def choose_kernel(call: Call, kernels: tuple[Kernel, ...], forced: str | None) -> tuple[Kernel, dict[str, str]]:
    """The first kernel that accepts the call, or the forced one if it can; and why those before it do not.

    Once for a kind of call and a structure of the mask. On a CPU a kernel may look at the numbers in a mask, so there
    the choice for one that holds any is kept with that mask, unless positions are given.
    """
    if forced is not None or torch.compiler.is_compiling():
        return _choose(call, kernels, forced)
    key: Hashable = (kernels, call.kind)
    mask, built = call.mask, structure(call.mask)
    if mask is not None and built.numbers and call.device.type == "cpu" and call.positions is None:
        return kept(mask, ("kernel", key), lambda: _choose(call, kernels, None))
    key = (built.words, key)
    if key not in _chosen:
        if len(_chosen) >= CHOICES:
            _chosen.clear()
        _chosen[key] = _choose(call, kernels, None)
    return _chosen[key]


def _choose(call: Call, kernels: Sequence[Kernel], forced: str | None) -> tuple[Kernel, dict[str, str]]:
    if forced is not None:
        named = {kernel.name: kernel for kernel in kernels}
        if forced not in named:
            raise InputError(f"kernel {forced!r} is unknown", choose(forced, named))
        reason = named[forced].unsupported(call)
        if reason:
            raise InputError(
                f"kernel {forced!r} cannot run this call: {reason}",
                "leave `kernel` out and the right one is chosen",
            )
        return named[forced], {}
    refused: dict[str, str] = {}
    for kernel in kernels:
        reason = kernel.unsupported(call) or kernel.unsuitable(call)
        if reason is None:
            return kernel, refused
        refused[kernel.name] = reason
    raise AssertionError("the reference kernel accepts every call")


class Sdpa(Kernel):
    """PyTorch's fused attention: no n×n table for no mask or a causal flag, a dense mask otherwise."""

    name = "sdpa"
    backends: tuple[SDPBackend, ...] = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
    """On a GPU; cuDNN is left out: it makes a plan for every new shape, longer than the call, and texts are ragged."""

    def unsupported(self, call: Call) -> str | None:
        """What is not an inner product it cannot score."""
        return call.not_inner

    def why(self, call: Call) -> str:
        """Names the lowering the mask takes."""
        return f"an inner product runs fused; {self.lowering(call)}"

    def lowering(self, call: Call) -> str:
        """How the mask reaches the kernel, in words."""
        if call.bias is not None:
            return "the bias, with the mask folded in, goes as a dense tensor of numbers"
        if call.sees_everything:
            return "no mask is needed"
        if call.causal_flag:
            return "the mask is the causal flag"
        return "the mask goes as a dense boolean tensor"

    def run(self, call: Call) -> Attended:
        """Lower the mask, fold shared key/value heads into the batch, and call SDPA."""
        query, key, scale = call.dotted()
        batch, heads, queries, keys = call.shape
        causal = call.bias is None and call.causal_flag
        dense: Tensor | None = None
        if call.bias is not None:
            dense = dense_scores(call.mask, call.bias, query, call.shape, call.positions)
        elif call.mask is not None and not causal and not call.sees_everything:
            dense = dense_table(call.mask, call.shape, query.device, call.positions)
        value = call.value
        wide, narrow = max(key.shape[-1], value.shape[-1]), value.shape[-1]
        if (
            key.shape[-1] != narrow
        ):  # of two widths PyTorch makes an n×n table; zeros change no score and are cut off again
            query, key, value = (F.pad(one, (0, wide - one.shape[-1])) for one in (query, key, value))
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
        with nullcontext() if call.device.type == "cpu" else sdpa_kernel(list(self.backends)):
            out = F.scaled_dot_product_attention(
                query, key, value, attn_mask=dense, dropout_p=call.dropout, is_causal=causal, scale=scale
            )
        if dense is not None and call.device.type != "cpu":  # there, rows that see nothing get the mean of all values
            out = out.masked_fill(fully_masked(dense), 0.0)
        return out[..., :narrow].reshape(batch, heads, queries, narrow)


class Cudnn(Sdpa):
    """The same through cuDNN, on a GPU in half precision with no table to carry: faster there than flash.

    It works on tiles of 128. In its backward pass what fills up the last tile counts as a score of 0 unless it stands
    behind the causal flag, and where real scores are very negative that overflows to NaN (pytorch issue 196678, cudnn-
    frontend issues 160 and 1072). So no mask ever reaches it, and without the flag it trains whole tiles only.
    """

    name = "cudnn"
    backends = (SDPBackend.CUDNN_ATTENTION,)
    tile = 128

    def unsupported(self, call: Call) -> str | None:
        """Everything but half precision on a GPU with no mask or the causal flag."""
        if call.not_inner:
            return call.not_inner
        if call.device.type != "cuda":
            return "it needs a CUDA device"
        if call.query.dtype not in (torch.bfloat16, torch.float16):
            return f"it computes in half precision, not {call.query.dtype}"
        if call.bias is not None or not (call.sees_everything or call.causal_flag):
            return "it takes no mask but the causal flag"
        partial = any(tokens % self.tile for tokens in call.shape[2:])
        if partial and call.learns and not call.causal_flag:
            return f"without the causal flag its gradient is not safe but for multiples of {self.tile} tokens"
        if (
            call.query.shape[-1] % 8
            or call.value.shape[-1] % 8
            or max(call.query.shape[-1], call.value.shape[-1]) > 128
        ):
            return f"heads of width {call.query.shape[-1]} do not fit it"
        return None

    def unsuitable(self, call: Call) -> str | None:
        """A handful of queries: the plan costs more than the product."""
        return "few queries do not fill it" if call.shape[2] < 64 else None

    def why(self, call: Call) -> str:
        """Names the lowering the mask takes."""
        return f"half precision on a GPU runs fastest there; {self.lowering(call)}"

"""Tensors, similarities and biases for attention calls: distinct primes, seeded, parameters drawn at random."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import pytest
import torch
from _pytest.mark.structures import ParameterSet
from torch import Tensor, nn

from regard.attention.bias import ALiBi, Bias, RelativeBuckets
from regard.attention.core import KERNELS, attend
from regard.attention.kernels import Call
from regard.attention.mask import Mask
from regard.attention.similarity import Similarity, similarity_module
from regard.errors import InputError
from rounding import assert_close


@dataclass(frozen=True)
class Sizes:
    """Of one call; `group` query heads share a key/value head."""

    batch: int = 2
    kv_heads: int = 3
    group: int = 1
    queries: int = 5
    keys: int = 7
    head_width: int = 4
    value_width: int = 11

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.queries, self.keys

    def draw(self, dtype: torch.dtype = torch.float32, *, grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        query = torch.randn(self.batch, self.heads, self.queries, self.head_width, dtype=torch.float64)
        key = torch.randn(self.batch, self.kv_heads, self.keys, self.head_width, dtype=torch.float64)
        value = torch.randn(self.batch, self.kv_heads, self.keys, self.value_width, dtype=torch.float64)
        return tuple(one.to(dtype).requires_grad_(grad) for one in (query, key, value))


def similarity_of(name: str, head_width: int) -> Similarity:
    """A similarity by name; what it learns is drawn anew, so that nothing hides behind an initial identity."""
    similarity = similarity_module(name, head_width)
    for parameter in similarity.parameters():
        nn.init.normal_(parameter, std=head_width**-0.5)
    return similarity


BIASES: dict[str, Callable[[Sizes], Bias | Tensor | None]] = {
    "no bias": lambda sizes: None,
    "alibi": lambda sizes: ALiBi(sizes.heads),
    "t5": lambda sizes: RelativeBuckets(sizes.heads, buckets=8, max_distance=19),
    "tensor": lambda sizes: torch.randn(sizes.scores),
    "shared tensor": lambda sizes: torch.randn(sizes.queries, sizes.keys),
}


def by_turns(fixed: Sequence[tuple[str, ...]], turning: Sequence[tuple[str, ...]]) -> list[ParameterSet]:
    """Every combination, as parameters; what is not slow has each of the fixed once, and each of the turning."""
    assert len(fixed) >= len(turning)
    return [
        pytest.param(*one, *other, id="-".join((*one, *other)), marks=[] if at == turn else [pytest.mark.slow])
        for at, one in zip(cycle(range(len(turning))), fixed, strict=False)
        for turn, other in enumerate(turning)
    ]


def refused(kernel: str, call: Call) -> bool:
    """Whether a kernel cannot run a call; forcing it then says so in a sentence."""
    [found] = [one for one in KERNELS if one.name == kernel]
    reason = found.unsupported(call)
    if reason is not None:
        with pytest.raises(InputError, match=f"'{kernel}' cannot run this call: {re.escape(reason)}"):
            attend(
                call.query,
                call.key,
                call.value,
                similarity=call.similarity,
                mask=call.mask,
                bias=call.bias,
                dropout=call.dropout,
                kernel=kernel,
            )
    return reason is not None


def outcome(
    given: Sequence[Tensor],
    similarity: Similarity,
    mask: Mask | None,
    bias: Bias | Tensor | None,
    kernel: str,
) -> dict[str, Tensor] | None:
    """What attention gives, and the gradients of everything it was given and has learnt, by name; None if refused."""
    leaves = {name: one.detach().clone().requires_grad_() for name, one in zip("qkv", given, strict=True)}
    if isinstance(bias, Tensor):
        bias = leaves["bias"] = bias.detach().clone().requires_grad_()
    for part in (similarity, bias):
        if isinstance(part, nn.Module):
            leaves |= {f"{type(part).__name__}.{name}": parameter for name, parameter in part.named_parameters()}
    query, key, value = (leaves[name] for name in "qkv")
    if refused(kernel, Call(query, key, value, similarity, mask, bias, 0.0)):
        return None
    out = attend(query, key, value, similarity=similarity, mask=mask, bias=bias, kernel=kernel)
    towards = torch.cos(torch.arange(out.numel()).reshape(out.shape)).to(out)  # any fixed direction, no symmetry in it
    gradients = torch.autograd.grad((out * towards).sum(), list(leaves.values()))
    return {"output": out.detach()} | dict(zip(leaves, gradients, strict=True))


def assert_same(own: dict[str, Tensor] | None, peer: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    """Both dictionaries hold the same numbers up to rounding."""
    if own is None:
        return  # the kernel refused, which `refused` has checked
    assert own.keys() == peer.keys()
    for name, one in own.items():
        assert_close(one, peer[name].to(one.dtype), tolerance, name)

"""What sparse attention means: the ten lines in float64 under a table worked out one pair of tokens at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from regard.attention import gathered
from regard.attention.efficient import block_sparse

Rule = Callable[[int, int, int, int], bool]
"""May (batch, head, query, key) attend?"""


def table(rule: Rule, batch: int, heads: int, queries: int, keys: int) -> Tensor:
    return torch.tensor(
        [
            [[[rule(b, h, q, k) for k in range(keys)] for q in range(queries)] for h in range(heads)]
            for b in range(batch)
        ]
    )


def ten_lines(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """Softmax attention; a row that may see nothing reads nothing."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(dim=-1).nan_to_num(0.0)
    return weights @ value


@contextmanager
def small_tiles(size: int = 8) -> Iterator[None]:
    """Tiles of so many tokens, used however short the text: what long texts take, small enough to be worked out."""
    with patch.object(gathered, "SIZE", size), patch.object(block_sparse, "SHORTEST", 1):
        yield


def draw(batch: int, heads: int, kv_heads: int, tokens: int, width: int = 4, value_width: int = 3) -> list[Tensor]:
    sizes = (heads, width), (kv_heads, width), (kv_heads, value_width)
    return [torch.randn(batch, count, tokens, wide, dtype=torch.float64, requires_grad=True) for count, wide in sizes]


def with_gradients(given: list[Tensor], run: Callable[..., Tensor]) -> dict[str, Tensor]:
    """The output and every gradient, by name, of what runs in float32."""
    leaves = [one.detach().requires_grad_() for one in given]
    out = run(*leaves)
    towards = torch.cos(torch.arange(out.numel()).reshape(out.shape)).to(out)
    found = torch.autograd.grad((out * towards).sum(), leaves, allow_unused=True)
    gradients = [torch.zeros_like(one) if grad is None else grad for one, grad in zip(leaves, found, strict=True)]
    return {"output": out.detach()} | {f"gradient {at}": one for at, one in enumerate(gradients)}

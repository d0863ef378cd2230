"""What a call of `torch.nn.MultiheadAttention` amounts to: queries and keys in heads, and the masks in our words.

Its weights are then computed row by row as everywhere else, whichever way PyTorch took. Where a mask is `True` PyTorch
forbids and we allow; masks of numbers are added to the scores.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.cache import KeyValues
from regard.attention.mask import Dense, Mask, Padding

NAMES = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")
"""Of the arguments, in their order."""


def unsupported(module: nn.MultiheadAttention) -> str | None:
    """Why the attention of a module cannot be followed, or None where it can."""
    if module.bias_k is not None or module.bias_v is not None:
        return "it adds a learnt key and value to every text (add_bias_kv)"
    return "it adds a key of zeros to every text (add_zero_attn)" if module.add_zero_attn else None


@torch.no_grad()
def as_given(module: nn.MultiheadAttention, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as `Attend` would get them: query, memory, mask and bias."""
    called = dict(zip(NAMES, args, strict=False)) | options
    texts, lengths = zip(*(_batched(called[name], module.batch_first) for name in NAMES[:3]), strict=True)
    query, key, value = (
        F.linear(text, weight, bias).view(*text.shape[:2], module.num_heads, -1).transpose(1, 2)
        for text, weight, bias in zip(texts, *_projections(module), strict=True)
    )
    mask: Mask | None = None if lengths[1] is None else Padding(lengths[1])
    shape = (*query.shape[:3], key.shape[2])
    bias: Tensor | None = None
    for one in _tables(called, shape):
        if one.dtype != torch.bool:
            bias = one if bias is None else bias + one
        else:
            allowed = _mask(one, shape)
            mask = allowed if mask is None else mask & allowed
    return {"query": query, "memory": KeyValues(key, value), "mask": mask, "bias": bias}


def _batched(text: Tensor, batch_first: bool) -> tuple[Tensor, Tensor | None]:
    """[batch, tokens, width] however it was given; of a nested tensor, the lengths too."""
    if text.is_nested:
        lengths = torch.tensor([len(row) for row in text.unbind()], device=text.device)
        return text.to_padded_tensor(0.0), lengths
    if text.dim() == 2:
        return text[None], None
    return (text if batch_first else text.transpose(0, 1)), None


def _projections(module: nn.MultiheadAttention) -> tuple[list[Tensor], list[Tensor | None]]:
    """The weights and biases of query, key and value."""
    apart = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    weights = list(module.in_proj_weight.chunk(3)) if module.in_proj_weight is not None else list(apart)
    biases: list[Tensor | None] = [None] * 3 if module.in_proj_bias is None else list(module.in_proj_bias.chunk(3))
    return weights, biases


def _tables(called: dict[str, Any], shape: tuple[int, int, int, int]) -> list[Tensor]:
    """The masks of a call, each with four axes."""
    batch, heads, _, keys = shape
    found = []
    if (hidden := called.get("key_padding_mask")) is not None:
        found.append(hidden.view(batch, 1, 1, keys))
    if (table := called.get("attn_mask")) is not None:
        found.append(table[None, None] if table.dim() == 2 else table.view(batch, heads, *table.shape[1:]))
    # PyTorch's own layers turn booleans into zeros and −inf on the way.
    return [one.isneginf() if one.dtype != torch.bool and _only_forbids(one) else one for one in found]


def _only_forbids(numbers: Tensor) -> bool:
    return bool((numbers.isneginf() | (numbers == 0)).all())


def _mask(forbidden: Tensor, shape: tuple[int, int, int, int]) -> Mask:
    """As padding where it is that, so that it is known what is text and what is not; else as a table."""
    if forbidden.shape[1:3] == (1, 1):
        lengths = (~forbidden).sum(dim=-1).flatten()
        for padding in (Padding(lengths), Padding(lengths, side="left")):
            if torch.equal(padding.dense(shape, forbidden.device)[:, :, :1], ~forbidden):
                return padding
    return Dense(~forbidden.expand(-1, -1, shape[2], -1))

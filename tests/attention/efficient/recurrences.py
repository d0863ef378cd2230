"""Linear attention written twice more, each in a few lines: token by token, and as the n×n matrix it never makes."""

import torch
from torch import Tensor


def by_steps(query, key, value, log_decay=None, state=None) -> tuple[Tensor, Tensor]:
    """`S_t = exp(g_t) S_{t−1} + k_tᵀ v_t` and `o_t = q_t S_t`, one token after the other."""
    if state is None:
        state = query.new_zeros(*key.shape[:2], key.shape[3], value.shape[3])
    out = []
    for token in range(query.shape[2]):
        if log_decay is not None:
            state = state * log_decay[:, :, token, :, None].exp()
        state = state + key[:, :, token, :, None] * value[:, :, token, None, :]
        out.append((query[:, :, token, None] @ state)[:, :, 0])
    return torch.stack(out, dim=2), state


def as_mean(weights: Tensor, value: Tensor, causal: bool, real: Tensor | None = None) -> Tensor:
    """Values weighed by positive weights, each row of them divided by its sum; without a key, zeros."""
    if causal:
        weights = weights.tril()
    if real is not None:
        weights = weights * real[:, None, None]
    total = weights.sum(dim=-1, keepdim=True)
    return (weights / total.where(total > 0, 1.0)) @ value


def real_tokens(lengths: list[int], tokens: int, side: str) -> Tensor:
    """Where text stands."""
    columns, texts = torch.arange(tokens)[None], torch.tensor(lengths)[:, None]
    return columns < texts if side == "right" else columns >= tokens - texts

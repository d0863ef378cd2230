"""Gated linear attention (Yang et al. 2024): a state that each token lets fade before it adds its key and value.

    S_t = α_tᵀ1 ⊙ S_{t−1} + k_tᵀ v_t        o_t = q_t S_t / √d_k          (eq. 3; §4.4, with the normalisation and gate of the output)

The gates α_t are computed from the token itself: one for each feature of a key, sigmoid(x W₁ W₂ + b)^{1/τ} with W₁ and W₂ of low
rank and τ = 16 (§4.4), or one for each head, which is the recurrence of RetNet with a gate that looks, and of Mamba-2's
SSD (Dao and Gu 2024, eq. 16). The arithmetic is `chunked.py`'s. Nothing is divided by a sum of weights: they need not be positive.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.core import checked
from regard.attention.efficient.chunked import CHUNK, LogDecay, Sums, Valued, scan, spread
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError


def gated_linear_attention(
    query: Query,
    key: Key,
    value: Value,
    log_decay: LogDecay,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Attended:
    """What every query reads of its own token and those before, faded by the gates of the tokens between."""
    checked(query, key, value, "scaled_dot", None, None, 0.0)
    return gated_linear_scan(query, key, value, log_decay, real=real)[0]


def gated_linear_scan(
    query: Query,
    key: Key,
    value: Value,
    log_decay: LogDecay,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """The same from a state on, and the state behind the last token; padding adds nothing and fades nothing."""
    if log_decay.shape[3] not in (1, key.shape[3]):
        raise InputError(
            f"{log_decay.shape[3]} gates do not fit keys of width {key.shape[3]}", f"give 1 or {key.shape[3]}"
        )
    key, value = (spread(one, query.shape[1]) for one in (key, value))
    if real is not None:
        key, log_decay = key * real[:, None, :, None], log_decay.masked_fill(~real[:, None, :, None], 0.0)
    out, state = scan(query * query.shape[3] ** -0.5, key, value, log_decay, state=state, chunk=chunk)
    return out.to(value.dtype), state

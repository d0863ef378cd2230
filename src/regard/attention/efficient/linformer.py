"""Linformer (Wang et al. 2020): keys and values projected along the length, so that queries meet a few of them.

    head_i = softmax(Q_i (E_i K_i)ᵀ / √d_k) · F_i V_i          E_i and F_i: [projected, tokens], learnt (eq. 7)

A text of n tokens meets the first n columns of E and F, up to the number they were made for; padding meets none, and places
are counted from a text's first token. With n rows and the identity for E and F this is exact attention of n tokens.

Every row of E K mixes all tokens, later ones too, so a causal Linformer does not exist. E and F can be shared (§4,
"Parameter sharing"): by the heads, by keys and values as well, or by all layers.
"""

from jaxtyping import Bool, Float
from torch import Tensor

import torch

from regard.attention.core import attend, checked
from regard.attention.similarity import Similarity
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError

LengthProjection = Float[Tensor, "#kv_heads longest projected"]
"""E or F, a column of the paper's a row of ours: for every place what it adds to each of the projected tokens."""


def linformer_attention(
    query: Query,
    key: Key,
    value: Value,
    key_projection: LengthProjection,
    value_projection: LengthProjection,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    similarity: str | Similarity = "scaled_dot",
    dropout: float = 0.0,
) -> Attended:
    """Exact attention to the projected keys and values."""
    checked(query, key, value, similarity, None, None, dropout)
    key, value = (project(*one, real) for one in ((key, key_projection), (value, value_projection)))
    return attend(query, key, value, similarity=similarity, dropout=dropout)


def project(
    inputs: Float[Tensor, "batch kv_heads keys any_width"],
    projection: LengthProjection,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Float[Tensor, "batch kv_heads projected any_width"]:
    """Keys or values mixed into as many as the projection has; padding adds nothing, wherever it stands."""
    tokens, longest = inputs.shape[2], projection.shape[1]
    if tokens > longest:
        raise InputError(
            f"{tokens} tokens are more than the {longest} that this Linformer's projections were made for",
            "cut the text, or train with a larger max_tokens",
        )
    if real is not None:
        inputs = from_the_first(inputs * real[:, None, :, None], real)
    shares = "nk,bhnd->bhkd" if projection.shape[0] == 1 else "hnk,bhnd->bhkd"
    rows = projection[0, :tokens] if projection.shape[0] == 1 else projection[:, :tokens]
    return torch.einsum(shares, rows.to(inputs.dtype), inputs)


def from_the_first(
    inputs: Float[Tensor, "batch heads tokens any_width"], real: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch heads tokens any_width"]:
    """The same tokens turned round until each text's first one stands first."""
    tokens = inputs.shape[2]
    places = torch.arange(tokens, device=inputs.device)[None] + real.int().argmax(dim=1, keepdim=True)
    return inputs.gather(2, (places % tokens)[:, None, :, None].expand_as(inputs))

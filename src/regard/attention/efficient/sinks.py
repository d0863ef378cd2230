"""A sliding window with attention sinks (StreamingLLM, Xiao et al. 2023, §3.2): the last tokens, and the very first.

    ■ · · · · · ·     window 3, 1 sink: without the first tokens, on which every softmax puts what it need not put
    ■ ■ · · · · ·     anywhere else (§3.1), a window's outputs collapse as soon as they leave it
    ■ ■ ■ · · · ·
    ■ ■ ■ ■ · · ·     Decoding keeps the sinks and the window, however long the text: constant memory and time a token.
    ■ · ■ ■ ■ · ·
    ■ · · ■ ■ ■ ·     Positions are those of the text; the paper counts them within the cache, for models that were
    ■ · · · ■ ■ ■     trained on whole, short texts.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.efficient.block_sparse import GlobalKeys, attend_sparse
from regard.attention.mask import Causal, Window
from regard.attention.mask_algebra import Mask
from regard.axes import Attended, Key, Query, Value


def sinks_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    window: int,
    sinks: int,
    places: Int[Tensor, "#batch keys"] | None = None,
    mask: Mask | None = None,
    bias: Bias | None = None,
) -> Attended:
    """Every token reads the `window` last ones, itself included, and the first `sinks` of its text.

    `places` says where each key stands in its own text, counted from 0, below 0 in padding; from the first if absent.
    """
    pattern = sinks_mask(window, sinks, key.shape[2], query.device, places)
    return attend_sparse(query, key, value, mask=pattern if mask is None else pattern & mask, bias=bias)


def sinks_mask(
    window: int, sinks: int, keys: int, device: torch.device, places: Int[Tensor, "#batch keys"] | None = None
) -> Mask:
    """`Causal() & (Window(window) | the first sinks)`."""
    if not sinks:
        return Causal() & Window(window)
    places = torch.arange(keys, device=device)[None] if places is None else places
    return Causal() & (Window(window) | GlobalKeys((places >= 0) & (places < sinks)))

"""Linear recurrences over keys and values, read in chunks: what all attention with a constant state is made of.

    S_t = exp(g_t) ⊙ S_{t−1} + k_tᵀ v_t        S_t: [width of a key, of a value]; g_t ≤ 0 is the log of a gate
    o_t = q_t S_t                              what a query reads

Token by token this is slow, and as an n×n matrix of q_i·k_j · exp(g_{j+1} + … + g_i) it is quadratic. In chunks (Hua
et al. 2022, §3; Yang et al. 2024, §4) it is neither: states are computed only between chunks, and within a chunk
queries meet keys. Time and memory grow with the length alone, and all of it is differentiable as written.

Decays stay logarithms, and are only ever added up from one token to a later one, never subtracted: no exponent is
positive, and a gate that is nearly shut does not round away the gates beside it. Numbers are float32 at least, also
under autocast.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from regard.errors import InputError

Keyed = Float[Tensor, "batch heads tokens features"]
Valued = Float[Tensor, "batch heads tokens value_width"]
LogDecay = Float[Tensor, "batch heads tokens gates"]
"""One number for a token and head, or one for each feature of its key."""
Sums = Float[Tensor, "batch heads features columns"]

CHUNK = 64
LEAST = 1e-30
"""A sum of weights below this counts as nothing: such a row reads zeros."""


def scan(
    query: Keyed,
    key: Keyed,
    value: Valued,
    log_decay: LogDecay | None = None,
    *,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """What every query reads of its own token and those before, and the state behind the last.

    `state` is that of the tokens before these; `chunk`, a power of two, is how many tokens are read at once.
    """
    if chunk < 1 or chunk & (chunk - 1):
        raise InputError(f"a chunk of {chunk} tokens is not a power of two", "use 16, 32, 64 or 128")
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (widened(one) for one in (query, key, value))
        log_decay = None if log_decay is None else widened(log_decay)
        tokens = query.shape[2]
        if tokens == 1 and state is not None:
            kept = state if log_decay is None else state * log_decay.mT.exp()
            state = kept + key.mT * value
            return query @ state, state
        chunk = min(chunk, 1 << (tokens - 1).bit_length())
        query, key, value = (cut(one, chunk) for one in (query, key, value))
        if log_decay is None:
            states = torch.cat((_empty(key, value, state), key.mT @ value), dim=2).cumsum(dim=2)
            out = query @ states[:, :, :-1] + (query @ key.mT).tril() @ value
        else:
            log_decay = cut(log_decay, chunk)
            through, after = since(log_decay), until(log_decay)
            added = torch.cat((_empty(key, value, state), (key * after.exp()).mT @ value), dim=2)
            states = accumulate(F.pad(through[..., -1, :].exp(), (0, 0, 1, 0))[..., None], added)
            out = (query * through.exp()) @ states[:, :, :-1]
            out = out + (_within if log_decay.shape[-1] == 1 else _within_by_feature)(query, key, value, log_decay)
        return out.flatten(2, 3)[:, :, :tokens], states[:, :, -1]


def normalised_scan(
    query: Keyed,
    key: Keyed,
    value: Valued,
    log_decay: LogDecay | None = None,
    *,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """The same as a mean: divided by the sum of the weights, which is one more column of the state."""
    summed, state = scan(query, key, with_ones(value), log_decay, state=state, chunk=chunk)
    return divided(summed), state


def with_ones(value: Valued) -> Float[Tensor, "batch heads tokens columns"]:
    """Values with a column of ones behind them: what is summed of it is the sum of the weights."""
    return F.pad(widened(value), (0, 1), value=1.0)


def divided(summed: Float[Tensor, "batch heads queries columns"]) -> Float[Tensor, "batch heads queries value_width"]:
    """Sums of weighted values by the sum of their weights, their last column."""
    return summed[..., :-1] / summed[..., -1:].clamp(min=LEAST)


def spread(
    shared: Float[Tensor, "batch kv_heads tokens width"], heads: int
) -> Float[Tensor, "batch heads tokens width"]:
    """Fewer key/value heads, each repeated for the query heads that share it."""
    return shared if shared.shape[1] == heads else shared.repeat_interleave(heads // shared.shape[1], dim=1)


def restarts(documents: Tensor) -> Bool[Tensor, "batch tokens"]:
    """Where a text begins that must not see what stands before it: the first token, and where the document changes."""
    return F.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)


def widened(tensor: Tensor) -> Tensor:
    """In float32, or wider if it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def cut(tensor: Tensor, chunk: int) -> Float[Tensor, "batch heads chunks chunk width"]:
    """Into chunks; what is missing of the last is zeros, which add nothing and decay nothing."""
    whole = F.pad(tensor, (0, 0, 0, -tensor.shape[2] % chunk))
    return whole.view(*whole.shape[:2], -1, chunk, whole.shape[3])


def since(log_decay: Tensor) -> Tensor:
    """The decay from before a piece's first token through each of its tokens."""
    return log_decay.cumsum(dim=-2)


def until(log_decay: Tensor) -> Tensor:
    """The decay from each token of a piece to its end: that of the tokens behind it."""
    return F.pad(log_decay[..., 1:, :].flip(-2).cumsum(dim=-2).flip(-2), (0, 0, 0, 1))


def accumulate(decay: Tensor, added: Tensor) -> Tensor:
    """`S_c = decay_c · S_{c−1} + added_c` for all c along the third axis, S before the first being 0.

    Two neighbours are one step of a recurrence half as long: as many products as steps, in logarithmically many calls.
    """
    if added.shape[2] == 1:
        return added
    first, second = added[:, :, : added.shape[2] // 2 * 2 : 2], added[:, :, 1::2]
    decay_first, decay_second = decay[:, :, : added.shape[2] // 2 * 2 : 2], decay[:, :, 1::2]
    odd = accumulate(decay_second * decay_first, decay_second * first + second)
    even = torch.cat(
        (added[:, :, :1], decay[:, :, 2::2] * odd[:, :, : (added.shape[2] - 1) // 2] + added[:, :, 2::2]), 2
    )
    paired = torch.stack((even[:, :, : odd.shape[2]], odd), dim=3).flatten(2, 3)
    return torch.cat((paired, even[:, :, odd.shape[2] :]), dim=2)


def _empty(key: Tensor, value: Tensor, state: Sums | None) -> Tensor:
    """What stands before the first chunk."""
    if state is not None:
        return widened(state)[:, :, None]
    return key.new_zeros(*key.shape[:2], 1, key.shape[-1], value.shape[-1])


def _within(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """A chunk's queries and its own keys, where a token has one gate (Dao and Gu 2024, §6).

    The decay between two tokens is summed for each pair by itself, below the diagonal.
    """
    chunk = query.shape[-2]
    between = log_decay.expand(*log_decay.shape[:-1], chunk).tril(-1).cumsum(dim=-2)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=query.device).triu(1)
    return ((query @ key.mT).tril() * between.masked_fill(later, -torch.inf).exp()) @ value


def _within_by_feature(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """A chunk's queries and its own keys, where every feature has its gate (Yang et al. 2024, §4.3).

    The later half of a piece reads its earlier half across the middle: the decay from a key to the middle and that from
    there to the query are both at most 1, so either can be multiplied into its vectors. Pieces of 2, 4, 8 … tokens.
    """
    out = (query * key).sum(dim=-1, keepdim=True) * value
    size = 1
    while size < query.shape[-2]:
        earlier, later = (slice(0, None, 2), slice(1, None, 2))
        queries, keys, values, decays = (
            one.reshape(*one.shape[:-2], -1, size, one.shape[-1]) for one in (query, key, value, log_decay)
        )
        asked = queries[..., later, :, :] * since(decays[..., later, :, :]).exp()
        kept = keys[..., earlier, :, :] * until(decays[..., earlier, :, :]).exp()
        read = (asked @ kept.mT) @ values[..., earlier, :, :]
        out = out + torch.stack((torch.zeros_like(read), read), dim=-3).flatten(-4, -2)
        size *= 2
    return out

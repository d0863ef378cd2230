"""The gated delta rule (Yang et al. 2024, "Gated Delta Networks", §3): a state is corrected before it is added to.

    S_t = α_t S_{t−1} + β_t k_tᵀ (v_t − α_t k_t S_{t−1})        o_t = q_t S_t          (eq. 10, transposed)

What the state answers for a key is moved towards the value by the rate β, so a key that comes again replaces what it
stood for. Token by token this is slow. In chunks (§3.3) the corrections d_t = β_t (v_t − …) of a chunk are found
together: those of a state of zeros, and what the state before the chunk changes about them, are the solution of one
triangular system of keys with keys. Decays are added up, and never subtracted, as in `chunked.py`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from regard.attention.efficient.chunked import CHUNK, Keyed, LogDecay, Sums, Valued, cut, since, spread, until, widened
from regard.axes import Key, Query, Value

Rates = Float[Tensor, "batch heads tokens 1"]


def gated_delta_rule(
    query: Query,
    key: Key,
    value: Value,
    log_decay: LogDecay,
    rate: Rates,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """What every query reads of its own token and those before, and the state behind the last; keys and queries are
    taken at length 1. Padding corrects nothing and fades nothing."""
    dtype = value.dtype
    with torch.autocast(query.device.type, enabled=False):
        query, key, value, log_decay, rate = (widened(one) for one in (query, key, value, log_decay, rate))
        query, key = F.normalize(query, dim=3) * query.shape[3] ** -0.5, F.normalize(key, dim=3)
        key, value = (spread(one, query.shape[1]) for one in (key, value))
        if real is not None:
            text = real[:, None, :, None]
            key, value, rate, log_decay = key * text, value * text, rate * text, log_decay.masked_fill(~text, 0.0)
        if query.shape[2] == 1 and state is not None:
            state = state * log_decay.mT.exp()
            state = state + key.mT @ (rate * (value - key @ state))
            return (query @ state).to(dtype), state
        out, state = _in_chunks(query, key, value, log_decay, rate, state=state, chunk=chunk)
    return out.to(dtype), state


def _in_chunks(
    query: Keyed, key: Keyed, value: Valued, log_decay: LogDecay, rate: Rates, *, state: Sums | None, chunk: int
) -> tuple[Valued, Sums]:
    tokens = query.shape[2]
    chunk = min(chunk, tokens)
    query, key, value, log_decay, rate = (cut(one, chunk) for one in (query, key, value, log_decay, rate))
    between = log_decay.expand(*log_decay.shape[:-1], chunk).tril(-1).cumsum(dim=-2)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=query.device).triu(1)
    faded = between.masked_fill(later, -torch.inf).exp()
    through = since(log_decay).exp()
    system = rate * (key @ key.mT) * faded  # its diagonal is taken as ones
    asked = torch.cat((rate * value, rate * key * through), dim=-1)
    solved = torch.linalg.solve_triangular(system, asked, upper=False, unitriangular=True)
    alone, changed = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    if state is None:
        state = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1])
    kept, written = through[..., -1:, :], (key * until(log_decay).exp()).mT
    states, corrections = [], []
    for each, by_state, keeps, writes in zip(*(one.unbind(2) for one in (alone, changed, kept, written)), strict=True):
        states.append(state)
        corrections.append(each - by_state @ state)
        state = keeps * state + writes @ corrections[-1]
    before, corrected = torch.stack(states, dim=2), torch.stack(corrections, dim=2)
    out = (query * through) @ before + ((query @ key.mT) * faded) @ corrected
    return out.flatten(2, 3)[:, :, :tokens], state

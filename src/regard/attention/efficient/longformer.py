"""Longformer (Beltagy et al. 2020, §3): every token sees its neighbours, a few global ones see and are seen by all.

    ■ ■ ■ · · · ·     a window of so many tokens on both sides (§3.1, figure 2b), with gaps where a head is dilated (2c),
    ■ ■ · · · · ·     and global tokens (2d, here the first): their column is live, and their row reads by projections
    ■ ■ ■ ■ · · ·     Q_g, K_g, V_g of its own (§3.1, "Linear projections for global attention")
    ■ · ■ ■ ■ · ·

Time and memory grow as tokens × (window · dilation + global tokens). Hugging Face's `attention_window = W` is
`Window(W // 2 + 1)`: W // 2 tokens on either side and oneself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.core import attend
from regard.attention.efficient.block_sparse import GlobalKeys, attend_sparse, keys_of
from regard.attention.mask import Dense, Dilated, Window
from regard.attention.mask_algebra import And, Grid, Mask, Or
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError


@dataclass(frozen=True, eq=False)
class GlobalTokens:
    """Where the global tokens stand, and what they read with: queries of theirs alone, keys and values of all tokens."""

    positions: Int[Tensor, "#batch globals"]
    """Of each sequence; −1 where it has fewer."""
    query: Query
    key: Key
    value: Value


def local_masks(window: int, dilation: Sequence[int]) -> tuple[Window | Dilated, ...]:
    """The pattern of every head: `window` tokens on each side counting oneself, `dilation[head]` apart.

    Heads of one dilation share one mask.
    """
    made: dict[int, Window | Dilated] = {}
    for step in dilation:
        made.setdefault(step, Window(window) if step == 1 else Dilated(window, step))
    return tuple(made[step] for step in dilation)


def longformer_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    local: Sequence[Window | Dilated],
    global_tokens: GlobalTokens | None = None,
    mask: Mask | None = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Attended:
    """Every token reads its neighbours by its head's pattern and the global tokens; global ones read everything.

    `mask` says who may see whom at all: `Causal()`, `Padding(…)`, any.
    """
    batch, heads, tokens, _ = query.shape
    if len(local) != heads:
        raise InputError(f"{len(local)} patterns do not fit {heads} heads", "give each head one: see local_masks")
    seen = None if global_tokens is None else GlobalKeys(keys_of(tokens, global_tokens.positions))
    run = partial(attend_sparse, bias=bias, dropout=dropout)
    patterns = list(dict.fromkeys(local))
    if len(patterns) == 1:
        out = run(query, key, value, mask=joined(patterns[0], seen, mask))
    else:
        if bias is not None:
            raise InputError("a bias for all heads does not fit some of them", "give all heads one dilation")
        out = _by_pattern(query, key, value, local, lambda one: joined(one, seen, mask), run)
    if global_tokens is None:
        return out
    read = global_rows(global_tokens, mask, bias, dropout)
    where = global_tokens.positions.expand(batch, -1)
    return put_rows(out, where, read)


def joined(local: Mask, seen: Mask | None, mask: Mask | None) -> Mask:
    """Neighbours or global tokens, where they may be seen at all."""
    pattern = local if seen is None else Or(local, seen)
    return pattern if mask is None else And(pattern, mask)


def _by_pattern(
    query: Query,
    key: Key,
    value: Value,
    local: Sequence[Mask],
    whole: Callable[[Mask], Mask],
    run: Callable[..., Attended],
) -> Attended:
    """Heads of one pattern at a time, then in their order again; key heads that are shared are given to each."""
    group = query.shape[1] // key.shape[1]
    outs, order = [], []
    for pattern in dict.fromkeys(local):
        chosen = [head for head, one in enumerate(local) if one is pattern]
        shared = [head // group for head in chosen]
        outs.append(run(query[:, chosen], key[:, shared], value[:, shared], mask=whole(pattern)))
        order += chosen
    return torch.cat(outs, dim=1)[:, torch.tensor(order).argsort()]


def global_rows(given: GlobalTokens, mask: Mask | None, bias: Bias | None, dropout: float = 0.0) -> Attended:
    """What the global tokens read: everything that may be seen, globals × tokens."""
    batch, heads, count, _ = given.query.shape
    tokens, device = given.key.shape[2], given.query.device
    grid = Grid(
        torch.arange(batch, device=device).view(-1, 1, 1, 1),
        torch.arange(heads, device=device).view(1, -1, 1, 1),
        given.positions.clamp(min=0)[:, None, :, None],
        torch.arange(tokens, device=device).view(1, 1, 1, -1),
        tokens,
    )
    table = None
    if mask is not None:
        allowed = mask.allowed(grid)
        table = Dense(allowed.expand(batch, allowed.shape[1], count, tokens))
    added = None if bias is None else bias.values(grid).to(given.query.dtype)
    return attend(given.query, given.key, given.value, mask=table, bias=added, dropout=dropout)


def put_rows(
    out: Attended,
    positions: Int[Tensor, "batch globals"],
    rows: Float[Tensor, "batch heads globals value_width"],
) -> Attended:
    """The rows at their positions; −1 goes nowhere."""
    tokens = out.shape[2]
    places = torch.where(positions < 0, tokens, positions)[:, None, :, None].expand_as(rows)
    room = torch.cat((out, out[:, :, :1]), dim=2)
    return room.scatter(2, places, rows)[:, :, :tokens]

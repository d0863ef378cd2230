"""Longformer (Beltagy et al. 2020, §3): every token sees its neighbours, a few global ones see and are seen by all.

    ■ ■ ■ · · · ·     so many tokens on both sides (§3.1, figure 2b), with gaps where a head is dilated (2c),
    ■ ■ · · · · ·     and global tokens (2d, here the first): their column is live, and their row reads by projections
    ■ ■ ■ ■ · · ·     Q_g, K_g, V_g of its own (§3.1, "Linear projections for global attention")
    ■ · ■ ■ ■ · ·

Time and memory grow as tokens × (window · dilation + global tokens). Looking back alone it is the paper's language
model (§4.1); decoding keeps what the window reaches and the first tokens. Here is the arithmetic, and which tokens are
global; `longformer_layer.py` has the layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
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
    """Where the global tokens stand, and what they read with: queries of their own, keys and values of all tokens."""

    positions: Int[Tensor, "#batch globals"]
    """Of each sequence; −1 where it has fewer."""
    query: Float[Tensor, "batch heads globals head_width"]
    key: Key
    value: Value


def local_masks(window: int, dilation: Sequence[int]) -> tuple[Window | Dilated, ...]:
    """The pattern of every head: `window` tokens on each side and oneself, `dilation[head]` apart.

    Heads of one dilation share one mask.
    """
    made: dict[int, Window | Dilated] = {}
    for step in dilation:
        made.setdefault(step, Window(window + 1) if step == 1 else Dilated(window + 1, step))
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
    if global_tokens is None:
        return read_near(query, key, value, whole_masks(local, None, mask), bias, dropout)
    seen = GlobalKeys(keys_of(key.shape[2], global_tokens.positions))
    out = read_near(query, key, value, whole_masks(local, seen, mask), bias, dropout)
    return put_rows(out, global_tokens.positions, read_all(global_tokens, mask, bias, dropout))


def whole_masks(local: Sequence[Mask], seen: Mask | None, mask: Mask | None) -> tuple[Mask, ...]:
    """Of every head: neighbours or global tokens, where they may be seen at all; heads that shared a mask still do."""
    made: dict[Mask, Mask] = {}
    for pattern in dict.fromkeys(local):
        both = pattern if seen is None else Or(pattern, seen)
        made[pattern] = both if mask is None else And(both, mask)
    return tuple(made[pattern] for pattern in local)


def read_near(
    query: Query, key: Key, value: Value, masks: Sequence[Mask], bias: Bias | None = None, dropout: float = 0.0
) -> Attended:
    """Attention by a mask for every head: heads of one mask at a time, then in their order again."""
    if len(masks) != query.shape[1]:
        raise InputError(f"{len(masks)} patterns do not fit {query.shape[1]} heads", "give each head one")
    if len(set(masks)) == 1:
        return attend_sparse(query, key, value, mask=masks[0], bias=bias, dropout=dropout)
    if bias is not None:
        raise InputError("a bias for all heads does not fit some of them", "give all heads one dilation")
    group = query.shape[1] // key.shape[1]
    outs: list[Tensor] = []
    order: list[int] = []
    for pattern in dict.fromkeys(masks):
        chosen = [head for head, one in enumerate(masks) if one is pattern]
        shared = [head // group for head in chosen]
        part = attend_sparse(query[:, chosen], key[:, shared], value[:, shared], mask=pattern, dropout=dropout)
        outs.append(part)
        order += chosen
    return torch.cat(outs, dim=1)[:, torch.tensor(order).argsort()]


def read_all(
    given: GlobalTokens, mask: Mask | None, bias: Bias | None, dropout: float = 0.0
) -> Float[Tensor, "batch heads globals value_width"]:
    """What the global tokens read: everything that may be seen, globals × tokens."""
    table, added = rows_of(given, mask, bias)
    return attend(given.query, given.key, given.value, mask=table, bias=added, dropout=dropout)


def rows_of(given: GlobalTokens, mask: Mask | None, bias: Bias | None) -> tuple[Dense | None, Tensor | None]:
    """The global tokens' rows of a mask and of a bias."""
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
    return table, None if bias is None else bias.values(grid).to(given.query.dtype)


def put_rows(
    out: Attended,
    positions: Int[Tensor, "#batch globals"],
    rows: Float[Tensor, "batch heads globals value_width"],
) -> Attended:
    """The rows at their positions; −1 goes nowhere."""
    tokens = out.shape[2]
    places = torch.where(positions < 0, tokens, positions)[:, None, :, None].expand_as(rows)
    room = torch.cat((out, out[:, :, :1]), dim=2)
    return room.scatter(2, places, rows.to(out.dtype))[:, :, :tokens]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The global tokens of a batch, as a table of all and as places."""

    table: Bool[Tensor, "#batch tokens"]
    positions: Int[Tensor, "#batch globals"]

    @classmethod
    def first(cls, begin: Int[Tensor, "#batch"], count: int, tokens: int) -> "Chosen":
        """The first ones of texts that begin there; known without looking at a token."""
        places = begin[:, None] + torch.arange(min(count, tokens), device=begin.device)
        places = torch.where(places < tokens, places, -1)
        return cls(keys_of(tokens, places), places)

    @classmethod
    def where(cls, table: Bool[Tensor, "#batch tokens"]) -> "Chosen":
        """Those of a table."""
        count = table.sum(dim=1)
        most = int(count.max())
        order = table.int().sort(dim=1, descending=True, stable=True).indices[:, :most]
        return cls(table, torch.where(torch.arange(most, device=table.device) < count[:, None], order, -1))

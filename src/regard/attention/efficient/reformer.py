"""Reformer's attention (Kitaev et al. 2020, §2): a token reads those that a hash puts into its bucket.

    bucket of x  =  argmax [x R; −x R]        R random: two vectors of nearly one direction fall into one bucket (§2)
    key of j     =  query of j, at one length: one matrix makes both, and the score is q_i · q_j / ‖q_j‖

The hash has several digits, one for each factor of the number of buckets: a table for all of them at once would be wide
where there are many. Several rounds, each with rotations of its own, find what one misses; what they find is one
softmax over all of it, each key counted once (appendix A), joined by the rounds' log-sum-exps. A token reads itself
only where there is nobody else.

The paper cuts the text, sorted by buckets, into chunks that read themselves and the one before. What a token sees then
hangs on how many tokens of *other* buckets there are, later ones too, and no state could go on from it. Here a token
sees the last `window` members of its bucket, itself among them (where it looks both ways, as many on either side): as
many keys, and the same whether a text is read at once, step by step, padded or packed.
"""

from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn import functional as F

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import attend
from regard.attention.efficient.chunked import restarts, widened
from regard.attention.efficient.hash_tiles import Order, joined_rounds, read_round
from regard.attention.mask import Dense
from regard.attention.mechanism import (
    Abilities,
    AttentionCosts,
    LayerContext,
    Mechanism,
    MechanismShape,
    register_mechanism,
)
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, RowIds, Value, Weights
from regard.errors import ConfigError, InputError
from regard.layers.linear import Linear

Rotations = Float[Tensor, "heads rounds head_width directions"]
Buckets = Int[Tensor, "batch heads rounds tokens"]
"""Of each token in each round; of padding NOWHERE."""

NOWHERE = -1
MOST_BUCKETS = 2**16
PIECE = 64
"""New tokens that are compared with all before at once, where a text is gone on with."""


def lsh_attention(
    query: Query,
    value: Value,
    buckets: Buckets,
    *,
    window: int,
    causal: bool = False,
    begins: Bool[Tensor, "batch keys"] | None = None,
    dropout: float = 0.0,
) -> Attended:
    """What every token reads of the members of its buckets, near in their order; tokens in no bucket read nothing.

    `begins` says where another text begins in a row: its buckets are its own.
    """
    order = Order.of(apart(buckets, begins), min(window, query.shape[2]))
    return read_in(order, query, as_keys(query), value, causal=causal, dropout=dropout)


def read_in(order: Order, query: Query, key: Key, value: Value, *, causal: bool, dropout: float = 0.0) -> Attended:
    """The same, where the order of the tokens is known."""
    rounds = range(order.there.shape[2])
    found = [read_round(query, key, value, order, number, causal, dropout) for number in rounds]
    return joined_rounds(found, value * order.somewhere[..., None])


def as_keys(query: Query) -> Key:
    """Queries at the length √head_width: divided by that, as scores are, the product is with their directions."""
    key: Tensor = F.normalize(query, dim=3) * query.shape[3] ** 0.5
    return key.to(query.dtype)


def hashed(
    query: Query, rotations: Rotations, factors: tuple[int, ...], real: Bool[Tensor, "batch keys"] | None = None
) -> Buckets:
    """The bucket of every token in every round, a digit for each factor."""
    with torch.autocast(query.device.type, enabled=False):
        vectors = widened(query.detach())
        turned = torch.einsum("bhnd,hrdk->bhrnk", vectors, rotations.to(vectors.dtype))
    found = torch.zeros(turned.shape[:-1], dtype=torch.int64, device=query.device)
    for factor, part in zip(factors, torch.split(turned, [factor // 2 for factor in factors], dim=-1), strict=True):
        if factor > 1:
            found = found * factor + torch.cat((part, -part), dim=-1).argmax(dim=-1)
    return found if real is None else found.masked_fill(~real[:, None, None], NOWHERE)


def apart(buckets: Buckets, begins: Bool[Tensor, "batch keys"] | None) -> Buckets:
    """With buckets of their own for every text of a row."""
    if begins is None:
        return buckets
    text = begins.cumsum(dim=1)[:, None, None]
    return torch.where(buckets == NOWHERE, buckets, buckets + text * MOST_BUCKETS)


@dataclass(frozen=True, eq=False)
class ReformerState(AttentionState):
    """The keys and values of all tokens read so far, and for each round their buckets and how many of the bucket came
    before them: a token more is hashed, finds its members by comparing whole numbers, and reads them alone."""

    held: KeyValues
    buckets: Buckets
    ranks: Int[Tensor, "batch heads rounds tokens"]

    def select(self, rows: RowIds) -> "ReformerState":
        return ReformerState(self.held.select(rows), self.buckets[rows], self.ranks[rows])

    def trim(self, tokens: int) -> "ReformerState":
        return ReformerState(self.held.trim(tokens), self.buckets[..., :tokens], self.ranks[..., :tokens])

    def append(self, key: Key, value: Value, buckets: Buckets) -> "ReformerState":
        """With tokens behind them, few at a time."""
        whole = torch.cat((self.buckets, buckets), dim=3)
        ranks = _same(buckets, whole).sum(dim=4)
        return ReformerState(self.held.append(KeyValues(key, value)), whole, torch.cat((self.ranks, ranks), dim=3))

    def near(self, queries: int, window: int) -> Bool[Tensor, "batch heads queries keys"]:
        """Which tokens each of the last few reads."""
        same = _same(self.buckets[..., -queries:], self.buckets)
        away = self.ranks[..., -queries:, None] - self.ranks[..., None, :]
        allowed = (same & (away < window)).any(dim=2)
        itself = torch.eye(queries, dtype=torch.bool, device=allowed.device)
        itself = F.pad(itself, (allowed.shape[3] - queries, 0))
        return allowed | (itself & ~allowed.any(dim=3, keepdim=True))


def _same(
    newest: Int[Tensor, "batch heads rounds queries"], whole: Int[Tensor, "batch heads rounds keys"]
) -> Bool[Tensor, "batch heads rounds queries keys"]:
    """Which earlier tokens are in the buckets of the last ones."""
    queries, keys = newest.shape[3], whole.shape[3]
    earlier = torch.ones(queries, keys, dtype=torch.bool, device=whole.device).tril(keys - queries - 1)
    return (newest[..., None] == whole[..., None, :]) & earlier


class ReformerShape(MechanismShape):
    """Softmax attention to what locality-sensitive hashing finds (Kitaev et al. 2020): linear in the length."""

    name: Literal["reformer"] = Field("reformer", description="how a layer attends")
    buckets: tuple[int, ...] = Field(
        (8, 8), min_length=1, max_length=8, description="factors of the number of buckets, each even; [1]: one bucket"
    )
    rounds: int = Field(4, ge=1, le=64, description="hashes, each by rotations of its own")
    window: int = Field(
        64, ge=1, le=2**20, description="members of its bucket that a token sees, itself and those before it; "
        "in an encoder on either side"
    )  # fmt: skip
    seed: int = Field(0, ge=0, description="what the rotations are drawn from; every layer draws its own")

    samples = (
        {"buckets": [2, 2], "rounds": 2, "window": 2},
        {"buckets": [4], "rounds": 1, "window": 3, "seed": 5},
        {"buckets": [1], "rounds": 1, "window": 4},
    )
    abilities = Abilities(causal=True, documents=True, shared_heads=False, dropout=True)

    @field_validator("buckets")
    @classmethod
    def _come_in_pairs(cls, buckets: tuple[int, ...]) -> tuple[int, ...]:
        for factor in buckets:
            if factor < 1 or (factor % 2 and factor > 1):
                raise ConfigError(
                    f"{factor} buckets are no directions and their opposites",
                    f"use an even number such as {max(factor + 1, 2)}, or [1] for one bucket",
                )
        if prod(buckets) > MOST_BUCKETS:
            raise ConfigError(
                f"{' × '.join(map(str, buckets))} buckets are more than {MOST_BUCKETS:,}",
                "use fewer or smaller factors",
            )
        return buckets

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        seen = min(self.rounds * (self.window if slot.causal else 2 * self.window), tokens)
        directions = self.rounds * sum(factor // 2 for factor in self.buckets)
        work = 4 * slot.heads * slot.head_width * seen + 2 * slot.heads * slot.head_width * directions
        return AttentionCosts(work, slot.heads * 2 * (slot.head_width + self.rounds), None)

    def make(self, slot: Slot) -> "Reformer":
        return Reformer(slot, self)


class Reformer(Mechanism):
    """`lsh_attention` between projections, of which queries and keys share one. The rotations are a buffer."""

    rotations: Rotations

    def __init__(self, slot: Slot, shape: ReformerShape) -> None:
        super().__init__()
        self.slot, self.shape, self.heads = slot, shape, slot.heads
        inner = slot.heads * slot.head_width
        self.query = Linear(slot.width, inner, bias=slot.bias)
        self.value = Linear(slot.width, inner, bias=slot.bias)
        self.output = Linear(inner, slot.width, bias=slot.bias)
        self.register_buffer("rotations", self.drawn())

    def drawn(self) -> Rotations:
        """Of this seed and this place in the network, the same everywhere."""
        named = sha256(f"{self.shape.seed} {self.slot.site}".encode()).digest()
        draws = torch.Generator().manual_seed(int.from_bytes(named[:7]))
        directions = sum(factor // 2 for factor in self.shape.buckets)
        return torch.randn(self.heads, self.shape.rounds, self.slot.head_width, directions, generator=draws)

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, ReformerState | None]:
        real, begins = self._told(inputs, context)
        query, value = self._query(inputs, context), self._in_heads(self.value(inputs))
        buckets = hashed(query, self.rotations, self.shape.buckets, real)
        if state is not None:
            assert isinstance(state, ReformerState)
            attended, state = self._further(query, value, buckets, state)
            return self._joined(attended), state
        order, key = self._order(buckets, begins), as_keys(query)
        dropout = self.slot.dropout if self.training else 0.0
        attended = read_in(order, query, key, value, causal=self.slot.causal, dropout=dropout)
        held = ReformerState(KeyValues(key, value), buckets, order.ranks) if self.slot.causal else None
        return self._joined(attended), held

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        real, begins = self._told(inputs, context)
        query = self._query(inputs, context)
        buckets = hashed(query, self.rotations, self.shape.buckets, real)
        identity = torch.eye(query.shape[2], dtype=query.dtype, device=query.device).expand(*query.shape[:2], -1, -1)
        return read_in(self._order(buckets, begins), query, as_keys(query), identity, causal=self.slot.causal)

    def _order(self, buckets: Buckets, begins: Tensor | None) -> Order:
        return Order.of(apart(buckets, begins), min(self.shape.window, buckets.shape[3]))

    def _further(
        self, query: Query, value: Value, buckets: Buckets, state: ReformerState
    ) -> tuple[Attended, ReformerState]:
        """From a state on, some tokens at a time."""
        found, dropout = [], self.slot.dropout if self.training else 0.0
        ends = [*range(0, query.shape[2], PIECE), query.shape[2]]
        for first, last in pairwise(ends):
            part = query[:, :, first:last]
            state = state.append(as_keys(part), value[:, :, first:last], buckets[..., first:last])
            mask, held = Dense(state.near(last - first, self.shape.window)), state.held
            found.append(attend(part.to(held.keys.dtype), held.keys, held.values, mask=mask, dropout=dropout))
        return torch.cat(found, dim=2).to(value.dtype), state

    def _told(self, inputs: Hidden, context: LayerContext) -> tuple[Tensor | None, Tensor | None]:
        """Which of the tokens are text, and where texts begin, if there are several in a row."""
        parts, tokens = context.parts(), inputs.shape[1]
        if 0 in inputs.shape[:2]:
            missing = "0 tokens to read" if tokens == 0 else "a batch of 0 texts"
            raise InputError(f"Reformer was given {missing}", "give at least one")
        if parts.rest is not None:
            raise InputError(
                f"Reformer reads what hashing finds, which {type(parts.rest).__name__} cannot mask",
                "use exact attention for it",
            )
        if not self.slot.causal and (parts.causal or parts.documents is not None):
            what = "a causal mask" if parts.causal else "several texts in a row"
            raise InputError(
                f"this Reformer was built to see a whole text and got {what}", "use exact attention for that"
            )
        if self.slot.causal and tokens > 1 and not parts.causal:
            raise InputError("a causal Reformer cannot do without a causal mask", "use exact attention for that")
        real = parts.real(context.past + tokens, tokens, inputs.device)
        ids = None if parts.documents is None else parts.documents.ids.to(inputs.device)
        return real, None if ids is None else restarts(ids)[:, -tokens:]

    def _query(self, inputs: Hidden, context: LayerContext) -> Query:
        query: Query = self._in_heads(self.query(inputs))
        return context.rotate(query) if context.rotate else query

    def _in_heads(self, projected: Hidden) -> Float[Tensor, "batch heads tokens head_width"]:
        batch, tokens, _ = projected.shape
        return projected.view(batch, tokens, self.heads, -1).transpose(1, 2)

    def _joined(self, attended: Attended) -> Hidden:
        out: Hidden = self.output(attended.transpose(1, 2).flatten(2))
        return out


register_mechanism(ReformerShape)

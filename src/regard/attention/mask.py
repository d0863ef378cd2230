"""Who may attend to whom, as an immutable expression: `Causal() & Padding(lengths)`, `~Dense(table)`.

`True` means *may attend*. A mask is a predicate on indices (batch, head, query, key) and holds no n×n table; it
is lowered for a kernel only when a call needs it: to nothing, to a causal flag, or to a dense boolean tensor.
Queries and keys are counted in the keys' numbering, and the queries sit at the end of the keys, so that the same
expression serves a whole sequence (queries = keys) and one cached step (a single query after many keys).

    Causal()          Padding([3, 5])[0]   Causal() & Padding
    ■ · · · ·         ■ ■ ■ · ·            ■ · · · ·
    ■ ■ · · ·         ■ ■ ■ · ·            ■ ■ · · ·
    ■ ■ ■ · ·         ■ ■ ■ · ·            ■ ■ ■ · ·
    ■ ■ ■ ■ ·         ■ ■ ■ · ·            ■ ■ ■ · ·
    ■ ■ ■ ■ ■         ■ ■ ■ · ·            ■ ■ ■ · ·      (rows are queries, columns keys)
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batching import Side
from regard.errors import InputError


@dataclass(frozen=True, eq=False)
class Grid:
    """The box of indices a mask or a bias is asked about: four tensors that broadcast against each other."""

    batch: Int[Tensor, "batch 1 1 1"]
    head: Int[Tensor, "1 heads 1 1"]
    query: Int[Tensor, "1 1 queries 1"]
    key: Int[Tensor, "1 1 1 keys"]

    @classmethod
    def of(
        cls, shape: tuple[int, int, int, int], device: torch.device, rows: Int[Tensor, "rows"] | None = None
    ) -> "Grid":
        """The grid of scores shaped (batch, heads, queries, keys), or only of some of its query rows."""
        batch, heads, queries, keys = shape
        query = torch.arange(queries, device=device) if rows is None else rows.to(device)
        return cls(
            torch.arange(batch, device=device).view(-1, 1, 1, 1),
            torch.arange(heads, device=device).view(1, -1, 1, 1),
            (query + (keys - queries)).view(1, 1, -1, 1),
            torch.arange(keys, device=device).view(1, 1, 1, -1),
        )

    @property
    def keys(self) -> int:
        """How many keys there are in all."""
        return self.key.shape[-1]


class Mask(ABC):
    """An immutable expression over (batch, head, query, key); `True` = may attend.

    Laws: `&`, `|`, `~` act elementwise on `allowed`; every lowering gives the same attention; a row in which
    nothing is allowed attends to nothing: exact zeros, forward and backward.
    """

    @abstractmethod
    def allowed(self, at: Grid) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Whether each (batch, head, query, key) of the grid may attend; size-1 axes broadcast."""

    def fits(self, shape: tuple[int, int, int, int]) -> None:
        """Raise InputError when this mask was made for other scores than (batch, heads, queries, keys)."""
        for part in self.parts():
            part.fits(shape)

    def parts(self) -> tuple["Mask", ...]:
        """The expressions this one is made of."""
        return ()

    def select(self, rows: Int[Tensor, "rows"]) -> "Mask":
        """The mask of these sequences of the batch, in this order."""
        parts = {name: value.select(rows) for name, value in vars(self).items() if isinstance(value, Mask)}
        return replace(self, **parts) if parts else self  # type: ignore[type-var]

    def walk(self) -> Iterator["Mask"]:
        """This expression and everything below it."""
        yield self
        for part in self.parts():
            yield from part.walk()

    def dense(
        self, shape: tuple[int, int, int, int], device: torch.device, rows: Int[Tensor, "rows"] | None = None
    ) -> Bool[Tensor, "#batch #heads queries keys"]:
        """The table itself, for scores shaped (batch, heads, queries, keys); batch and head axes may stay 1."""
        self.fits(shape)
        grid = Grid.of(shape, device, rows)
        table = self.allowed(grid)
        return table.expand(table.shape[0], table.shape[1], grid.query.shape[2], grid.keys)

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other)

    def __invert__(self) -> "Mask":
        return Not(self)


@dataclass(frozen=True, eq=False)
class And(Mask):
    """Both allow."""

    left: Mask
    right: Mask

    def allowed(self, at: Grid) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Elementwise and."""
        return self.left.allowed(at) & self.right.allowed(at)

    def parts(self) -> tuple[Mask, ...]:
        """Left and right."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Or(Mask):
    """Either allows."""

    left: Mask
    right: Mask

    def allowed(self, at: Grid) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Elementwise or."""
        return self.left.allowed(at) | self.right.allowed(at)

    def parts(self) -> tuple[Mask, ...]:
        """Left and right."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Not(Mask):
    """The other one forbids."""

    mask: Mask

    def allowed(self, at: Grid) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Elementwise not."""
        return ~self.mask.allowed(at)

    def parts(self) -> tuple[Mask, ...]:
        """The negated one."""
        return (self.mask,)


@dataclass(frozen=True, eq=False)
class Causal(Mask):
    """A token sees itself and what came before it."""

    def allowed(self, at: Grid) -> Bool[Tensor, "1 1 queries keys"]:
        """`key ≤ query`, both counted in the keys' numbering."""
        return at.key <= at.query


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only the first (`side="right"`: padding is on the right) or the last `lengths[b]` keys are real."""

    lengths: Int[Tensor, "batch"]
    side: Side = "right"

    def __post_init__(self) -> None:
        if self.side not in ("left", "right"):
            raise InputError(f"padding side {self.side!r} is unknown", "use 'left' or 'right'")

    def allowed(self, at: Grid) -> Bool[Tensor, "batch 1 1 keys"]:
        """Whether the key is a real token of its sequence."""
        lengths = self.lengths.to(at.key.device)[at.batch]
        return at.key < lengths if self.side == "right" else at.key >= at.keys - lengths

    def select(self, rows: Int[Tensor, "rows"]) -> "Padding":
        """The lengths of these sequences."""
        return Padding(self.lengths[rows], self.side)

    def fits(self, shape: tuple[int, int, int, int]) -> None:
        """As many lengths as sequences. Their values are not looked at: on a GPU that would wait for it every call."""
        if len(self.lengths) != shape[0]:
            raise InputError(
                f"Padding has {len(self.lengths)} lengths for a batch of {shape[0]}",
                "give one length per sequence",
            )


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """A table of your own, `[queries, keys]`, `[batch, queries, keys]` or `[batch, heads, queries, keys]`."""

    table: Bool[Tensor, "..."]

    def __post_init__(self) -> None:
        if self.table.dtype != torch.bool or not 2 <= self.table.dim() <= 4:
            raise InputError(
                f"a Dense mask needs a boolean tensor of 2 to 4 axes, not {self.table.dtype} with {self.table.dim()}",
                "True means may attend; turn an additive mask into one with `mask == 0`",
            )

    def allowed(self, at: Grid) -> Bool[Tensor, "#batch #heads queries keys"]:
        """The table's entries at the grid's indices."""
        table = self.table.to(at.key.device)
        table = table[:, None] if table.dim() == 3 else table.view(*(1,) * (4 - table.dim()), *table.shape)
        batch, heads = table.shape[:2]
        row = at.query - (at.keys - table.shape[2])
        return table[
            at.batch if batch > 1 else at.batch[:1] * 0,
            at.head if heads > 1 else at.head[:, :1] * 0,
            row,
            at.key,
        ]

    def select(self, rows: Int[Tensor, "rows"]) -> "Dense":
        """The tables of these sequences, where each has its own."""
        return Dense(self.table[rows]) if self.table.dim() > 2 and self.table.shape[0] > 1 else self

    def fits(self, shape: tuple[int, int, int, int]) -> None:
        """The table's shape is the call's."""
        batch, heads, queries, keys = shape
        table = tuple(self.table.shape)
        if (
            table[-2:] != (queries, keys)
            or (len(table) > 2 and table[0] not in (1, batch))
            or (len(table) > 3 and table[1] not in (1, heads))
        ):
            raise InputError(
                f"a Dense mask shaped {table} does not fit a batch of {batch} with {heads} heads, {queries} queries "
                f"and {keys} keys",
                "give it the shape [queries, keys], [batch, queries, keys] or [batch, heads, queries, keys]",
            )

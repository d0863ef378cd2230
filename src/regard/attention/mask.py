"""The masks people name: who may attend to whom, each a predicate on indices and its bounds over tiles.

    Causal()     Window(2)    Dilated(2, 2)  Global([0])  Block(2)     Document      Prefix([2])
    ■ · · · ·    ■ ■ · · ·    ■ · ■ · ·      ■ ■ ■ ■ ■    ■ ■ · · ·    ■ ■ · · ·     ■ ■ · · ·
    ■ ■ · · ·    ■ ■ ■ · ·    · ■ · ■ ·      ■ · · · ·    ■ ■ · · ·    ■ ■ · · ·     ■ ■ · · ·
    ■ ■ ■ · ·    · ■ ■ ■ ·    ■ · ■ · ■      ■ · · · ·    · · ■ ■ ·    · · ■ ■ ■     ■ ■ · · ·
    ■ ■ ■ ■ ·    · · ■ ■ ■    · ■ · ■ ·      ■ · · · ·    · · ■ ■ ·    · · ■ ■ ■     ■ ■ · · ·
    ■ ■ ■ ■ ■    · · · ■ ■    · · ■ · ■      ■ · · · ·    · · · · ■    · · ■ ■ ■     ■ ■ · · ·
    (rows are queries, columns keys; Document's ids here are 0 0 1 1 1)

Positions are counted in the keys' numbering: with a cache the queries sit at the end of the keys, unless the call says
where they stand.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from regard.attention.mask_algebra import And, Bounds, Grid, Mask, MaskFunction, Not, Or, Shape, Table, Tiles
from regard.data.batching import Side
from regard.errors import InputError

__all__ = [
    "And",
    "Block",
    "Bounds",
    "Causal",
    "Dense",
    "Dilated",
    "Document",
    "Global",
    "Grid",
    "Mask",
    "MaskFunction",
    "Not",
    "Or",
    "Padding",
    "Prefix",
    "Tiles",
    "Window",
]


@dataclass(frozen=True, eq=False)
class Causal(Mask):
    """A token sees itself and what came before it."""

    def allowed(self, at: Grid) -> Table:
        """`key ≤ query`."""
        return at.key <= at.query

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the corners."""
        return Bounds(tiles.first_key <= tiles.last_query, tiles.last_key <= tiles.first_query)


@dataclass(frozen=True, eq=False)
class Window(Mask):
    """`|query − key| < size`: with `Causal`, exactly `size` keys including oneself."""

    size: int

    def __post_init__(self) -> None:
        _positive("a window", self.size)

    def allowed(self, at: Grid) -> Table:
        """Near enough."""
        return (at.query - at.key).abs() < self.size

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the nearest and the furthest pair of a tile."""
        nearest, furthest = tiles.distances()
        return Bounds(nearest < self.size, furthest < self.size)


@dataclass(frozen=True, eq=False)
class Dilated(Mask):
    """Every `step`-th key, `size` of them on each side counting oneself: `Window(size · step)` with gaps."""

    size: int
    step: int

    def __post_init__(self) -> None:
        _positive("a dilated window", self.size)
        _positive("the step of a dilated window", self.step)

    def allowed(self, at: Grid) -> Table:
        """Near enough, and a whole number of steps away."""
        distance = (at.query - at.key).abs()
        return (distance < self.size * self.step) & (distance % self.step == 0)

    def bounds(self, tiles: Tiles) -> Bounds:
        """As the window without gaps; never surely all unless there are none."""
        nearest, furthest = tiles.distances()
        reach = self.size * self.step
        return Bounds(nearest < reach, (furthest < reach) & (self.step == 1))


@dataclass(frozen=True, eq=False)
class Global(Mask):
    """These positions see all and are seen by all."""

    positions: tuple[int, ...]

    def __init__(self, positions: "list[int] | tuple[int, ...]") -> None:
        if not all(isinstance(position, int) for position in positions):
            raise InputError(f"global positions {list(positions)} are not whole numbers", "count tokens from 0")
        if any(position < 0 for position in positions):
            raise InputError(f"global positions {list(positions)} include one below 0", "count from the first key, 0")
        object.__setattr__(self, "positions", tuple(sorted(set(positions))))

    def allowed(self, at: Grid) -> Table:
        """The query or the key is one of them."""
        return self._among(at.query) | self._among(at.key)

    def _among(self, index: Tensor) -> Bool[Tensor, "..."]:
        found = torch.zeros_like(index, dtype=torch.bool)
        for position in self.positions:
            found = found | (index == position)
        return found

    def bounds(self, tiles: Tiles) -> Bounds:
        """By how many of them a tile's rows and columns hold."""
        listed = torch.tensor(self.positions, device=tiles.first_key.device)

        def held(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
            count = ((listed >= first[..., None]) & (listed <= last[..., None])).sum(-1)
            return count > 0, count == last - first + 1

        (some_query, all_queries) = held(tiles.first_query, tiles.last_query)
        (some_key, all_keys) = held(tiles.first_key, tiles.last_key)
        return Bounds(some_query | some_key, all_queries | all_keys)


@dataclass(frozen=True, eq=False)
class Block(Mask):
    """Tokens see their own block of `size`, and no other."""

    size: int

    def __post_init__(self) -> None:
        _positive("a block", self.size)

    def allowed(self, at: Grid) -> Table:
        """The same block."""
        return at.query // self.size == at.key // self.size

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the blocks of the corners."""
        first_query, last_query = tiles.first_query // self.size, tiles.last_query // self.size
        first_key, last_key = tiles.first_key // self.size, tiles.last_key // self.size
        some = (first_query <= last_key) & (first_key <= last_query)
        return Bounds(some, (first_query == last_key) & (first_key == last_query))


@dataclass(frozen=True, eq=False)
class Document(Mask):
    """Tokens see their own document: `ids[b]` says, for every key, which one it belongs to (packing)."""

    ids: Int[Tensor, "batch keys"]

    def __post_init__(self) -> None:
        _whole_numbers("Document", self.ids, "batch keys")

    def allowed(self, at: Grid) -> Table:
        """The same document; a query before the first key (where there are more queries) or after the last has none."""
        ids, last = self.ids.to(at.key.device), at.keys - 1
        same = ids[at.batch, at.query.clamp(0, last)] == ids[at.batch, at.key]
        return same & (at.query >= 0) & (at.query <= last)

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the smallest and largest id of a tile's rows and columns: exact where a document is one piece."""
        if tiles.positions is None and tiles.shape[2] > tiles.shape[3]:
            key = tiles.first_key.expand(len(self.ids), -1, -1, -1)  # sequences differ, so their bounds do
            return Bounds(key >= 0, key < 0)
        low_query, high_query, low_key, high_key = tiles.extremes(self.ids.to(tiles.first_key.device))
        some = (low_query <= high_key) & (low_key <= high_query)
        inside = (tiles.first_query >= 0) & (tiles.last_query < tiles.shape[3])
        return Bounds(some, (low_query == high_key) & (low_key == high_query) & inside)

    def select(self, rows: Int[Tensor, "rows"]) -> "Document":
        """The documents of these sequences."""
        return Document(self.ids[rows])

    def fits(self, shape: Shape) -> None:
        """An id for every key of every sequence."""
        if tuple(self.ids.shape) != (shape[0], shape[3]):
            raise InputError(
                f"Document has ids for {self.ids.shape[0]} sequences of {self.ids.shape[1]} tokens and the call has "
                f"{shape[0]} of {shape[3]} keys",
                "give one id per key",
            )


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """The first `lengths[b]` keys are seen by all: `Causal() | Prefix(lengths)` is a prefix language model."""

    lengths: Int[Tensor, "batch"]

    def __post_init__(self) -> None:
        _whole_numbers("Prefix", self.lengths, "batch")

    def allowed(self, at: Grid) -> Table:
        """The key is in the prefix."""
        return at.key < self.lengths.to(at.key.device)[at.batch]

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the corners."""
        lengths = self.lengths.to(tiles.first_key.device).view(-1, 1, 1, 1)
        return Bounds(tiles.first_key < lengths, tiles.last_key < lengths)

    def select(self, rows: Int[Tensor, "rows"]) -> "Prefix":
        """The prefixes of these sequences."""
        return Prefix(self.lengths[rows])

    def fits(self, shape: Shape) -> None:
        """As many lengths as sequences."""
        _one_length_each("Prefix", self.lengths, shape)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Only the first (`side="right"`: padding is on the right) or the last `lengths[b]` keys are real."""

    lengths: Int[Tensor, "batch"]
    side: Side = "right"

    def __post_init__(self) -> None:
        _whole_numbers("Padding", self.lengths, "batch")
        if self.side not in ("left", "right"):
            raise InputError(f"padding side {self.side!r} is unknown", "use 'left' or 'right'")

    def allowed(self, at: Grid) -> Table:
        """Whether the key is a real token of its sequence."""
        lengths = self.lengths.to(at.key.device)[at.batch]
        return at.key < lengths if self.side == "right" else at.key >= at.keys - lengths

    def bounds(self, tiles: Tiles) -> Bounds:
        """By the corners."""
        lengths = self.lengths.to(tiles.first_key.device).view(-1, 1, 1, 1)
        if self.side == "right":
            return Bounds(tiles.first_key < lengths, tiles.last_key < lengths)
        start = tiles.shape[3] - lengths
        return Bounds(tiles.last_key >= start, tiles.first_key >= start)

    def select(self, rows: Int[Tensor, "rows"]) -> "Padding":
        """The lengths of these sequences."""
        return Padding(self.lengths[rows], self.side)

    def fits(self, shape: Shape) -> None:
        """As many lengths as sequences, none beyond the keys."""
        _one_length_each("Padding", self.lengths, shape)


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """A table of your own, `[queries, keys]`, `[batch, queries, keys]` or `[batch, heads, queries, keys]`.

    Its rows are the call's queries, wherever they stand.
    """

    table: Bool[Tensor, "..."]

    def __post_init__(self) -> None:
        if not isinstance(self.table, Tensor):
            raise InputError(f"a Dense mask needs a tensor, not {type(self.table).__name__}", "use torch.tensor([...])")
        if self.table.dtype != torch.bool or not 2 <= self.table.dim() <= 4:
            raise InputError(
                f"a Dense mask needs a boolean tensor of 2 to 4 axes, not {self.table.dtype} with {self.table.dim()}",
                "True means may attend; turn an additive mask into one with `mask == 0`",
            )

    def allowed(self, at: Grid) -> Table:
        """The table's entries at the grid's indices."""
        table = self._four_axes(at.key.device)
        batch, heads = table.shape[:2]
        row = at.query - (at.keys - table.shape[2]) if at.row is None else at.row
        return table[at.batch if batch > 1 else at.batch * 0, at.head if heads > 1 else at.head * 0, row, at.key]

    def bounds(self, tiles: Tiles) -> Bounds:
        """Looked up: the table is there."""
        table = self._four_axes(tiles.first_key.device)
        batch, heads, queries, keys = table.shape
        missing = (0, -keys % tiles.size, 0, -queries % tiles.size)
        cut = (batch, heads, -(-queries // tiles.size), tiles.size, -(-keys // tiles.size), tiles.size)
        some, every = (F.pad(table, missing, value=filler).view(cut) for filler in (False, True))
        return Bounds(some.any(dim=-1).any(dim=3), every.all(dim=-1).all(dim=3))

    def _four_axes(self, device: torch.device) -> Bool[Tensor, "#batch #heads queries keys"]:
        table = self.table.to(device)
        return table[:, None] if table.dim() == 3 else table.view(*(1,) * (4 - table.dim()), *table.shape)

    def select(self, rows: Int[Tensor, "rows"]) -> "Dense":
        """The tables of these sequences, where each has its own."""
        return Dense(self.table[rows]) if self.table.dim() > 2 and self.table.shape[0] > 1 else self

    def fits(self, shape: Shape) -> None:
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


def _positive(what: str, size: int) -> None:
    if not isinstance(size, int):
        raise InputError(f"{what} of {size!r} is not a whole number of tokens", "use one, such as 64")
    if size < 1:
        raise InputError(f"{what} of {size} holds no token", "use 1 or more")


def _whole_numbers(name: str, values: Tensor, axes: str) -> None:
    """Refuse what is not a tensor of whole numbers with these axes; a negative one too, where looking is free."""
    wanted = len(axes.split())
    if (
        not isinstance(values, Tensor)
        or values.dim() != wanted
        or values.dtype.is_floating_point
        or values.dtype == torch.bool
    ):
        what = f"{values.dtype} with {values.dim()} axes" if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"{name} needs a tensor of whole numbers, [{axes}], not {what}", "make one with torch.tensor([3, 5])"
        )
    if _can_look(values) and values.numel() and int(values.min()) < 0:
        raise InputError(f"{name} was given {int(values.min())}", "count from 0")


def _can_look(values: Tensor) -> bool:
    """Values on a GPU are not looked at: that would wait for it every call."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def _one_length_each(name: str, lengths: Tensor, shape: Shape) -> None:
    if _can_look(lengths) and lengths.numel() and int(lengths.max()) > shape[3]:
        raise InputError(
            f"{name} says {int(lengths.max())} tokens and there are {shape[3]} keys", "give lengths within them"
        )
    if len(lengths) != shape[0]:
        raise InputError(f"{name} has {len(lengths)} lengths for a batch of {shape[0]}", "give one length per sequence")

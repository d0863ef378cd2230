"""The algebra of masks: immutable expressions over (batch, head, query, key), and what a kernel may ask of one.

A mask holds no n×n table. It answers two questions: `allowed`, a predicate on any indices that broadcast, and `bounds`,
what is known of a whole tile of scores at once: whether anything in it may be allowed, and whether everything surely
is. From these follow all lowerings: nothing at all, a causal flag, a dense table, a table of live tiles. The masks
people name are in `mask.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import InputError

Shape = tuple[int, int, int, int]
"""Of scores: (batch, heads, queries, keys)."""

Table = Bool[Tensor, "#batch #heads #queries #keys"]

Positions = Int[Tensor, "queries"] | Int[Tensor, "#batch queries"]
"""Where the queries of a call stand among its keys: the same in every sequence, or each its own."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The indices a mask or a bias is asked about: four tensors that broadcast against each other.

    Usually all of `[batch, heads, queries, keys]`; a kernel may ask about any others. `keys` is how many there are in
    all, which left padding is counted from. `query` says where a query stands among the keys, `row` which one of the
    call's it is; where `row` is absent they stand at the end of the keys, so that the one follows from the other.
    """

    batch: Int[Tensor, "..."]
    head: Int[Tensor, "..."]
    query: Int[Tensor, "..."]
    key: Int[Tensor, "..."]
    keys: int
    row: Int[Tensor, "..."] | None = None

    @classmethod
    def of(
        cls,
        shape: Shape,
        device: torch.device,
        rows: Int[Tensor, "rows"] | None = None,
        positions: Positions | None = None,
    ) -> "Grid":
        """The grid of scores shaped (batch, heads, queries, keys), or only of some of its query rows."""
        batch, heads, queries, keys = shape
        row = torch.arange(queries, device=device) if rows is None else rows.to(device)
        if positions is None:
            query = (row + (keys - queries)).view(1, 1, -1, 1)
        else:
            query = (positions if rows is None else positions[..., row]).view(-1, 1, len(row), 1)
        return cls(
            torch.arange(batch, device=device).view(-1, 1, 1, 1),
            torch.arange(heads, device=device).view(1, -1, 1, 1),
            query,
            torch.arange(keys, device=device).view(1, 1, 1, -1),
            keys,
            None if positions is None else row.view(1, 1, -1, 1),
        )


@dataclass(frozen=True, eq=False)
class Tiles:
    """Scores cut into tiles of `size` queries × `size` keys: the first and last index of each row and column of tiles.

    Queries are counted in the keys' numbering, as everywhere; the last tile of a side may be ragged. Of queries that
    stand anywhere, given by `positions`, a row of tiles has the smallest and the largest place.
    """

    shape: Shape
    size: int
    first_query: Int[Tensor, "#batch 1 rows 1"]
    last_query: Int[Tensor, "#batch 1 rows 1"]
    first_key: Int[Tensor, "1 1 1 columns"]
    last_key: Int[Tensor, "1 1 1 columns"]
    positions: Int[Tensor, "#batch queries"] | None = None

    @classmethod
    def of(cls, shape: Shape, size: int, device: torch.device, positions: Positions | None = None) -> "Tiles":
        """The tiles of scores of this shape."""
        _, _, queries, keys = shape
        key = torch.arange(0, keys, size, device=device)
        if positions is None:
            query, shift = torch.arange(0, queries, size, device=device), keys - queries
            first, last = query + shift, (query + size).clamp(max=queries) - 1 + shift
        else:
            positions = positions.view(-1, queries)
            first, last = _extremes(positions, size)
        first_query, last_query = (one.view(-1, 1, one.shape[-1], 1) for one in (first, last))
        last_key = (key + size).clamp(max=keys) - 1
        return cls(shape, size, first_query, last_query, key.view(1, 1, 1, -1), last_key.view(1, 1, 1, -1), positions)

    def distances(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest `|query − key|` within each tile."""
        after, before = self.first_key - self.last_query, self.first_query - self.last_key
        nearest = torch.maximum(after, before).clamp(min=0)
        return nearest, torch.maximum(self.last_query - self.first_key, self.last_key - self.first_query)

    def extremes(self, values: Int[Tensor, "batch keys"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The smallest and largest value among each tile's queries, then among its keys; values belong to the keys."""
        _, _, queries, keys = self.shape
        if self.positions is None:
            of_queries = values[:, keys - queries :]
        else:  # where a query stands beyond the keys, nothing belongs to it: the caller knows
            of_queries = values.gather(1, self.positions.clamp(0, keys - 1).expand(len(values), -1))
        (low_query, high_query), (low_key, high_key) = _extremes(of_queries, self.size), _extremes(values, self.size)
        by_row, by_column = (slice(None), None, slice(None), None), (slice(None), None, None)
        return low_query[by_row], high_query[by_row], low_key[by_column], high_key[by_column]


def _extremes(values: Int[Tensor, "batch tokens"], size: int) -> tuple[Tensor, Tensor]:
    """The smallest and largest of every `size` values in a row; the last, ragged piece of what it has."""
    missing = -values.shape[1] % size
    whole = torch.cat((values, values[:, -1:].expand(-1, missing)), dim=1)
    whole = whole.view(len(values), -1, size)
    return whole.amin(dim=-1), whole.amax(dim=-1)


class Bounds(NamedTuple):
    """Of every tile: `some` is False only where nothing is allowed, `all` is True only where everything is."""

    some: Bool[Tensor, "#batch #heads #rows #columns"]
    all: Bool[Tensor, "#batch #heads #rows #columns"]


class Structure(NamedTuple):
    """What a mask is, as far as it is known without looking into a tensor."""

    words: Hashable
    """Its classes, their static numbers, and of tensors the shapes."""
    numbers: bool
    """Whether it holds tensors."""


def structure(mask: "Mask | None") -> Structure:
    """The mask's structure. What a function says of indices is not part of it: nothing is known of it beforehand."""
    if mask is None or isinstance(mask, MaskFunction):
        return Structure(type(mask).__name__, False)
    words: list[Hashable] = [type(mask)]
    numbers = False
    for name, value in vars(mask).items():
        if isinstance(value, Tensor):
            words.append((name, value.shape, value.dtype, value.device))
            numbers = True
        elif isinstance(value, Mask):
            below = structure(value)
            words.append((name, below.words))
            numbers = numbers or below.numbers
        else:
            words.append((name, value if isinstance(value, Hashable) else repr(value)))
    return Structure(tuple(words), numbers)


class Mask(ABC):
    """An immutable expression over (batch, head, query, key); `True` = may attend.

    Laws: `&`, `|`, `~` act elementwise on `allowed`; every lowering gives the same attention; a row in which
    nothing is allowed attends to nothing: exact zeros, forward and backward.
    """

    @abstractmethod
    def allowed(self, at: Grid) -> Table:
        """Whether each (batch, head, query, key) of the grid may attend; size-1 axes broadcast."""

    @abstractmethod
    def bounds(self, tiles: Tiles) -> Bounds:
        """What holds of whole tiles; careful where it is not sure: `some` too often, `all` too seldom.

        The batch axis is 1 only where `allowed` does not depend on the sequence.
        """

    def fits(self, shape: Shape) -> None:
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
        self,
        shape: Shape,
        device: torch.device,
        rows: Int[Tensor, "rows"] | None = None,
        positions: Positions | None = None,
    ) -> Bool[Tensor, "#batch #heads asked keys"]:
        """The table itself, for scores shaped (batch, heads, queries, keys); batch and head axes may stay 1."""
        self.fits(shape)
        grid = Grid.of(shape, device, rows, positions)
        table = self.allowed(grid)
        return table.expand(table.shape[0], table.shape[1], grid.query.shape[2], grid.keys)

    def __and__(self, other: "Mask | MaskMod") -> "Mask":
        return And(self, as_mask(other))

    def __rand__(self, other: "MaskMod") -> "Mask":
        return And(as_mask(other), self)

    def __or__(self, other: "Mask | MaskMod") -> "Mask":
        return Or(self, as_mask(other))

    def __ror__(self, other: "MaskMod") -> "Mask":
        return Or(as_mask(other), self)

    def __invert__(self) -> "Mask":
        return Not(self)

    def __bool__(self) -> NoReturn:
        raise InputError(
            f"a mask is neither true nor false, so `and`, `or` and `not` would lose a part of {type(self).__name__}",
            "combine masks with &, | and ~, and ask for none with `is None`",
        )


@dataclass(frozen=True, eq=False)
class And(Mask):
    """Both allow."""

    left: Mask
    right: Mask

    def allowed(self, at: Grid) -> Table:
        """Elementwise and."""
        return self.left.allowed(at) & self.right.allowed(at)

    def bounds(self, tiles: Tiles) -> Bounds:
        """Both may, both surely do."""
        left, right = self.left.bounds(tiles), self.right.bounds(tiles)
        return Bounds(left.some & right.some, left.all & right.all)

    def parts(self) -> tuple[Mask, ...]:
        """Left and right."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Or(Mask):
    """Either allows."""

    left: Mask
    right: Mask

    def allowed(self, at: Grid) -> Table:
        """Elementwise or."""
        return self.left.allowed(at) | self.right.allowed(at)

    def bounds(self, tiles: Tiles) -> Bounds:
        """Either may, either surely does."""
        left, right = self.left.bounds(tiles), self.right.bounds(tiles)
        return Bounds(left.some | right.some, left.all | right.all)

    def parts(self) -> tuple[Mask, ...]:
        """Left and right."""
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Not(Mask):
    """The other one forbids."""

    mask: Mask

    def allowed(self, at: Grid) -> Table:
        """Elementwise not."""
        return ~self.mask.allowed(at)

    def bounds(self, tiles: Tiles) -> Bounds:
        """What surely all allow, surely none do."""
        inner = self.mask.bounds(tiles)
        return Bounds(~inner.all, ~inner.some)

    def parts(self) -> tuple[Mask, ...]:
        """The negated one."""
        return (self.mask,)


MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's `mask_mod`, `(batch, head, query, key) -> bool`: index tensors that broadcast in, a boolean out."""


@dataclass(frozen=True, eq=False)
class MaskFunction(Mask):
    """A rule of your own, `(batch, head, query, key) -> bool`, as FlexAttention's `mask_mod` is written.

        MaskFunction(lambda batch, head, query, key: (key <= query) & ((query - key) % 2 == 0))

    It is given index tensors that broadcast and must depend on them alone. Nothing is known of whole tiles, so alone it
    leaves none out; joined with a mask that does, as in `Window(256) & rule`, only what that leaves is computed.
    """

    function: MaskMod
    rows: Int[Tensor, "rows"] | None = None
    """Which sequences the function is asked about, where some were selected."""

    def __post_init__(self) -> None:
        if isinstance(self.function, Tensor | Mask) or not callable(self.function):
            raise InputError(
                f"a mask function is a function of (batch, head, query, key), not {type(self.function).__name__}",
                "use one, such as `lambda batch, head, query, key: key <= query`",
            )

    def allowed(self, at: Grid) -> Table:
        """What the function says."""
        batch = at.batch if self.rows is None else self.rows.to(at.batch.device)[at.batch]
        table = self.function(batch, at.head, at.query, at.key)
        if not isinstance(table, Tensor) or table.dtype != torch.bool:
            what = f"a tensor of {table.dtype}" if isinstance(table, Tensor) else type(table).__name__
            raise InputError(
                f"the mask function gave {what}", "return a boolean tensor, combining conditions with &, | and ~"
            )
        shapes = (batch.shape, at.head.shape, at.query.shape, at.key.shape)
        asked: tuple[int, ...] = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        table = table.view((1,) * (len(asked) - table.dim()) + table.shape)
        if any(size not in (1, whole) for size, whole in zip(table.shape, asked, strict=False)):
            raise InputError(
                f"the mask function gave a table shaped {tuple(table.shape)} for indices shaped {tuple(asked)}",
                "compute it from the given indices alone; they broadcast",
            )
        return table

    def bounds(self, tiles: Tiles) -> Bounds:
        """Unknown: something may be allowed in every tile, and everything surely in none."""
        some = (tiles.first_query >= tiles.first_query) & (tiles.first_key >= tiles.first_key)
        some = some.expand(tiles.shape[0], -1, -1, -1)  # sequences may differ
        return Bounds(some, ~some)

    def select(self, rows: Int[Tensor, "rows"]) -> "MaskFunction":
        """The same rule for these sequences."""
        return replace(self, rows=rows if self.rows is None else self.rows.to(rows.device)[rows])


def as_mask(given: Mask | MaskMod) -> Mask:
    """The mask meant by a mask or by a function of (batch, head, query, key); anything else is refused."""
    if isinstance(given, Mask):
        return given
    if isinstance(given, Tensor):
        raise InputError("a mask is an expression, not a tensor", "wrap a boolean tensor as regard.Dense(mask)")
    if not callable(given):
        raise InputError(
            f"a mask is an expression, not {type(given).__name__}",
            "use masks such as regard.Causal(), or a function of (batch, head, query, key)",
        )
    return MaskFunction(given)

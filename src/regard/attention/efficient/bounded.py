"""A state that does not grow: keys and values of the last tokens and of the first ones, wherever the text has got to.

Each has its column of the whole text beside it, so that every mask and bias is asked what it would be asked if nothing
had been left out: a step computes the same numbers as the whole text does.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import attend
from regard.attention.mask import Dense
from regard.attention.mask_algebra import Grid
from regard.attention.mask_parts import MaskParts
from regard.attention.mechanism import LayerContext
from regard.axes import Attended, Query, RowIds
from regard.errors import InputError

NOWHERE = -1
"""The column of a place that holds nothing."""


@dataclass(frozen=True, eq=False)
class BoundedKeys(AttentionState):
    """Keys and values of some columns of the text; which ones, row by row."""

    held: KeyValues
    columns: Int[Tensor, "rows held"]

    @classmethod
    def of(cls, newer: KeyValues, past: int) -> "BoundedKeys":
        """All of these, which begin behind `past` columns."""
        columns = torch.arange(past, past + newer.tokens, device=newer.keys.device)
        return cls(newer, columns.expand(len(newer.keys), -1))

    def append(self, newer: "BoundedKeys") -> "BoundedKeys":
        """These followed by the newer ones."""
        keys, values = (
            torch.cat(both, dim=2)
            for both in ((self.held.keys, newer.held.keys), (self.held.values, newer.held.values))
        )
        return BoundedKeys(KeyValues(keys, values), torch.cat((self.columns, newer.columns), dim=1))

    def select(self, rows: RowIds) -> "BoundedKeys":
        return BoundedKeys(KeyValues(self.held.keys[rows], self.held.values[rows]), self.columns[rows])

    def bounded(self, recent: int, first: Int[Tensor, "#rows first"], total: int) -> "BoundedKeys":
        """Of a text of `total` columns only the `recent` last ones, and these first ones where they are not among them.

        The newest are last; nothing is left out as long as there are no more than it would keep.
        """
        here = self.columns.shape[1]
        if here <= recent + first.shape[1]:
            return self
        wanted = torch.where(first < total - recent, first, NOWHERE - 1).expand(len(self.columns), -1)
        match = wanted[:, :, None] == self.columns[:, None, :]
        columns = torch.where(match.any(dim=-1), wanted, NOWHERE)
        index = match.int().argmax(dim=-1)
        last = torch.arange(here - recent, here, device=index.device).expand(len(index), -1)
        return self._taken(torch.cat((index, last), dim=1), torch.cat((columns, self.columns[:, here - recent :]), 1))

    def _taken(self, index: Int[Tensor, "rows kept"], columns: Int[Tensor, "rows kept"]) -> "BoundedKeys":
        places = index[:, None, :, None]
        keys, values = (
            one.gather(2, places.expand(-1, one.shape[1], -1, one.shape[3]))
            for one in (self.held.keys, self.held.values)
        )
        return BoundedKeys(KeyValues(keys, values), columns)

    def grid(self, heads: int, queries: Int[Tensor, "#rows queries"], total: int) -> Grid:
        """What a mask is asked about for queries in these columns."""
        device = self.columns.device
        return Grid(
            torch.arange(len(self.columns), device=device).view(-1, 1, 1, 1),
            torch.arange(heads, device=device).view(1, -1, 1, 1),
            queries[:, None, :, None],
            self.columns.clamp(min=0)[:, None, None, :],
            total,
        )

    def real(self) -> Bool[Tensor, "rows 1 1 held"]:
        """The places that hold something."""
        return (self.columns >= 0)[:, None, None, :]

    def read(self, query: Query, grid: Grid, allowed: Tensor, bias: Bias | None, dropout: float) -> Attended:
        """What the queries read of what is held, where it is allowed: queries × held, both few."""
        rows, _, queries, _ = query.shape
        table = (allowed & self.real()).expand(rows, allowed.shape[1], queries, -1)
        added = None if bias is None else bias.values(grid).to(query.dtype)
        return attend(query, self.held.keys, self.held.values, mask=Dense(table), bias=added, dropout=dropout)


def require_causal(context: LayerContext, tokens: int) -> None:
    """Refuse new tokens that may see each other both ways, where the state is made for those that look back."""
    if tokens > 1 and not context.parts().causal:
        raise InputError(
            "this attention was built to look back and the mask lets tokens see later ones",
            "give a mask with regard.Causal(), or build it for an encoder",
        )


def begins(parts: MaskParts, total: int, device: torch.device) -> Int[Tensor, "#batch"]:
    """The column of each text's first token."""
    if parts.padding is None or parts.padding.side == "right":
        return torch.zeros(1, dtype=torch.long, device=device)
    return total - parts.padding.lengths.to(device)


def places_in_text(parts: MaskParts, total: int, device: torch.device) -> Int[Tensor, "#batch columns"]:
    """Where every column stands in its own text, counted from 0, below 0 where it is padding in front of it."""
    columns = torch.arange(total, device=device)[None]
    if parts.documents is None:
        return columns - begins(parts, total, device)[:, None]
    ids = parts.documents.ids.to(device)
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return columns - torch.where(starts, columns, 0).cummax(dim=1).values

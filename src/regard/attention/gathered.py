"""Block-sparse attention on the CPU that trains: for every row of tiles gather its live tiles, then one dense call.

The scores are cut into tiles; the mask's bounds say which are live. Rows of tiles with about as many live ones go
together: their keys and values are gathered side by side and one SDPA call does the rest, forward and backward. A
global token makes a few rows fully live; being in a group of their own they do not widen the others.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import sdpa_kernel

from regard.attention.kernels import Call, Kernel, Sdpa
from regard.attention.lowering import LiveTiles, bias_values, fully_masked, live_tiles
from regard.attention.mask_algebra import Grid
from regard.axes import Attended

SIZE = 128
SHORTEST = 1024
"""Below this many keys a dense mask costs less than gathering."""
TOGETHER = 16
"""Rows of tiles gathered at once: what is gathered stays small, however long the text."""


class Gathered(Kernel):
    """Only the live tiles of a mask, gathered; any mask that all heads share, any length, CPU, trains."""

    name = "gathered"

    def unsupported(self, call: Call) -> str | None:
        """What has no tiles to leave out, heads that differ in them."""
        if call.not_inner:
            return call.not_inner
        if torch.compiler.is_compiling():
            return "it counts live tiles while it runs, which a compiled graph cannot"
        if call.mask is None:
            return "without a mask every tile is live"
        if isinstance(call.bias, Tensor):
            return "a bias given as a tensor is n×n already"
        if any(getattr(part, "table", torch.empty(0)).dim() == 4 for part in call.mask.walk()):
            return "its heads have masks of their own"
        return None

    def unsuitable(self, call: Call) -> str | None:
        """A GPU, a short text, a mask that leaves little out."""
        if call.device.type != "cpu":
            return "on a GPU FlexAttention does this"
        if call.sees_everything or (call.bias is None and call.causal_flag):
            return "SDPA needs no table for this mask"
        if max(call.shape[2:]) < SHORTEST:
            return f"below {SHORTEST} tokens a dense mask costs less"
        assert call.mask is not None
        share = live_tiles(call.mask, call.shape, SIZE, call.device).share  # as if the queries stood at the end
        return f"{share:.0%} of the tiles are live" if share > 0.5 else None

    def why(self, call: Call) -> str:
        """How much is left out."""
        assert call.mask is not None
        share = live_tiles(call.mask, call.shape, SIZE, call.device, call.positions).share
        return f"only {share:.1%} of the tiles are live and those alone are computed"

    def run(self, call: Call) -> Attended:
        """All sequences at once where they share their tiles, else one after the other."""
        assert call.mask is not None
        live = live_tiles(call.mask, call.shape, SIZE, call.device, call.positions)
        together = live.some.shape[0] == 1 and (call.positions is None or call.positions.dim() == 1)
        if together:
            return _Tiled(call, live, slice(None)).attend()
        return torch.cat([_Tiled(call, live, slice(at, at + 1)).attend() for at in range(call.shape[0])])


class _Tiled:
    """Sequences that share their live tiles, cut into tiles: `[sequences · heads, tiles, SIZE, width]`."""

    def __init__(self, call: Call, live: LiveTiles, sequences: slice) -> None:
        query, key, scale = call.dotted()
        self.call, self.scale = call, scale
        self.first = sequences.start or 0
        self.queries, self.keys, self.values = (_cut(one[sequences]) for one in (query, key, call.value))
        self.batch = len(self.queries) // call.shape[1]
        tiles = min(self.first, len(live.some) - 1)
        self.live, self.full = live.some[tiles], live.all[tiles]
        self.counts = self.live.sum(dim=-1)

    def attend(self) -> Tensor:
        """Group by group, then back in order."""
        _, heads, queries, _ = self.call.shape
        groups = self._groups()
        outs = torch.cat([self._group(rows) for rows in groups])
        outs = outs.index_select(0, torch.cat(groups).argsort())  # [tiles, sequences · heads, SIZE, width]
        return outs.transpose(0, 1).reshape(self.batch, heads, -1, outs.shape[-1])[:, :, :queries]

    def _groups(self) -> list[Tensor]:
        """Rows of tiles by how many live ones they have: up to 1, 2, 3–4, 5–8, …; no more at once than `TOGETHER`."""
        level = torch.ceil(torch.log2(self.counts.clamp(min=1).double())).long()
        groups = [torch.nonzero(level == one).squeeze(1) for one in sorted(set(level.tolist()))]
        return [rows for group in groups for rows in torch.split(group, TOGETHER)]

    def _group(self, rows: Tensor) -> Tensor:
        """One SDPA call: rows of tiles are its batch, and what each gathers its keys."""
        widest = max(1, int(self.counts[rows].max()))  # a row that sees nothing gathers one tile it may not see
        columns = self.live[rows].long().sort(dim=-1, descending=True, stable=True).indices[:, :widest]
        group = len(self.queries) // len(self.keys)
        # Query heads that share a key head stand below each other, so that the gathered keys are never repeated.
        query = self.queries.index_select(1, rows).transpose(0, 1)
        query = query.reshape(len(rows), len(self.keys), group * SIZE, -1)
        key, value = (
            one.index_select(1, columns.flatten()).view(len(one), len(rows), widest * SIZE, -1).transpose(0, 1)
            for one in (self.keys, self.values)
        )
        added = self._added(rows, columns)
        if added is not None and added.shape[1] > 1:  # numbers for every head
            added = added.reshape(len(rows), -1, group * SIZE, widest * SIZE).repeat(1, self.batch, 1, 1)
        elif added is not None and group > 1:
            added = added.repeat(1, 1, group, 1)
        with nullcontext() if self.call.device.type == "cpu" else sdpa_kernel(list(Sdpa.backends)):
            out = F.scaled_dot_product_attention(
                query, key, value, attn_mask=added, dropout_p=self.call.dropout, scale=self.scale
            )
        if added is not None and self.call.device.type != "cpu":  # as in Sdpa: such rows get the mean of all values
            out = out.masked_fill(fully_masked(added), 0.0)
        return out.reshape(len(rows), len(self.queries), SIZE, -1)

    def _added(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """Mask and bias of the gathered tiles: booleans, or numbers where there is a bias; None if all is allowed."""
        _, heads, queries, keys = self.call.shape
        live, full = (table[rows].gather(1, columns) for table in (self.live, self.full))
        if self.call.bias is None and keys % SIZE == 0 and bool((live & full).all()):
            return None
        inside = torch.arange(SIZE, device=rows.device)
        row = (rows[:, None] * SIZE + inside).clamp(max=queries - 1)
        query = row + (keys - queries)
        if self.call.positions is not None:
            positions = self.call.positions.view(-1, queries)
            query = positions[min(self.first, len(positions) - 1)][row]
        key = (columns[..., None] * SIZE + inside).flatten(1)
        real = (key < keys) & live.repeat_interleave(SIZE, dim=1)
        grid = Grid(
            torch.full((1, 1, 1, 1), self.first, device=rows.device),
            torch.arange(heads, device=rows.device).view(1, -1, 1, 1),
            query[:, None, :, None],
            key.clamp(max=keys - 1)[:, None, None, :],
            keys,
            None if self.call.positions is None else row[:, None, :, None],
        )
        assert self.call.mask is not None
        table = self.call.mask.allowed(grid) & real[:, None, None, :]
        if self.call.bias is None:
            return table.expand(-1, -1, SIZE, -1)
        return torch.where(table, bias_values(self.call.bias, grid, self.queries.dtype), -torch.inf)


def _cut(tensor: Tensor) -> Tensor:
    """[sequences, heads, tokens, width] → [sequences · heads, tiles, SIZE, width], the last tile filled with zeros."""
    padded = F.pad(tensor, (0, 0, 0, -tensor.shape[2] % SIZE))
    return padded.reshape(-1, padded.shape[2] // SIZE, SIZE, tensor.shape[3])

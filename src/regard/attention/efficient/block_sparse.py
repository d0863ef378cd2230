"""Attention under a mask that leaves most out, in time and memory that grow as what it leaves: never n×n.

Long texts go to a kernel that works on live tiles: FlexAttention on a GPU, gathered tiles on a CPU and where
FlexAttention cannot (dropout, heads of odd width). Below `SHORTEST` tokens `attend` chooses as it always does.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.cache import KeyValues
from regard.attention.core import attend
from regard.attention.flex import Flex
from regard.attention.gathered import SHORTEST, Gathered
from regard.attention.kernels import Call, Kernel
from regard.attention.mask import Causal, Mask
from regard.attention.mask_algebra import Bounds, Grid, Positions, Shape, Table, Tiles
from regard.attention.mechanism import LayerContext
from regard.attention.multihead import Attend
from regard.attention.similarity import Similarity, resolve
from regard.axes import Attended, Key, Query, Value
from regard.errors import InputError

Made = TypeVar("Made")
KEPT = 64
"""Patterns of unpadded texts that are kept from one pass to the next, with all that kernels make of them."""


@dataclass(frozen=True, eq=False)
class GlobalKeys(Mask):
    """These keys are seen by all; a batch of one stands for every sequence.

    GlobalKeys([[True, False, False, True]])     ■ · · ■
                                                 ■ · · ■
                                                 ■ · · ■
                                                 ■ · · ■
    """

    table: Bool[Tensor, "#batch keys"]

    def allowed(self, at: Grid) -> Table:
        table = self.table.to(at.key.device)
        return table[at.batch if len(table) > 1 else at.batch * 0, at.key]

    def bounds(self, tiles: Tiles) -> Bounds:
        """By whether any and whether all keys of a column of tiles are among them."""
        _, _, lowest, highest = tiles.extremes(self.table.to(tiles.first_key.device).long())
        return Bounds(highest > 0, lowest > 0)

    def select(self, rows: Tensor) -> "GlobalKeys":
        return GlobalKeys(self.table[rows]) if len(self.table) > 1 else self

    def fits(self, shape: Shape) -> None:
        batch, keys = self.table.shape
        if keys != shape[3] or batch not in (1, shape[0]):
            raise InputError(
                f"global keys of {batch} sequences of {keys} tokens do not fit {shape[0]} of {shape[3]} keys",
                "say of every key of every sequence whether it is one",
            )


def attend_sparse(
    query: Query,
    key: Key,
    value: Value,
    *,
    mask: Mask,
    bias: Bias | None = None,
    similarity: str | Similarity = "scaled_dot",
    dropout: float = 0.0,
) -> Attended:
    """`attend`, where every long text is computed tile by tile."""
    call = Call(query, key, value, resolve(similarity, query.shape[-1]), mask, bias, dropout)
    found = next((one.name for one in _sparse(call) if one.unsupported(call) is None), None)
    return attend(query, key, value, similarity=call.similarity, mask=mask, bias=bias, dropout=dropout, kernel=found)


def _sparse(call: Call) -> tuple[Kernel, ...]:
    """The kernels that work on live tiles, the best first; none for a short text, or where a graph is compiled."""
    if max(call.shape[2:]) < SHORTEST:
        return ()
    return (Gathered(),) if call.device.type == "cpu" else (Flex(), Gathered())


class AttendSparse(Attend):
    """`attend_sparse` as a module, so that a hook on it sees exactly what attention was given."""

    def forward(
        self,
        query: Query,
        memory: KeyValues,
        mask: Mask | None = None,
        bias: Bias | Tensor | None = None,
        query_positions: Positions | None = None,
    ) -> Attended:
        if mask is None or isinstance(bias, Tensor) or query_positions is not None:
            return super().forward(query, memory, mask, bias, query_positions)
        dropout = self.dropout if self.training else 0.0
        return attend_sparse(
            query, memory.keys, memory.values, mask=mask, bias=bias, similarity=self.similarity, dropout=dropout
        )


def keys_of(length: int, keys: Tensor) -> Bool[Tensor, "#batch keys"]:
    """A table of so many keys in which those listed for each sequence are True; −1 stands for none."""
    table = torch.zeros(len(keys), length + 1, dtype=torch.bool, device=keys.device)
    return table.scatter(1, torch.where(keys < 0, length, keys), True)[:, :length]


def once(context: LayerContext, pattern: Hashable, make: Callable[[], Made], tokens: int, device: torch.device) -> Made:
    """A pattern of this pass, made for the first layer that asks; of long texts without padding, for later passes too.

    `pattern` says all that `make` goes by, but for the context's mask, the tokens and the device.
    """
    padded = context.behind is not None or not (context.mask is None or type(context.mask) is Causal)
    if padded or tokens < SHORTEST or torch.compiler.is_compiling():
        return context.once(pattern, make)
    key = (pattern, context.mask is None, tokens, device, torch.is_inference_mode_enabled())
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= KEPT:
            _kept.clear()
        found = _kept[key] = make()
    return found  # type: ignore[return-value]


_kept: dict[Hashable, object] = {}

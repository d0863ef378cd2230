"""Keys and values: what a layer attends to, extended token by token while decoding.

`KeyValues` are a value: nothing that can be seen is changed in place, `append`, `select` and `trim` return new ones.
So that a token more does not copy all before it, an extended one has room behind its last token; whoever extends it
first writes there, which no earlier value sees, and whoever extends it again gets a copy. `StaticKeyValues` are memory
of a fixed size that is written in place. Nothing is stored on modules.

On a CPU what is kept in half precision is kept in float32: one query reads it four times as fast from there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import Key, RowIds, Value
from regard.errors import InputError
from regard.layers.stacked import StackedMaps

SPARE = 64
"""Tokens of room made at a time, at least; a quarter of what is there where that is more."""


class AttentionState(ABC):
    """What a layer's attention keeps of what it has read. A step may write over the one it is given: it is spent."""

    @abstractmethod
    def select(self, rows: RowIds) -> "AttentionState":
        """These sequences, in this order: to reorder beams, repeat or drop rows."""

    def copy(self) -> "AttentionState":
        """The same, which a step of the other leaves alone; itself where nothing is ever written over."""
        return self

    def trim(self, tokens: int) -> "AttentionState":
        """The state after only the first `tokens`, for what can go back."""
        raise self.cannot_go_back(f"its first {tokens} tokens")

    def gather(self, columns: Int[Tensor, "rows columns"]) -> "AttentionState":
        """The state with these of every row's columns alone, for what can go back."""
        raise self.cannot_go_back("some of its tokens")

    def cannot_go_back(self, where: str) -> InputError:
        """What is said where a state has no way back."""
        return InputError(f"{type(self).__name__} cannot go back to {where}", "read them again from the start")

    def settled(self) -> "AttentionState":
        """The same laid out to be read again at every step."""
        return self


@dataclass(eq=False)
class Room:
    """Memory for keys and values, of which the first `used` tokens are written."""

    keys: Tensor
    values: Tensor
    used: int


@dataclass(frozen=True, eq=False)
class KeyValues(AttentionState):
    """The keys and values of the tokens seen so far, in order; the newest are last."""

    keys: Key
    values: Value
    room: Room | None = None

    @property
    def tokens(self) -> int:
        """How many tokens are held."""
        return self.keys.shape[2]

    def append(self, newer: "KeyValues") -> "KeyValues":
        """These followed by the newer ones."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return KeyValues(torch.cat((self.keys, newer.keys), dim=2), torch.cat((self.values, newer.values), dim=2))
        before, after = self.tokens, self.tokens + newer.tokens
        room = self.room
        if room is None or room.used != before or room.keys.shape[2] < after or not _writable(room.keys):
            spare = newer.tokens + max(SPARE, before // 4)
            room = Room(_with_room(self.keys, spare), _with_room(self.values, spare), before)
        room.keys[:, :, before:after] = newer.keys
        room.values[:, :, before:after] = newer.values
        room.used = after
        return KeyValues(room.keys[:, :, :after], room.values[:, :, :after], room)

    def select(self, rows: RowIds) -> "KeyValues":
        """These sequences, in this order: to reorder beams, repeat or drop rows."""
        if self.room is None:
            return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        room = Room(self.room.keys.index_select(0, rows), self.room.values.index_select(0, rows), self.tokens)
        return KeyValues(room.keys[:, :, : self.tokens], room.values[:, :, : self.tokens], room)

    def settled(self) -> "KeyValues":
        """The same laid out to be read again at every step."""
        return KeyValues(_wide(self.keys).contiguous(), _wide(self.values).contiguous())

    def trim(self, tokens: int) -> "KeyValues":
        """Only the first `tokens` of them."""
        return KeyValues(self.keys[:, :, :tokens], self.values[:, :, :tokens])

    def gather(self, columns: Int[Tensor, "rows columns"]) -> "KeyValues":
        """Of every row these of its tokens."""
        return KeyValues(gathered(self.keys, columns), gathered(self.values, columns))


@dataclass(frozen=True, eq=False)
class StaticKeyValues(AttentionState):
    """Keys and values with room for so many tokens, written in place wherever a row has got to.

        keys, row 0    a b c d · · ·        what stands behind a row's own tokens is never looked at: a mask over the
        keys, row 1    a b · · · · ·        queries' positions hides it

    Its memory never moves, so that a CUDA graph may hold on to it.
    """

    keys: Float[Tensor, "rows kv_heads room head_width"]
    values: Float[Tensor, "rows kv_heads room value_width"]
    maps: StackedMaps | None = None
    """The layer's queries, keys and values in one product, where that pays."""

    @classmethod
    def allocate(
        cls,
        rows: int,
        heads: int,
        room: int,
        widths: tuple[int, int],
        like: Tensor,
        maps: StackedMaps | None = None,
    ) -> "StaticKeyValues":
        """Nothing yet; of keys and values as wide as this, and of the type that a model of `like` keeps them in."""
        keys, values = (_wide(like.new_zeros(0)).new_zeros(rows, heads, room, width) for width in widths)
        return cls(keys, values, maps)

    def write(self, newer: KeyValues, positions: Int[Tensor, "rows tokens"]) -> None:
        """Put every row's new tokens at their positions."""
        for held, new in ((self.keys, newer.keys), (self.values, newer.values)):
            held.scatter_(2, positions[:, None, :, None].expand(new.shape), new.to(held.dtype))

    def put(self, rows: RowIds, read: KeyValues) -> None:
        """Let these rows begin with what was read elsewhere; what they held is written over as they go on."""
        for held, new in ((self.keys, read.keys), (self.values, read.values)):
            held[:, :, : new.shape[2]].index_copy_(0, rows, new.to(held.dtype))

    @property
    def room(self) -> int:
        """Tokens it has room for."""
        return self.keys.shape[2]

    def part(self, rows: int, tokens: int) -> "StaticKeyValues":
        """The first so many rows and tokens of this same memory."""
        return StaticKeyValues(self.keys[:rows, :, :tokens], self.values[:rows, :, :tokens], self.maps)

    def move(self, rows: RowIds, places: RowIds) -> None:
        """Copy these rows into the places of others."""
        for held in (self.keys, self.values):
            held.index_copy_(0, places, held[rows])

    def select(self, rows: RowIds) -> "StaticKeyValues":
        """Copies of these rows, in this order."""
        return StaticKeyValues(self.keys[rows], self.values[rows], self.maps)

    def copy(self) -> "StaticKeyValues":
        return StaticKeyValues(self.keys.clone(), self.values.clone(), self.maps)


def gathered(held: Tensor, columns: Int[Tensor, "rows columns"]) -> Tensor:
    """Of every row these of its columns."""
    index = columns[:, None, :, None].expand(-1, held.shape[1], -1, held.shape[3])
    return held.gather(2, index)


def _with_room(held: Tensor, spare: int) -> Tensor:
    """A copy with room for `spare` tokens more."""
    batch, heads, tokens, width = held.shape
    room = _wide(held).new_empty(batch, heads, tokens + spare, width)
    room[:, :, :tokens] = held
    return room


def _wide(held: Tensor) -> Tensor:
    """As it is kept."""
    half = held.dtype in (torch.bfloat16, torch.float16)
    return held.float() if half and held.device.type == "cpu" else held


def _writable(held: Tensor) -> bool:
    """Whether it may be written to here: what was made in inference mode only there."""
    return torch.is_inference_mode_enabled() or not held.is_inference()

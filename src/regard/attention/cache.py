"""Keys and values as a value: what a layer attends to, extended token by token while decoding.

Nothing is stored on modules and nothing that can be seen is changed in place: `append`, `select` and `trim` return new
ones. So that a token more does not copy all before it, an extended one has room behind its last token; whoever extends
it first writes there, which no earlier value sees, and whoever extends it again gets a copy.

On a CPU what is kept in half precision is kept in float32: one query reads it four times as fast from there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.axes import Key, RowIds, Value
from regard.errors import InputError

SPARE = 64
"""Tokens of room made at a time, at least; a quarter of what is there where that is more."""


class AttentionState(ABC):
    """What a layer's attention keeps of what it has read: a value, which nothing changes in place."""

    @abstractmethod
    def select(self, rows: RowIds) -> "AttentionState":
        """These sequences, in this order: to reorder beams, repeat or drop rows."""

    def trim(self, tokens: int) -> "AttentionState":
        """The state after only the first `tokens`, for what can go back."""
        raise InputError(
            f"{type(self).__name__} cannot go back to its first {tokens} tokens", "read them again from the start"
        )

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
            return KeyValues(self.keys[rows], self.values[rows])
        room = Room(self.room.keys[rows], self.room.values[rows], self.tokens)
        return KeyValues(room.keys[:, :, : self.tokens], room.values[:, :, : self.tokens], room)

    def settled(self) -> "KeyValues":
        """The same laid out to be read again at every step."""
        return KeyValues(_wide(self.keys).contiguous(), _wide(self.values).contiguous())

    def trim(self, tokens: int) -> "KeyValues":
        """Only the first `tokens` of them."""
        return KeyValues(self.keys[:, :, :tokens], self.values[:, :, :tokens])


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

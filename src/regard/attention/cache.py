"""Keys and values as a value: what a layer attends to, extended token by token while decoding.

Nothing is stored on modules and nothing is changed in place: `append`, `select` and `trim` return new ones.
"""

from dataclasses import dataclass

import torch

from regard.axes import Key, RowIds, Value


@dataclass(frozen=True, eq=False)
class KeyValues:
    """The keys and values of the tokens seen so far, in order; the newest are last."""

    keys: Key
    values: Value

    @property
    def tokens(self) -> int:
        """How many tokens are held."""
        return self.keys.shape[2]

    def append(self, newer: "KeyValues") -> "KeyValues":
        """These followed by the newer ones."""
        return KeyValues(torch.cat((self.keys, newer.keys), dim=2), torch.cat((self.values, newer.values), dim=2))

    def select(self, rows: RowIds) -> "KeyValues":
        """These sequences, in this order: to reorder beams, repeat or drop rows."""
        return KeyValues(self.keys[rows], self.values[rows])

    def trim(self, tokens: int) -> "KeyValues":
        """Only the first `tokens` of them."""
        return KeyValues(self.keys[:, :, :tokens], self.values[:, :, :tokens])

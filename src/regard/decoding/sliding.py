"""Going on beyond the length a model was trained on: its window slides.

A model reads at most `limit` tokens at once. When a text has grown past that, the last `limit // 2` of its tokens are
read anew from position 0, as if the text began there, and it goes on from them until it is full again:

    limit 4    a b c d          is full; with e, the last 2 remain
                     d e        read anew
                     d e f g    full again

So what is written equals what the model would write after the last tokens alone, whatever its positions are, and every
token is read at a place the model knows. What came before is forgotten. Each row slides by its own length: what stands
beside it in a batch changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs, Padded
from regard.decoding.stepper import S, Stepper


@dataclass(frozen=True, eq=False)
class SlidingState(Generic[S]):
    """The model's own state, the tokens it holds (padded on the left), and how many of each row's are no padding."""

    inner: S
    read: Int[Tensor, "rows tokens"]
    lengths: Int[Tensor, "rows"]
    most: int
    """No row has more: known without asking the device."""

    def select(self, rows: RowIds) -> "SlidingState[S]":
        """These rows, in this order."""
        return SlidingState(self.inner.select(rows), self.read[rows], self.lengths[rows], self.most)

    def copy(self) -> "SlidingState[S]":
        """The same."""
        return SlidingState(self.inner.copy(), self.read, self.lengths, self.most)

    def trim(self, lengths: Int[Tensor, "rows"]) -> "SlidingState[S]":
        """After so many of the tokens that it holds."""
        read = [row[len(row) - held :][:kept].tolist() for row, held, kept in self._rows(lengths)]
        tokens = Padded.of([row or [0] for row in read], side="left")
        most = max(map(len, read))
        return SlidingState(self.inner.trim(lengths), tokens.ids[:, tokens.ids.shape[1] - most :], lengths, most)

    def _rows(self, lengths: Int[Tensor, "rows"]) -> Iterator[tuple[Int[Tensor, "tokens"], int, int]]:
        return zip(self.read, self.lengths.tolist(), lengths.tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class Sliding(Generic[S]):
    """A Stepper that reads no more than `limit` tokens at once; for models that read nothing but the text itself."""

    stepper: Stepper[S]
    limit: int

    def start(self, inputs: Inputs) -> SlidingState[S]:
        """All of the prompt but its last token; of one that is too long, as much as remains when it slides."""
        device = inputs.tokens.ids.device
        tokens = Padded.of([self._kept(row) for row in inputs.tokens.rows()], side="left")
        most = int(tokens.lengths.max()) - 1
        tokens = tokens.to(device)
        return SlidingState(self.stepper.start(Inputs(tokens)), tokens.ids[:, :-1], tokens.lengths - 1, most)

    def step(self, ids: RowIds, state: SlidingState[S]) -> tuple[RowLogits, SlidingState[S]]:
        """One token further in every row, after those that are too long have slid."""
        read, lengths, most = torch.cat([state.read, ids[:, None]], dim=1), state.lengths + 1, state.most + 1
        if most > self.limit:
            most = int(lengths.max())  # the row that had so many may have left
        if most > self.limit:
            rows = [row[-length:].tolist() for row, length in zip(read, lengths.tolist(), strict=True)]
            return self.step(ids, self.start(Inputs(Padded.of(rows, side="left").to(ids.device))))
        logits, inner = self.stepper.step(ids, state.inner)
        return logits, SlidingState(inner, read, lengths, most)

    def extend(
        self, ids: Int[Tensor, "rows tokens"], state: SlidingState[S]
    ) -> tuple[Float[Tensor, "rows tokens vocab"], SlidingState[S]]:
        """Several tokens further, one after the other: the window may slide between any two."""
        found = []
        for column in ids.unbind(dim=1):
            logits, state = self.step(column, state)
            found.append(logits)
        return torch.stack(found, dim=1), state

    def _kept(self, row: Sequence[int]) -> Sequence[int]:
        return row if len(row) <= self.limit else row[-max(self.limit // 2, 1) :]


def unslid(stepper: Stepper[Any], inputs: Inputs, new_tokens: int) -> Stepper[Any]:
    """The model itself, where its window need not slide for texts and answers of this length."""
    longest = inputs.tokens.ids.shape[1] + new_tokens - 1  # the last token is not read
    return stepper.stepper if isinstance(stepper, Sliding) and longest <= stepper.limit else stepper

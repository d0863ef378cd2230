"""From lists of ids to tensors: padded sequences, what a model reads, and what it is trained on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.axes import Ids, Lengths
from regard.errors import InputError

Side = Literal["left", "right"]

IGNORED = -100
"""The target of a position that is not predicted: padding, or a prompt."""


@dataclass(frozen=True, eq=False)
class Padded:
    """Sequences of unequal length in one rectangle; padding is on the `side` named.

    Where rows are packed (see `packing.py`), `documents` says for each place which text of its row it belongs to,
    counted from 1; padding is 0. `segments` says of what kind each place is (0, 1, …) where a model tells kinds apart;
    without it all are 0.
    """

    ids: Ids
    lengths: Lengths
    ragged: bool
    side: Side = "right"
    documents: Int[Tensor, "batch tokens"] | None = None
    segments: Int[Tensor, "batch tokens"] | None = None

    @classmethod
    def of(
        cls,
        sequences: Sequence[Sequence[int]],
        *,
        fill: int = 0,
        side: Side = "right",
        segments: Sequence[Sequence[int]] | None = None,
        least: int = 0,
    ) -> "Padded":
        """The rectangle of these sequences, `least` wide or more; `segments` has a number for each of their tokens."""
        if not sequences:
            raise InputError("a batch of no sequences", "give at least one")
        if segments is not None:
            kinds = cls.of(segments, side=side, least=least).ids
            return replace(cls.of(sequences, fill=fill, side=side, least=least), segments=kinds)
        lengths = [len(sequence) for sequence in sequences]
        longest = max(*lengths, least)
        gaps = [[fill] * (longest - length) for length in lengths]
        before = side == "left"
        rows = [[*gap, *row] if before else [*row, *gap] for row, gap in zip(sequences, gaps, strict=True)]
        # NumPy reads nested lists at once; many small tensors would keep the thread that trains from its interpreter.
        ids = torch.from_numpy(np.array(rows, dtype=np.int64).reshape(len(rows), longest))
        return cls(ids, torch.tensor(lengths), ragged=min(lengths) < longest, side=side)

    def to(self, device: torch.device | str) -> "Padded":
        """The same on another device."""
        return self._each(lambda tensor: tensor.to(device))

    def pinned(self) -> "Padded":
        """The same in memory a GPU can read by itself."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Padded":
        documents = None if self.documents is None else change(self.documents)
        segments = None if self.segments is None else change(self.segments)
        return replace(self, ids=change(self.ids), lengths=change(self.lengths), documents=documents, segments=segments)

    def select(self, rows: Sequence[int]) -> "Padded":
        """These sequences, padded to the longest of them."""
        at = torch.as_tensor(rows, device=self.ids.device)
        lengths = self.lengths[at.to(self.lengths.device)]
        longest, whole = int(lengths.max()), self.ids.shape[1]
        columns = slice(whole - longest, whole) if self.side == "left" else slice(longest)
        held = [None if one is None else one[at, columns] for one in (self.ids, self.documents, self.segments)]
        ids, documents, segments = held
        assert ids is not None
        ragged = bool((lengths < longest).any())
        return replace(self, ids=ids, lengths=lengths, ragged=ragged, documents=documents, segments=segments)

    def rows(self) -> list[list[int]]:
        """The sequences again, without padding."""
        return [row[keep].tolist() for row, keep in zip(self.ids, self.real, strict=True)]

    @property
    def real(self) -> Bool[Tensor, "batch tokens"]:
        """Which places hold a token of their sequence."""
        place = torch.arange(self.ids.shape[1], device=self.ids.device)
        lengths = self.lengths[:, None]
        return place < lengths if self.side == "right" else place >= self.ids.shape[1] - lengths


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a model reads: the tokens its logits belong to and, for an encoder–decoder, the source."""

    tokens: Padded
    source: Padded | None = None

    def to(self, device: torch.device | str) -> "Inputs":
        """The same on another device."""
        return Inputs(self.tokens.to(device), None if self.source is None else self.source.to(device))

    def select(self, rows: Sequence[int]) -> "Inputs":
        """These rows alone."""
        return Inputs(self.tokens.select(rows), None if self.source is None else self.source.select(rows))

    @property
    def sizes(self) -> list[int]:
        """Tokens of every row, those of the source too."""
        read = self.tokens.lengths if self.source is None else self.tokens.lengths + self.source.lengths
        return list(map(int, read))

    def pinned(self) -> "Inputs":
        """The same in memory a GPU can read by itself."""
        return Inputs(self.tokens.pinned(), None if self.source is None else self.source.pinned())


@dataclass(frozen=True, eq=False)
class Batch:
    """What a model is trained on: inputs, and for each of their tokens the one to predict (or IGNORED)."""

    inputs: Inputs
    targets: Int[Tensor, "batch tokens"]

    def to(self, device: torch.device | str) -> "Batch":
        """The same on another device."""
        return Batch(self.inputs.to(device), self.targets.to(device))

    def pinned(self) -> "Batch":
        """The same in memory a GPU can read by itself."""
        return Batch(self.inputs.pinned(), self.targets.pin_memory())

    @property
    def count(self) -> int:
        """How many targets there are."""
        return int((self.targets != IGNORED).sum())

    @property
    def tokens(self) -> int:
        """How many tokens are read, those of the source too; padding is none."""
        read = [self.inputs.tokens] if self.inputs.source is None else [self.inputs.tokens, self.inputs.source]
        return sum(int(one.lengths.sum()) for one in read)

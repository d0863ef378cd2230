"""Masked language modelling (Devlin et al. 2018, §3.1, task 1): some tokens are hidden and predicted from all others.

    read       [CLS] the [MASK] by the bank [SEP]
    predicted              rose

15 % of a window's tokens are chosen, exactly and never a special one; of these, by chance, 80 % become the mask, 10 %
another token and 10 % stay as they are. What is chosen is a function of the window's key (see windows.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.windows import Row, TokenWindow
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer

CHOSEN = 0.15
MASKED, REPLACED = 0.8, 0.1


@dataclass(frozen=True, eq=False)
class Masking:
    """Windows of a stream between the special tokens of an encoder's text, some of their tokens hidden."""

    tokenizer: Tokenizer
    window: int

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ConfigError(
                f"a window of {self.window} tokens has no room beside {self.tokenizer.added()} special tokens",
                f"use data.window={self.tokenizer.added() + 1} or more",
            )

    @property
    def stride(self) -> int:
        """The tokens of a window that are text."""
        return self.window - self.tokenizer.added()

    @property
    def lookahead(self) -> int:
        """Nothing of the next window is seen."""
        return 0

    @property
    def places(self) -> int:
        """Text and special tokens."""
        return self.window

    def batch(self, windows: Sequence[TokenWindow]) -> Batch:
        """Windows with some tokens hidden, and what those were."""
        pairs = [self.hidden(stretch.ids, stretch.draws()) for stretch in windows]
        rows = [self.tokenizer.apply_template(read.tolist())[0] for read, _ in pairs]
        before = self.tokenizer.apply_template([-1])[0].index(-1)
        targets = [[IGNORED] * before + [int(one) for one in wanted] for _, wanted in pairs]
        filled = [[*row, *[IGNORED] * (len(ids) - len(row))] for row, ids in zip(targets, rows, strict=True)]
        return Batch(
            Inputs(Padded.of(rows, fill=self.tokenizer.pad_id)),
            Padded.of(filled, fill=IGNORED).ids,
        )

    def hidden(self, ids: Row, draws: np.random.Generator) -> tuple[Row, Row]:
        """The ids with some of them hidden, and in their places what they were; IGNORED elsewhere."""
        ordinary = np.flatnonzero(~self._special[ids])
        count = max(1, round(CHOSEN * len(ordinary))) if len(ordinary) else 0
        chosen = ordinary[np.argsort(draws.random(len(ordinary)), kind="stable")[:count]]
        fate, other = draws.random(count), draws.random(count)
        read, wanted = ids.astype(np.int64), np.full(len(ids), IGNORED, dtype=np.int64)
        wanted[chosen] = ids[chosen]
        read[chosen[fate < MASKED]] = self.tokenizer.mask_id
        replaced = (fate >= MASKED) & (fate < MASKED + REPLACED)
        read[chosen[replaced]] = self._words[(other[replaced] * len(self._words)).astype(np.int64)]
        return read, wanted

    @cached_property
    def _special(self) -> Bool[np.ndarray, "vocab"]:
        flags = np.zeros(self.tokenizer.size, dtype=np.bool_)
        flags[list(self.tokenizer.special_ids.values())] = True
        return flags

    @cached_property
    def _words(self) -> Int[np.ndarray, "words"]:
        """The ids that are no special tokens."""
        return np.flatnonzero(~self._special)

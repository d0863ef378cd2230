"""Filters that look at what stands there already: a penalty on repeating, no n-gram twice, banned words.

The prompt counts, as it does in transformers; padding never does. All of them run on the device without waiting.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.axes import RowLogits
from regard.decoding.filters import NOTHING, Generated, on
from regard.errors import InputError


@dataclass(frozen=True)
class RepetitionPenalty:
    """Scores of tokens that stand there already divided by the penalty above 0, else multiplied (Keskar 2019)."""

    penalty: float
    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.penalty < math.inf:
            raise InputError(
                f"repetition penalty {self.penalty} is not a number above 0", "use 1 for none, or such as 1.2"
            )

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """Lower scores for what would be a repetition; a penalty below 1 raises them."""
        known = _marked(scores, generated.ids)
        return torch.where(known, torch.where(scores < 0, scores * self.penalty, scores / self.penalty), scores)


@dataclass(frozen=True)
class NoRepeatNgram:
    """No `size` tokens in a row stand twice (Paulus et al. 2018, §2.5, has it with trigrams)."""

    size: int
    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"n-grams of {self.size} tokens are none", "use 1 or more")

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for every token that followed the same `size - 1` tokens before."""
        before = self.size - 1
        if generated.ids.shape[1] < self.size:
            return scores
        windows = generated.ids.unfold(1, self.size, 1)  # [rows, places, size]
        alike = (windows[:, :, :before] == generated.last(before)[:, None]).all(dim=-1)
        return scores.masked_fill(_marked(scores, windows[:, :, -1].masked_fill(~alike, NOTHING)), -torch.inf)


@dataclass(frozen=True)
class Banned:
    """These words, each of one token or of several, are never written: of each its last token is not chosen."""

    words: tuple[tuple[int, ...], ...]
    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not all(self.words):
            raise InputError("a banned word has no tokens", "give each one token or more")

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for what would complete one."""
        for length in sorted({len(word) for word in self.words}):
            words = [word for word in self.words if len(word) == length]
            ends = on(scores.device, tuple(word[-1] for word in words)).expand(len(scores), -1)
            if length > 1:
                begun = on(scores.device, tuple(token for word in words for token in word[:-1])).view(len(words), -1)
                met = (generated.last(length - 1)[:, None] == begun).all(dim=-1)
                ends = ends.masked_fill(~met, NOTHING)
            scores = scores.masked_fill(_marked(scores, ends), -torch.inf)
        return scores


def _marked(scores: RowLogits, ids: Int[Tensor, "rows some"]) -> Bool[Tensor, "rows vocab"]:
    """Which tokens are among these ids of their row; `-1` is none."""
    rows, vocabulary = scores.shape
    marks = torch.zeros(rows, vocabulary + 1, dtype=torch.bool, device=scores.device)
    return marks.scatter(1, ids.masked_fill(ids < 0, vocabulary), True)[:, :vocabulary]

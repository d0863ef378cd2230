"""Texts in a row, cut into windows: what models of language are trained on.

    texts      the rose | by the bank
    stream     <bos> the rose <eos> <bos> by the bank <eos>
    windows    of 4: `<bos> the rose <eos>`, `<bos> by the bank`, …

Texts are tokenised once and laid end to end. Every epoch begins at another random place of the first window and takes
the windows in another order; batches are always full, and may reach from one epoch into the next. What a window becomes
(the next tokens to predict, masks to fill) is a `WindowObjective`'s business. As in `stream.py`, a batch is a pure
function of the seed and its number: training can go on from any of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from tempfile import TemporaryFile
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.spooled import Spooled
from regard.data.stream import Position
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer

TOGETHER = 4096
"""Texts tokenised at a time: their ids as Python's numbers take many times the room of the stream's."""

CHARACTERS = 2**18
"""And so many characters, where texts are long."""

Row = Int[np.ndarray, "tokens"]


class _Growing:
    """A row of ids that grows, in memory or on the disk."""

    def __init__(self, on_disk: bool) -> None:
        self._parts: list[Row] = []
        self._file = TemporaryFile() if on_disk else None  # noqa: SIM115  (it lives as long as what is read from it)
        self._length = 0

    def add(self, part: Row) -> None:
        self._length += len(part)
        if self._file is None:
            self._parts.append(part)
        else:
            self._file.write(part.tobytes())

    def whole(self) -> Row:
        if self._file is None:
            return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int32)
        self._file.flush()
        return np.memmap(self._file, dtype=np.int32, mode="r", shape=(self._length,))


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """So many texts, or so many characters, at a time."""
    group: list[str] = []
    size = 0
    for one in texts:
        group.append(one)
        size += len(one)
        if len(group) == TOGETHER or size > CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


@dataclass(frozen=True, eq=False)
class TokenStream:
    """Texts as one row of ids; `documents` numbers them from 0, or is None where there is one alone."""

    ids: Row
    documents: Row | None

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer, *, begin: bool, end: bool = True) -> "TokenStream":
        """These texts, each between the special tokens that begin and end texts, as far as these are asked for.

        Of texts on the disk the ids are there too; pieces of one text are one.
        """
        spooled, joined = isinstance(texts, Spooled), isinstance(texts, Spooled) and texts.joined
        before, after = [tokenizer.bos_id] if begin else [], [tokenizer.eos_id] if end else []
        ids, numbers, number = _Growing(spooled), _Growing(spooled), 0
        for group in _groups(texts):
            for found in tokenizer.encode_batch(group):
                first, last = not joined or number == 0, not joined or number == len(texts) - 1
                row = [*(before if first else ()), *found, *(after if last else ())]
                ids.add(np.array(row, dtype=np.int32))
                numbers.add(np.full(len(row), number, dtype=np.int32))
                number += 1
        return cls(ids.whole(), None if joined or len(texts) < 2 else numbers.whole())

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class TokenWindow:
    """Some tokens in a row, and the key that everything random about them is drawn from."""

    ids: Row
    documents: Row | None
    key: tuple[int, ...]

    def draws(self) -> np.random.Generator:
        """Random numbers that are a function of the key."""
        return np.random.default_rng(self.key)


@runtime_checkable
class WindowObjective(Protocol):
    """How stretches of a stream become a batch.

    Laws: the batch of two stretches holds what the batches of each hold, and padding adds no target; the same stretches
    with the same keys give the same batch.
    """

    @property
    def stride(self) -> int:
        """How far apart windows begin."""
        ...

    @property
    def lookahead(self) -> int:
        """How many tokens of the next window a window needs to see."""
        ...

    @property
    def places(self) -> int:
        """How many places a window fills in a batch."""
        ...

    def batch(self, stretches: Sequence[TokenWindow]) -> Batch:
        """Windows side by side."""
        ...


@dataclass(frozen=True, eq=False)
class Windows:
    """Endless batches of `rows` windows each."""

    stream: TokenStream
    objective: WindowObjective
    rows: int
    seed: int = 0

    @classmethod
    def filling(cls, stream: TokenStream, objective: WindowObjective, tokens: int, seed: int) -> "Windows":
        """Batches of as many windows as fill `tokens` places."""
        if tokens < objective.places:
            raise ConfigError(
                f"a window fills {objective.places} tokens and a batch holds {tokens}",
                "raise training.batch_tokens or lower data.window",
            )
        if len(stream) < objective.stride + objective.lookahead:
            needed = objective.stride + objective.lookahead
            raise ConfigError(
                f"the training text has {len(stream)} tokens and a window takes {needed}",
                "give more text or lower data.window",
            )
        return cls(stream, objective, tokens // objective.places, seed)

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """Batches from here on, each with the position after it."""
        number = position.batch
        while True:
            windows = range(number * self.rows, (number + 1) * self.rows)
            yield self.objective.batch([self._window(index) for index in windows]), Position(0, number + 1)
            number += 1

    def batches_per_epoch(self) -> float:
        """Full batches may reach into the next epoch."""
        return self.epoch / self.rows

    @property
    def epoch(self) -> int:
        """How many windows an epoch has; the few tokens before its random beginning and after its end are left out."""
        return (len(self.stream) - self.objective.lookahead - self._slack + 1) // self.objective.stride

    @property
    def _slack(self) -> int:
        """How many places an epoch may begin at."""
        return min(self.objective.stride, len(self.stream) - self.objective.lookahead - self.objective.stride + 1)

    def _window(self, index: int) -> TokenWindow:
        epoch, place = divmod(index, self.epoch)
        offset, order = _epoch(self.seed, epoch, self._slack, self.epoch)
        first = offset + int(order[place]) * self.objective.stride
        return token_window(self.stream, first, self.objective, (self.seed, 0, epoch, int(order[place])))


@lru_cache(maxsize=8)
def _epoch(seed: int, epoch: int, slack: int, windows: int) -> tuple[int, Row]:
    """Where an epoch begins, and the order of its windows."""
    draws = np.random.default_rng((seed, 1, epoch))
    return int(draws.random() * slack), np.argsort(draws.random(windows), kind="stable")


def token_window(stream: TokenStream, first: int, objective: WindowObjective, key: tuple[int, ...]) -> TokenWindow:
    """A window's tokens, fewer where the stream ends."""
    here = slice(first, first + objective.stride + objective.lookahead)
    return TokenWindow(stream.ids[here], None if stream.documents is None else stream.documents[here], key)


def in_order(stream: TokenStream, objective: WindowObjective, tokens: int) -> list[Batch]:
    """The whole stream in windows from its beginning, each token in one of them; to measure on."""
    starts = range(0, max(len(stream) - objective.lookahead, 1), objective.stride)
    windows = [token_window(stream, first, objective, (2, index)) for index, first in enumerate(starts)]
    rows = max(1, tokens // objective.places)
    return [objective.batch(windows[first : first + rows]) for first in range(0, len(windows), rows)]


def overlapping(stream: TokenStream, window: int, stride: int, tokens: int) -> list[Batch]:
    """The whole stream in windows that begin `stride` apart, each token predicted in the first that reaches it.

        window 4, stride 2    a b c d          predicts b c d e
                                  c d e f      predicts f g

    So every token but the first is predicted once, and all but those of the first window from at least
    window − stride tokens before it. With a stride as long as the window, this is `in_order`.
    """
    starts = [0, *range(stride, max(len(stream) - 1 - window + stride, 0), stride)]
    rows, objective, batches = max(1, tokens // window), NextToken(window), []
    windows = [token_window(stream, first, objective, (2, first)) for first in starts]
    for first in range(0, len(windows), rows):
        batch = objective.batch(windows[first : first + rows])
        batch.targets[1 if first == 0 else 0 :, : window - stride] = IGNORED
        batches.append(batch)
    return batches


@dataclass(frozen=True)
class NextToken:
    """Causal language modelling: every token predicts the one after it, never one of another text."""

    window: int

    @property
    def stride(self) -> int:
        """Windows lie side by side."""
        return self.window

    @property
    def lookahead(self) -> int:
        """The last token's target is the next window's first."""
        return 1

    @property
    def places(self) -> int:
        """Every token of a window is read."""
        return self.window

    def batch(self, stretches: Sequence[TokenWindow]) -> Batch:
        """Tokens, and the same one place further; rows of several texts have their numbers beside them.

        A shorter row, such as the last of a text, is filled up at its end: no token sees what comes after it.
        """
        longest = max(len(one.ids) for one in stretches) - 1
        ids = np.zeros((len(stretches), longest), dtype=np.int64)
        targets = np.full_like(ids, IGNORED)
        numbers = None if stretches[0].documents is None else np.zeros_like(ids)
        for row, one in enumerate(stretches):
            length = len(one.ids) - 1
            ids[row, :length], targets[row, :length] = one.ids[:-1], one.ids[1:]
            if numbers is not None and one.documents is not None:
                targets[row, :length][one.documents[1:] != one.documents[:-1]] = IGNORED
                numbers[row, :length] = one.documents[:-1] - one.documents[0] + 1
        lengths = [len(one.ids) - 1 for one in stretches]
        documents = None if numbers is None else torch.from_numpy(numbers)
        tokens = Padded(
            torch.from_numpy(ids), torch.tensor(lengths), ragged=min(lengths) < longest, documents=documents
        )
        return Batch(Inputs(tokens), torch.from_numpy(targets))

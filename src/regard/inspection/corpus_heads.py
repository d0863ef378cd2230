"""What heads do on a file of text: of each its strongest edges, and rows sampled from the whole range of strengths.

A head's strongest edges are what it can do, not what it does: they are the end of a distribution. So rows are sampled
evenly by decile as well (Bolukbasi et al. 2021 show how the top alone misleads). The strength of a row is its largest
weight, the first token and special tokens left out, where attention rests that has nothing to find (`heads.py`).

The file is read text by text and nothing of it is kept but the examples: the strongest, and of every hundredth of
strength a few, drawn with equal chance (Vitter 1985, algorithm R). A row that is kept is kept whole and exact.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import FileError, InputError
from regard.inspection.capture import Recording
from regard.inspection.heads import sized
from regard.inspection.maps import labels, token_ids
from regard.text.tokenizer import Tokenizer

STRONGEST = 12
"""Edges of a head that are kept, from as many texts as there are."""
BINS, DRAWN = 100, 2
"""Of each hundredth of strength so many rows are kept."""
LONGEST_LINE = 2**20
"""Characters of a line that are read at once."""
DECILES, EACH = 10, 2
"""Of each tenth of a head's rows so many are shown."""


@dataclass(frozen=True, eq=False)
class CorpusRow:
    """One row of a head: who looks, at what, and how much, all of it."""

    text: int
    """Which of the texts, counted from 0."""
    row: int
    key: int
    """Where its largest weight goes."""
    strength: float
    token: str
    keys: tuple[str, ...]
    weights: NDArray[Any]


@dataclass(frozen=True)
class CorpusHead:
    """One head on all texts."""

    layer: str
    head: int
    rows: int
    """How many rows were seen."""
    mean: float
    """Of their strengths."""
    bounds: tuple[float, ...]
    """The strengths that part the deciles, to a hundredth."""
    strongest: tuple[CorpusRow, ...]
    deciles: tuple[tuple[CorpusRow, ...], ...]
    """Rows drawn from every tenth, the weakest first."""


@dataclass(frozen=True)
class CorpusReport:
    """Heads on a file of text."""

    texts: int
    tokens: int
    heads: tuple[CorpusHead, ...]


@dataclass(frozen=True, eq=False)
class _Seen:
    """One text in one layer: the rows that count, and where the largest weight of each goes."""

    text: int
    rows: tuple[str, ...]
    keys: tuple[str, ...]
    maps: Float[Tensor, "heads rows keys"]
    places: Int[Tensor, "some"]
    strengths: Float[Tensor, "heads some"]
    most: Int[Tensor, "heads some"]

    @classmethod
    def of(cls, seen: Recording, layer: str, tokenizer: Tokenizer, text: int) -> "_Seen":
        """Without the first token and special ones as rows or as keys."""
        special = frozenset(tokenizer.special_ids.values())
        rows, columns = token_ids(seen, layer)
        maps = sized(seen.trace(layer).weights(None))
        first = 0 if seen.crosses(layer) else 1
        places = torch.tensor([at for at in range(first, len(rows)) if rows[at] not in special], dtype=torch.long)
        left_out = torch.tensor([at == 0 or one in special for at, one in enumerate(columns)])
        strengths, most = maps[:, places].masked_fill(left_out, 0.0).max(dim=-1)
        return cls(text, *labels(seen, layer, tokenizer), maps, places, strengths, most)

    def row(self, head: int, at: int, strength: float) -> CorpusRow:
        """One of them, whole."""
        place = int(self.places[at])
        weights = self.maps[head, place].numpy().astype(np.float32)
        return CorpusRow(self.text, place, int(self.most[head, at]), strength, self.rows[place], self.keys, weights)


@dataclass(eq=False)
class _Kept:
    """What is kept of one head while texts go by."""

    random: Random
    rows: int = 0
    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * BINS)
    drawn: list[list[tuple[float, int, CorpusRow]]] = field(default_factory=lambda: [[] for _ in range(BINS)])
    strongest: dict[int, tuple[float, int, CorpusRow]] = field(default_factory=dict)
    """The best row of a text each, of the texts with the best."""

    def add(self, seen: "_Seen", head: int) -> None:
        """One text's rows; only those that are kept are made."""
        strengths, text = seen.strengths[head].tolist(), seen.text
        best = max(range(len(strengths)), key=strengths.__getitem__)

        def row_of(at: int, strength: float) -> CorpusRow:
            return seen.row(head, at, strength)

        for at, strength in enumerate(strengths):
            self.rows += 1
            self.total += strength
            bin = min(int(strength * BINS), BINS - 1)
            self.counts[bin] += 1
            if len(self.drawn[bin]) < DRAWN:
                self.drawn[bin].append((strength, self.rows, row_of(at, strength)))
            elif (place := int(self.random.random() * self.counts[bin])) < DRAWN:
                self.drawn[bin][place] = (strength, self.rows, row_of(at, strength))
        if len(self.strongest) < STRONGEST or strengths[best] > min(one[0] for one in self.strongest.values()):
            self.strongest[text] = (strengths[best], -text, row_of(best, strengths[best]))
            if len(self.strongest) > STRONGEST:
                del self.strongest[min(self.strongest, key=lambda one: self.strongest[one][:2])]

    def head(self, layer: str, head: int) -> CorpusHead:
        """What is shown of it."""
        strongest = tuple(one[2] for one in heapq.nlargest(STRONGEST, self.strongest.values(), key=lambda one: one[:2]))
        before, tenth, parts = 0, self.rows / DECILES, [list[CorpusRow]() for _ in range(DECILES)]
        bounds: list[float] = []
        for bin, count in enumerate(self.counts):
            while len(bounds) < DECILES - 1 and before + count >= tenth * (len(bounds) + 1):
                bounds.append((bin + 1) / BINS)
            if count:
                middle = min(int((before + count / 2) / tenth), DECILES - 1)
                parts[middle] += [one[2] for one in self.drawn[bin]]
            before += count
        chosen = tuple(tuple(self.random.sample(part, min(EACH, len(part)))) for part in parts)
        return CorpusHead(layer, head, self.rows, self.total / self.rows, tuple(bounds), strongest, chosen)


def heads_on_corpus(
    texts: Iterable[str],
    look: Callable[[str], Recording],
    tokenizer: Tokenizer,
    layer: str | None = None,
    head: int | None = None,
) -> CorpusReport:
    """Every head, or those of a layer, or one; each text is looked at and forgotten."""
    kept: dict[tuple[str, int], _Kept] = {}
    count = tokens = 0
    for text in texts:
        seen = look(text)
        for name in seen.layers if layer is None else [layer]:
            trace = seen.trace(name, head)  # says which there are
            chosen = range(trace.heads) if head is None else [head]
            found = _Seen.of(seen, name, tokenizer, count)
            for one in chosen if len(found.places) else []:
                kept.setdefault((name, one), _Kept(Random(f"{name}:{one}"))).add(found, one)
            tokens += len(found.keys) if name == (layer or seen.layers[0]) else 0
        count += 1
    if not kept:
        raise InputError("no text has a token that looks at another", "give a file of longer lines")
    return CorpusReport(count, tokens, tuple(one.head(*place) for place, one in kept.items()))


def texts_of(path: Path, tokenizer: Tokenizer, window: int) -> Iterator[str]:
    """The lines of a file, each cut into texts of so many tokens; only one is held."""
    try:
        with path.open(encoding="utf-8") as file:
            while line := file.readline(LONGEST_LINE):
                if line.strip():
                    yield from _cut(line.strip("\n"), tokenizer, window)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", "name a file of text") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8: byte {error.start} after what was read", "convert it first") from error


def _cut(line: str, tokenizer: Tokenizer, window: int) -> Iterator[str]:
    offsets = tokenizer.offsets(line)
    for first in range(0, len(offsets), window):
        last = min(first + window, len(offsets)) - 1
        text = line[offsets[first][0] : offsets[last][1]]
        if text.strip():
            yield text

"""Which heads find the arcs of a grammar: from a verb its subject, from a pronoun what it stands for.

An arc is found by a head if, of all words but the sink and the dependent itself, the arc's head gets the most of the
dependent's attention. Pieces are merged as in Clark et al. 2019, §3.1: attention to a word is the sum over its
pieces, attention from a word the mean. Each share stands beside that of the best fixed offset for the same arcs: a
head that looks one word back finds most determiners and knows no grammar. The sentences come from `data/grammar.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.grammar import RELATIONS, Parsed, best_offset
from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.inspection.heads import sized
from regard.inspection.maps import token_ids
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Baseline:
    """The fixed offset in words that finds the most arcs of a relation."""

    relation: str
    arcs: int
    offset: int
    share: float


@dataclass(frozen=True)
class ArcShare:
    """The share of a relation's arcs that a head finds."""

    layer: str
    head: int
    relation: str
    share: float


@dataclass(frozen=True)
class GrammarReport:
    """Every head's share of every relation, beside what a fixed offset finds."""

    shares: tuple[ArcShare, ...]
    baselines: tuple[Baseline, ...]

    def best(self, relation: str) -> ArcShare:
        """The head that finds the most of a relation."""
        return max((one for one in self.shares if one.relation == relation), key=lambda one: one.share)


def find_arcs(seen: Recording, tokenizer: Tokenizer, parsed: Sequence[Parsed]) -> GrammarReport:
    """Of the sentences that were seen, in this order, one sequence each."""
    if seen.sequences != len(parsed):
        raise InputError(
            f"{seen.sequences} sequences were seen and {len(parsed)} sentences are given", "read each of them once"
        )
    found: dict[tuple[str, int, str], list[bool]] = {}
    for index, sentence in enumerate(parsed):
        one = seen.only(index)
        for layer in one.layers:
            if not one.crosses(layer):
                _find(found, one, layer, _Words.of(one, layer, tokenizer, sentence))
    if not found:
        raise InputError("only attention between two texts was seen", "use a model that attends within a text")
    shares = tuple(ArcShare(*place, float(np.mean(hits))) for place, hits in found.items())
    counts = {name: sum(arc.relation == name for one in parsed for arc in one.arcs) for name in RELATIONS}
    known = [name for name in RELATIONS if counts[name]]
    return GrammarReport(shares, tuple(Baseline(name, counts[name], *best_offset(parsed, name)) for name in known))


@dataclass(frozen=True, eq=False)
class _Words:
    """A sentence among a layer's tokens: the places of every word's pieces."""

    sentence: Parsed
    pieces: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, seen: Recording, layer: str, tokenizer: Tokenizer, sentence: Parsed) -> "_Words | None":
        """None where the layer reads something else, as a decoder does that writes an answer."""
        rows, columns = token_ids(seen, layer)
        ids = tokenizer.encode(sentence.text)
        begin = next((at for at in range(len(rows)) if rows[at : at + len(ids)] == ids), None)
        if begin is None or rows != columns:
            return None
        offsets = tokenizer.offsets(sentence.text)
        pieces = [
            tuple(begin + at for at, (start, stop) in enumerate(offsets) if start < last and stop > first)
            for first, last in sentence.spans
        ]
        if not all(pieces):
            word = sentence.words[pieces.index(())]
            raise InputError(f"the tokenizer leaves {word!r} out", "use a model that reads English")
        return cls(sentence, tuple(pieces))

    def to_words(self, row: NDArray[Any]) -> NDArray[Any]:
        """`[heads, words]` from `[heads, keys]`."""
        return np.stack([row[:, list(places)].sum(axis=1) for places in self.pieces], axis=1)


def _find(found: dict[tuple[str, int, str], list[bool]], seen: Recording, layer: str, words: _Words | None) -> None:
    if words is None:
        return
    trace = seen.trace(layer)
    for arc in words.sentence.arcs:
        rows = sized(trace.weights(list(words.pieces[arc.dependent]))).numpy().copy()
        rows[:, :, 0] = 0.0  # where a sink rests
        shares = words.to_words(rows.mean(axis=1))
        shares[:, arc.dependent] = -1.0
        for head, most in enumerate(shares.argmax(axis=1)):
            hit = bool(most == arc.head and shares[head, most] > 0)
            found.setdefault((layer, head, arc.relation), []).append(hit)

"""What kind of head each head is: one number for each thing a head is known to do, measured on what was seen.

    sink        the share that goes to the first token, where it has nothing to find (Xiao et al. 2023, §3.1)
    special     the share that goes to other special tokens, such as BERT's [SEP] (Clark et al. 2019, §3.2)

Both are measured first and then taken out: every other measure is of the rows without these columns, renormalised.
Else a head that rests on the first token nine times in ten is called nothing else, whatever it does the tenth time. A
row counts by what it has left.

    entropy     −Σ w log w in nats: 0 looks at one token, log n at n alike
    distance    tokens between a row and what it looks at
    previous    the share that goes to the token before
    following   the share that goes to the token after, in an encoder
    same        the share that goes to another token of the same id
    induction   the share that goes to a token that stands behind an earlier one of the same id: what came next
                last time (Olsson et al. 2022, §2.2); over the rows that have one

A head whose measures say nothing above chance has the character `mixed`. Between two texts there is no distance, no
token before and no next time: these are None of cross-attention. A mechanism that shows effective weights, which may
be negative, is measured by their sizes, each row's adding up to 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.inspection.maps import token_ids
from regard.inspection.trace import TILE

MEASURES = ("sink", "special", "entropy", "distance", "previous", "following", "same", "induction", "repeated")
CHARACTERS = {"previous": "previous token", "following": "next token", "induction": "induction", "same": "same word"}
MOSTLY = 0.9
"""A head of which more than this goes to the sink is one."""
CLEAR = 0.3
"""A share from which a head is called by what it does; several times what an even row gives."""
TRACE = 1e-9


@dataclass(frozen=True)
class HeadMeasures:
    """One head, by its numbers; None where a measure has no meaning or nothing to be measured on."""

    layer: str
    head: int
    sink: float
    special: float
    entropy: float | None
    distance: float | None
    previous: float | None
    following: float | None
    same: float | None
    induction: float | None
    repeated: float | None = None
    """Induction on random tokens that come twice, where nothing but the repetition can be learnt from."""

    @property
    def character(self) -> str:
        """What it does more than anything else that has a name."""
        if self.sink + self.special > MOSTLY:
            return "sink"
        shares = {
            "previous": self.previous or 0.0,
            "following": self.following or 0.0,
            "induction": max(self.induction or 0.0, self.repeated or 0.0),
            "same": self.same or 0.0,
        }
        most = max(shares, key=lambda name: shares[name])
        return CHARACTERS[most] if shares[most] >= CLEAR else "mixed"


class _Sums:
    """What a head's measures are means of, over rows and texts."""

    def __init__(self, heads: int) -> None:
        self.totals: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self.heads = heads

    def add(self, name: str, values: Float[Tensor, "heads rows"], counting: Float[Tensor, "heads rows"]) -> None:
        """Rows with a weight each."""
        total, count = ((values * counting).sum(dim=1), counting.sum(dim=1))
        self.totals[name] = self.totals.get(name, torch.zeros_like(total)) + total
        self.counts[name] = self.counts.get(name, torch.zeros_like(count)) + count

    def mean(self, name: str, head: int) -> float | None:
        """Over all of them; None of none."""
        if name not in self.totals or float(self.counts[name][head]) < TRACE:
            return None
        return float(self.totals[name][head] / self.counts[name][head])


def measure_heads(seen: Recording, special: Sequence[int] = (), most_rows: int | None = None) -> list[HeadMeasures]:
    """Every head of every layer that was seen, over all texts; `special` are the ids of special tokens.

    Of a longer text at most so many rows are looked at, evenly spread, where `most_rows` says how many.
    """
    found: dict[str, _Sums] = {}
    for index in range(seen.sequences):
        one = seen.only(index)
        for layer in one.layers:
            trace = one.trace(layer)
            sums = found.setdefault(layer, _Sums(trace.heads))
            rows, columns = (torch.tensor(ids) for ids in token_ids(one, layer))
            text = _Text(rows, columns, frozenset(special), one.crosses(layer))
            _measure(sums, one, layer, text, most_rows or len(rows))
    if not found:
        raise InputError("nothing was seen", "run the model inside the `with` block, then ask")
    return [_measures(layer, head, sums) for layer, sums in found.items() for head in range(sums.heads)]


def repeated_induction(seen: Recording, half: int) -> dict[tuple[str, int], float]:
    """Of rows `[first, x_1 … x_n, x_1 … x_n]`: the share of the second half's attention to what came next in the first.

    The first token is taken out, as everywhere.
    """
    shares: dict[tuple[str, int], list[float]] = {}
    for index in range(seen.sequences):
        one = seen.only(index)
        for layer in one.layers:
            if one.crosses(layer):
                continue
            maps = sized(one.trace(layer).weights(range(1 + half, 1 + 2 * half)))
            rest = maps[:, :, 1:].sum(dim=(1, 2)).clamp(min=TRACE)
            hits = torch.stack([maps[:, at, at + 2] for at in range(half)]).sum(dim=0)
            for head, share in enumerate((hits / rest).tolist()):
                shares.setdefault((layer, head), []).append(share)
    return {place: float(np.mean(many)) for place, many in shares.items()}


@dataclass(frozen=True, eq=False)
class _Text:
    """The ids of a layer's rows and columns."""

    rows: Int[Tensor, "rows"]
    columns: Int[Tensor, "columns"]
    special: frozenset[int]
    cross: bool

    def is_special(self, ids: Int[Tensor, "some"]) -> Bool[Tensor, "some"]:
        """Which of these tokens are special."""
        return torch.tensor([one in self.special for one in ids.tolist()], dtype=torch.bool)


def sized(weights: Float[Tensor, "heads rows keys"]) -> Float[Tensor, "heads rows keys"]:
    """Weights that add up to 1 in every row, or to 0: those of a softmax as they are, others by their sizes."""
    sizes = weights.detach().abs().double().cpu()
    whole = sizes.sum(dim=-1, keepdim=True)
    return torch.where(whole > TRACE, sizes / whole.clamp(min=TRACE), 0.0)


def _tiles(seen: Recording, layer: str, most: int) -> Iterator[tuple[Int[Tensor, "rows"], Tensor]]:
    """Rows, some at a time, and their weights."""
    trace = seen.trace(layer)
    count = len(trace.places())
    if count <= most:
        first = 0
        for tile in trace.tiles():
            yield torch.arange(first, first + tile.shape[1]), sized(tile)
            first += tile.shape[1]
        return
    spread = torch.arange(most) * count // most
    together = most if seen.mechanism(layer) else max(1, TILE // (trace.heads * trace.calls[-1].keys))
    for first in range(0, most, together):
        some = spread[first : first + together]
        yield some, sized(trace.weights(some.tolist()))


def _measure(sums: _Sums, seen: Recording, layer: str, text: _Text, most: int) -> None:
    special = text.is_special(text.columns)
    others = special.clone()
    others[:1] = False
    first = torch.zeros_like(special)
    first[:1] = True
    for places, tile in _tiles(seen, layer, most):
        row_ids = text.rows[places]
        counted = ~text.is_special(row_ids)
        if not text.cross:
            counted &= places > 0  # the first has itself alone to look at, in a decoder
        if not bool(counted.any()):
            continue
        tile, row_ids, places = tile[:, counted], row_ids[counted], places[counted]
        alike = torch.ones(tile.shape[:2], dtype=torch.float64)
        sums.add("sink", tile[:, :, first].sum(dim=-1), alike)
        sums.add("special", tile[:, :, others].sum(dim=-1), alike)
        left = tile.masked_fill(first | special, 0.0)
        rest = left.sum(dim=-1)
        _shares(sums, left / rest.clamp(min=TRACE)[..., None], rest, row_ids, places, text)


def _shares(
    sums: _Sums,
    weights: Float[Tensor, "heads rows keys"],
    rest: Float[Tensor, "heads rows"],
    row_ids: Int[Tensor, "rows"],
    places: Int[Tensor, "rows"],
    text: _Text,
) -> None:
    """What is left of the rows, by where it goes; a row counts by `rest`."""
    keys = torch.arange(weights.shape[-1])
    sums.add("entropy", torch.special.entr(weights).sum(dim=-1), rest)
    same = row_ids[:, None] == text.columns
    if text.cross:
        sums.add("same", (weights * same).sum(dim=-1), rest * same.any(dim=-1))
        return
    sums.add("distance", (weights * (keys - places[:, None]).abs()).sum(dim=-1), rest)
    before = keys == places[:, None] - 1
    sums.add("previous", (weights * before).sum(dim=-1), rest * (places > 1))
    after = keys == places[:, None] + 1
    sums.add("following", (weights * after).sum(dim=-1), rest * _reachable(after, weights))
    same = same & (keys != places[:, None])
    sums.add("same", (weights * same).sum(dim=-1), rest * _reachable(same, weights))
    next_time = torch.zeros_like(same)
    next_time[:, 1:] = same[:, :-1] & (keys[:-1] < places[:, None])
    sums.add("induction", (weights * next_time).sum(dim=-1), rest * _reachable(next_time, weights))


def _reachable(wanted: Bool[Tensor, "rows keys"], weights: Float[Tensor, "heads rows keys"]) -> Bool[Tensor, "rows"]:
    """Which rows have one that some head may see."""
    return (wanted & (weights > 0).any(dim=0)).any(dim=-1)


def _measures(layer: str, head: int, sums: _Sums) -> HeadMeasures:
    shares = {name: sums.mean(name, head) for name in MEASURES}
    return HeadMeasures(
        layer,
        head,
        shares["sink"] or 0.0,
        shares["special"] or 0.0,
        *(shares[name] for name in ("entropy", "distance", "previous", "following", "same", "induction")),
    )

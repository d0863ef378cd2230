"""Learning merges from counted words, compiled by Numba: several times as fast as an engine that must be shown text.

All words stand in one array, a place for each symbol. A place knows its neighbours in the word, and the pair that
begins there; the places of a pair are a doubly linked list, so that a merge touches exactly the places it changes. The
most frequent pair comes from a heap whose entries may be out of date: a pair that has become rarer is put back.

The rule for ties is `engine`: of pairs that occur equally often, that of the lowest ids. `bpe.py` says the same in
plain Python. No name is made twice: where two stretches spell the same and each becomes one symbol, no merge reached
over their ends, so all merges were the same in both.

Importing this file needs Numba; `training.py` does so where it is worth it. Numba looks at this file's time alone:
whoever changes `compiled` in `pretokenize_numba.py` touches this one too.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, no_type_check

import numpy as np
from numpy.typing import NDArray

from regard.text.pretokenize_numba import NONE, compiled

Numbers = NDArray[Any]


class Words(NamedTuple):
    """The symbols of all words, one after the other; what is said of a place that was merged away means nothing."""

    symbol: Numbers
    after: Numbers
    """The place of the word's next symbol."""
    before: Numbers
    often: Numbers
    """How often the word of a place occurs."""
    pair: Numbers
    """The pair that begins at a place."""
    later: Numbers
    """The next place of the same pair."""
    earlier: Numbers


class Pairs(NamedTuple):
    """Every pair of symbols that ever stood side by side: its symbols, how often they do now, and a place where."""

    left: Numbers
    right: Numbers
    often: Numbers
    first: Numbers


def merge_words(counts: Mapping[str, int], letters: Sequence[str], *, first: int, size: int) -> list[tuple[int, int]]:
    """The ids of the pairs that are joined, until there are `size` ids or no pair occurs twice.

    The letters have the ids from `first` on, in their order, and what is joined the ids after them.
    """
    spelt = np.frombuffer("".join(counts).encode("utf-32-le"), dtype=np.uint32)
    alphabet = np.frombuffer("".join(letters).encode("utf-32-le"), dtype=np.uint32)
    order = np.argsort(alphabet)
    symbols = (first + order[np.searchsorted(alphabet, spelt, sorter=order)]).astype(np.int32)
    lengths = np.fromiter(map(len, counts), dtype=np.int64, count=len(counts))
    often = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    ends = np.cumsum(lengths)
    found = learn(symbols, ends, np.repeat(often, lengths), first + len(letters), size)
    return [(int(left), int(right)) for left, right in found.tolist()]


@compiled
@no_type_check
def learn(symbols: Numbers, ends: Numbers, counts: Numbers, known: int, size: int) -> Numbers:
    """The merges, one on each row; `known` ids are letters, or stand in no word."""
    words = _words(symbols, ends, counts)
    with_left, with_right = np.full(size, NONE, np.int32), np.full(size, NONE, np.int32)
    pairs, used = _counted(words, known, with_right)
    heap = [(-pairs.often[pair], pairs.left[pair], pairs.right[pair], pair) for pair in range(used)]
    heapq.heapify(heap)
    places = np.empty(symbols.size, np.int32)
    merges = np.empty((size - known, 2), np.int32)
    done = 0
    while done < len(merges) and len(heap) > 0:
        often, left, right, pair = heapq.heappop(heap)
        if pairs.often[pair] != -often:
            heapq.heappush(heap, (-pairs.often[pair], left, right, pair))
            continue
        if often > -2:
            break
        merges[done, 0], merges[done, 1] = left, right
        number = _places(words, pairs, pair, places)
        pairs, fresh = _room(pairs, used + 2 * min(number, known + done + 1)), used
        for place in places[:number]:
            if words.pair[place] == pair:  # else the one before it took its left symbol
                used = _join(words, pairs, place, known + done, with_left, with_right, used)
        for new in range(fresh, used):
            with_right[pairs.right[new]] = with_left[pairs.left[new]] = NONE
            if pairs.often[new] >= 2:
                heapq.heappush(heap, (-pairs.often[new], pairs.left[new], pairs.right[new], new))
        done += 1
    return merges[:done]


@compiled
@no_type_check
def _words(symbols: Numbers, ends: Numbers, often: Numbers) -> Words:
    size = symbols.size
    after, before = np.arange(1, size + 1).astype(np.int32), np.arange(-1, size - 1).astype(np.int32)
    for end in ends:
        after[end - 1] = NONE
        if end < size:
            before[end] = NONE
    nowhere = np.full(size, NONE, np.int32)
    return Words(symbols, after, before, often, nowhere, nowhere.copy(), nowhere.copy())


@compiled
@no_type_check
def _counted(words: Words, known: int, with_right: Numbers) -> tuple[Pairs, int]:
    """All pairs with their places, those of one left symbol after the other."""
    starts = np.zeros(known + 1, np.int64)
    for place in range(words.symbol.size):
        starts[words.symbol[place] + 1] += 1
    starts = np.cumsum(starts)
    ordered, ahead = np.empty(words.symbol.size, np.int32), starts.copy()
    for place in range(words.symbol.size):
        ordered[ahead[words.symbol[place]]] = place
        ahead[words.symbol[place]] += 1
    none = np.empty(0, np.int32)
    pairs, used = Pairs(none, none, np.empty(0, np.int64), none), 0
    for left in range(known):
        fresh = used
        pairs = _room(pairs, used + min(known, starts[left + 1] - starts[left]))
        for place in ordered[starts[left] : starts[left + 1]][::-1]:  # so that the first place comes first
            if words.after[place] != NONE:
                right = words.symbol[words.after[place]]
                if with_right[right] == NONE:
                    used = _begin(pairs, left, right, used)
                    with_right[right] = used - 1
                _enter(words, pairs, place, with_right[right])
        for pair in range(fresh, used):
            with_right[pairs.right[pair]] = NONE
    return pairs, used


@compiled
@no_type_check
def _join(words: Words, pairs: Pairs, place: int, both: int, with_left: Numbers, with_right: Numbers, used: int) -> int:
    """Make the symbol at the place and the next one; give their neighbours new pairs.

    A pair's places come in rising or in falling order, so two new symbols side by side are met from one side alone.
    """
    second = words.after[place]
    before, after = words.before[place], words.after[second]
    for changed in (before, place, second):
        if changed != NONE and words.pair[changed] != NONE:
            _leave(words, pairs, changed)
    words.symbol[place], words.after[place] = both, after
    if after != NONE:
        words.before[after] = place
        right = words.symbol[after]
        if with_right[right] == NONE:
            used = _begin(pairs, both, right, used)
            with_right[right] = used - 1
        _enter(words, pairs, place, with_right[right])
    if before != NONE:
        left = words.symbol[before]
        if with_left[left] == NONE:
            used = _begin(pairs, left, both, used)
            with_left[left] = used - 1
        _enter(words, pairs, before, with_left[left])
    return used


@compiled
@no_type_check
def _begin(pairs: Pairs, left: int, right: int, used: int) -> int:
    pairs.left[used], pairs.right[used], pairs.often[used], pairs.first[used] = left, right, 0, NONE
    return used + 1


@compiled
@no_type_check
def _enter(words: Words, pairs: Pairs, place: int, pair: int) -> None:
    first = pairs.first[pair]
    words.pair[place], words.later[place], words.earlier[place] = pair, first, NONE
    if first != NONE:
        words.earlier[first] = place
    pairs.first[pair] = place
    pairs.often[pair] += words.often[place]


@compiled
@no_type_check
def _leave(words: Words, pairs: Pairs, place: int) -> None:
    pair, earlier, later = words.pair[place], words.earlier[place], words.later[place]
    if earlier == NONE:
        pairs.first[pair] = later
    else:
        words.later[earlier] = later
    if later != NONE:
        words.earlier[later] = earlier
    pairs.often[pair] -= words.often[place]
    words.pair[place] = NONE


@compiled
@no_type_check
def _places(words: Words, pairs: Pairs, pair: int, places: Numbers) -> int:
    """Write down the places of a pair; from the left where they may overlap."""
    number, place = 0, pairs.first[pair]
    while place != NONE:
        places[number] = place
        number += 1
        place = words.later[place]
    if pairs.left[pair] == pairs.right[pair]:
        places[:number] = np.sort(places[:number])
    return number


@compiled
@no_type_check
def _room(pairs: Pairs, size: int) -> Pairs:
    """The same pairs, with room for at least so many."""
    if size <= pairs.left.size:
        return pairs
    wider = max(size, 2 * pairs.left.size)
    found = Pairs(
        np.empty(wider, np.int32), np.empty(wider, np.int32), np.empty(wider, np.int64), np.empty(wider, np.int32)
    )
    found.left[: pairs.left.size], found.right[: pairs.left.size] = pairs.left, pairs.right
    found.often[: pairs.left.size], found.first[: pairs.left.size] = pairs.often, pairs.first
    return found

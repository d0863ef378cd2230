"""Byte-pair encoding in plain Python: what the fast engines are compared with, and what `explain` shows.

Sennrich, Haddow & Birch 2016, algorithm 1: join the most frequent pair of neighbouring symbols, again and again. Words
come with their counts; each character is a symbol. Of pairs that occur equally often, the rule `smallest` takes the one
smallest as text, left symbol then right; `greatest-bytes` the greatest bytes; `engine` the lowest ids, as `tokenizers`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import ConfigError, InputError, choose

Pair = tuple[str, str]
RULES = ("smallest", "greatest-bytes", "engine")


@dataclass(frozen=True)
class Merge:
    """A pair that was joined, how often it occurred, and the pairs that occurred as often, best first by the rule."""

    pair: Pair
    count: int
    ties: tuple[Pair, ...]


@dataclass(frozen=True)
class Bpe:
    """Merges in the order they were learnt, and the vocabulary in the order of its ids."""

    merges: tuple[Merge, ...]
    vocabulary: tuple[str, ...]

    def encode(self, word: str) -> list[str]:
        """The pieces of a word: of its neighbours, those that were joined first in training are joined first."""
        return build(word, {merge.pair: rank for rank, merge in enumerate(self.merges)})[-1]


def train(
    counts: Mapping[str, int],
    size: int | None = None,
    rule: str = "smallest",
    *,
    specials: Iterable[str] = (),
    alphabet: Iterable[str] = (),
    bytes_of: Callable[[str], bytes] = str.encode,
) -> Bpe:
    """Merges until the vocabulary (specials, sorted characters, what was joined) is full or no pair occurs twice."""
    if rule not in RULES:
        raise InputError(f"there is no rule {rule!r} for ties", choose(rule, RULES))
    ids = {name: place for place, name in enumerate(dict.fromkeys([*specials, *sorted({*alphabet, *"".join(counts)})]))}
    if size is not None and size < len(ids):
        raise ConfigError(f"a vocabulary of {size} cannot hold {len(ids)} characters", f"use {len(ids)} or more")
    preference: dict[str, Callable[[Pair], object]] = {
        "smallest": lambda pair: pair,
        "greatest-bytes": lambda pair: (bytes_of(pair[0]), bytes_of(pair[1])),
        "engine": lambda pair: (ids[pair[0]], ids[pair[1]]),
    }
    words = [(list(word), count) for word, count in counts.items()]
    found: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for place, (symbols, count) in enumerate(words):
        for pair in pairwise(symbols):
            found[pair] += count
            places[pair].add(place)
    merges: list[Merge] = []
    while len(ids) != size and (most := max(found.values(), default=0)) >= 2:
        tied = [pair for pair, count in found.items() if count == most]
        best, *ties = sorted(tied, key=preference[rule], reverse=rule == "greatest-bytes")  # type: ignore[arg-type]
        merges.append(Merge(best, most, tuple(ties)))
        ids.setdefault("".join(best), len(ids))
        for place in places.pop(best):
            symbols, count = words[place]
            found.subtract({pair: often * count for pair, often in Counter(pairwise(symbols)).items()})
            words[place] = joined(symbols, best), count
            for pair in pairwise(words[place][0]):
                found[pair] += count
                places[pair].add(place)
    return Bpe(tuple(merges), tuple(ids))


def build(word: str, ranks: Mapping[Pair, int]) -> list[list[str]]:
    """A word's symbols: its characters, then what each merge that applies makes of them; the last are its pieces."""
    states = [list(word)]
    while known := [pair for pair in pairwise(states[-1]) if pair in ranks]:
        states.append(joined(states[-1], min(known, key=ranks.__getitem__)))
    return states


def joined(symbols: Sequence[str], pair: Pair) -> list[str]:
    """The symbols with every occurrence of the pair, from the left, made one."""
    found: list[str] = []
    for symbol in symbols:
        if found and (found[-1], symbol) == pair:
            found[-1] += symbol
        else:
            found.append(symbol)
    return found

"""How byte-pair encoding came to its merges, and how the merges build the tokens of a text, as records and as lines.

    corpus_lines(derive(marked_words("low lower newest wider")), WORDS)

A derivation replays the plain reference (bpe.py): before each merge the pairs and their counts, ties first, and after
it the words it changed. Lines are lists of (text, style); a terminal colours them, a pipe drops the styles. Whatever
a terminal would obey is written out in them (`escape`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import pairwise

from regard.errors import InputError
from regard.text.bpe import Bpe, Merge, Pair, build, joined, train
from regard.text.bytelevel import bytes_of
from regard.text.escape import escape
from regard.text.word_bpe import MARK, STAND_IN, shown

MOST_WORDS = 2_000
"""Different words of a corpus that is explained: some seconds. Time goes with words times merges, so more take long."""
LONGEST_WORD = 2_000
"""Characters of a word that is explained: a merge may go through all of them."""
SHOWN_PAIRS = 10
SHOWN_WORDS = 40

Word = tuple[tuple[str, ...], int]
Line = list[tuple[str, str]]


@dataclass(frozen=True)
class Reading:
    """How people read what is written in symbols."""

    word: Callable[[str], str]
    """A word as its text has it, but for what a terminal would obey."""
    pieces: Callable[[Sequence[str]], Sequence[str]]
    """Pieces as they are shown."""


@dataclass(frozen=True)
class Step:
    """A merge, the pairs it was chosen among (most frequent first), and the words after it."""

    merge: Merge
    pairs: tuple[tuple[Pair, int], ...]
    more: int
    """Pairs that occurred less often and are not among `pairs`."""
    words: tuple[Word, ...]
    """Those it changed; all of a corpus that has no more than are shown."""


@dataclass(frozen=True)
class Derivation:
    """A corpus as characters, every merge, the vocabulary, and what is left at the end."""

    rule: str
    start: tuple[Word, ...]
    steps: tuple[Step, ...]
    left: tuple[tuple[Pair, int], ...]
    """The pairs after the last merge, most frequent first."""
    vocabulary: tuple[str, ...]
    end: tuple[Word, ...]
    """The corpus after the last merge."""

    @property
    def in_use(self) -> tuple[str, ...]:
        """The symbols the corpus is written in at the end."""
        return tuple(sorted({symbol for symbols, _ in self.end for symbol in symbols}))

    @property
    def stopped(self) -> str:
        """Why there are no more merges."""
        full = bool(self.left) and self.left[0][1] >= 2
        return f"the vocabulary of {len(self.vocabulary)} is full" if full else "no pair occurs twice"


@dataclass(frozen=True)
class Building:
    """How merges build a word's pieces: its symbols at first, then each merge that applied and what it left."""

    word: str
    start: tuple[str, ...]
    steps: tuple[tuple[Pair, int, tuple[str, ...]], ...]
    """Pair, number of the merge from 1, symbols after it."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """What is left at the end."""
        return self.steps[-1][2] if self.steps else self.start


def derive(
    words: Iterable[str],
    size: int | None = None,
    rule: str = "smallest",
    *,
    alphabet: Iterable[str] = (),
    as_bytes: Callable[[str], bytes] = str.encode,
) -> Derivation:
    """Train the reference on words, every occurrence given, and keep what it saw on the way."""
    counts = dict(Counter(words))
    if not counts:
        raise InputError("the corpus has no words", "give a file with some text in it")
    if len(counts) > MOST_WORDS:
        raise InputError(
            f"the corpus has {len(counts)} different words, too many to follow ({MOST_WORDS} at most)",
            "explain a part of it, or train a tokenizer and explain a text with that",
        )
    if (longest := max(map(len, counts))) > LONGEST_WORD:
        raise InputError(
            f"the corpus has a word of {longest} characters, too long to follow ({LONGEST_WORD} at most)",
            "put blanks into it, or explain another part of the corpus",
        )
    learnt = train(counts, size, rule, alphabet=alphabet, bytes_of=as_bytes)
    return _replay(counts, rule, learnt)


def _replay(counts: Mapping[str, int], rule: str, learnt: Bpe) -> Derivation:
    start = tuple((tuple(word), count) for word, count in counts.items())
    corpus = _Corpus(start)
    steps = []
    for merge in learnt.merges:
        top = corpus.top((merge.pair, *merge.ties), merge.count)
        more = len(corpus.often) - len(top)
        changed = corpus.join(merge.pair)
        steps.append(Step(merge, top, more, tuple(corpus.words) if len(start) <= SHOWN_WORDS else changed))
    return Derivation(rule, start, tuple(steps), corpus.top((), 0), learnt.vocabulary, tuple(corpus.words))


class _Corpus:
    """Words in symbols, with their pairs: how often each occurs, which occur so often, and in which words."""

    def __init__(self, words: Iterable[Word]) -> None:
        self.words = list(words)
        self.often: dict[Pair, int] = {}
        self._level: defaultdict[int, set[Pair]] = defaultdict(set)
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for place in range(len(self.words)):
            self._count(place, 1)

    def join(self, pair: Pair) -> tuple[Word, ...]:
        """Make the pair one wherever it stands; the words that it stood in."""
        changed = sorted(self._places[pair])
        for place in changed:
            self._count(place, -1)
            symbols, count = self.words[place]
            self.words[place] = tuple(joined(symbols, pair)), count
            self._count(place, 1)
        return tuple(self.words[place] for place in changed)

    def top(self, first: Sequence[Pair], count: int) -> tuple[tuple[Pair, int], ...]:
        """The pairs to show, most frequent first: those of the highest count as they are given, then others."""
        found = [(pair, count) for pair in first]
        for often in sorted((often for often, pairs in self._level.items() if pairs), reverse=True):
            if len(found) >= SHOWN_PAIRS:
                break
            others = () if first and often == count else self._level[often]
            found += [(pair, often) for pair in nsmallest(SHOWN_PAIRS - len(found), others)]
        return tuple(found)

    def _count(self, place: int, sign: int) -> None:
        symbols, count = self.words[place]
        for pair, number in Counter(pairwise(symbols)).items():
            before = self.often.pop(pair, 0)
            after = before + sign * number * count
            self._level[before].discard(pair)
            if after:
                self.often[pair] = after
                self._level[after].add(pair)
            (self._places[pair].add if sign > 0 else self._places[pair].discard)(place)


def build_words(words: Iterable[str], merges: Sequence[Pair]) -> list[Building]:
    """How these merges, in the order they were learnt, build each word."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [_building(word, ranks) for word in words]


def _building(word: str, ranks: Mapping[Pair, int]) -> Building:
    states = build(word, ranks)
    steps = []
    for before, after in pairwise(states):
        pair = min((pair for pair in pairwise(before) if pair in ranks), key=ranks.__getitem__)
        steps.append((pair, ranks[pair] + 1, tuple(after)))
    return Building(word, tuple(states[0]), tuple(steps))


# As lines

WORDS = Reading(lambda word: escape(word.removesuffix(MARK).replace(STAND_IN, MARK)), shown)
BYTES = Reading(lambda word: repr(bytes_of(word).decode("utf-8", errors="backslashreplace")), list)


def corpus_lines(found: Derivation, reading: Reading) -> Iterator[Line]:
    """The derivation in words: each merge with its ties, the counts around it and the corpus after it."""
    total = sum(count for _, count in found.start)
    yield [(f"{total} words, {len(found.start)} different; ties go by the rule ", ""), (found.rule, "bold")]
    yield []
    yield [("start   ", "dim"), *_corpus(found.start, None, len(found.start))]
    for number, step in enumerate(found.steps, start=1):
        yield []
        yield from _step(number, step, len(found.start))
    yield []
    yield [(f"{found.stopped}: ", ""), (f"{len(found.steps)} merges", "bold")]
    yield []
    yield [("vocabulary", "bold"), (f" ({len(found.vocabulary)})  ", ""), (_spread(found.vocabulary), "")]
    yield [("symbols in use", "bold"), (f" ({len(found.in_use)})  ", ""), (_spread(found.in_use), "")]
    yield []
    yield from _table(found, reading)


def _table(found: Derivation, reading: Reading) -> Iterator[Line]:
    """The words and their pieces at the end."""
    rows = [
        (reading.word("".join(symbols)), _spread(symbols), _spread(reading.pieces(symbols)))
        for symbols, _ in found.end[:SHOWN_WORDS]
    ]
    widths = [max(len(row[column]) for row in [("word", "pieces", ""), *rows]) for column in (0, 1)]
    yield [(f"{'word':<{widths[0]}}   {'pieces':<{widths[1]}}   shown as", "dim")]
    for one, two, three in rows:
        yield [(f"{one:<{widths[0]}}   {two:<{widths[1]}}   {three}", "")]
    if len(found.end) > SHOWN_WORDS:
        yield [(f"… and {len(found.end) - SHOWN_WORDS} more words", "dim")]


def _step(number: int, step: Step, total: int) -> list[Line]:
    new = "".join(step.merge.pair)
    occurs = f"   occurs {step.merge.count} times"
    head: Line = [
        (f"{number:<4}", "bold"),
        (f"{_spread(step.merge.pair)} → {escape(new)}", "bold green"),
        (occurs, ""),
    ]
    lines = [head]
    if step.merge.ties:
        tied: Line = [("    tied    ", "dim")]
        for pair in step.merge.ties:
            tied += [(_spread(pair), "yellow"), ("   ", "")]
        lines.append(tied[:-1])
    counts: Line = [("    pairs   ", "dim")]
    level = {step.merge.pair: "bold green", **dict.fromkeys(step.merge.ties, "yellow")}
    for pair, count in step.pairs:
        counts += [(f"{_spread(pair)} ", level.get(pair, "")), (str(count), "cyan"), ("   ", "")]
    counts[-1] = (f"   … and {step.more} more", "dim") if step.more else ("", "")
    return [*lines, counts, [("    corpus  ", "dim"), *_corpus(step.words, new, total)]]


def _corpus(words: Sequence[Word], new: str | None, total: int) -> Line:
    """Words in symbols, the new one coloured, and how many of all are not shown."""
    line: Line = []
    for symbols, count in words[:SHOWN_WORDS]:
        line += [*_marked(symbols, new), *([(f" ×{count}", "cyan")] if count > 1 else []), ("   ", "")]
    more = total - len(words[:SHOWN_WORDS])
    return [*line[:-1], *([(f"   … and {more} more", "dim")] if more else [])]


def _spread(symbols: Iterable[str]) -> str:
    return " ".join(map(escape, symbols))


def text_lines(words: Iterable[Building], reading: Reading) -> list[Line]:
    """How each word of a text is built."""
    lines: list[Line] = []
    for word in words:
        lines.append([(reading.word(word.word), "bold"), ("   ", ""), (_spread(word.start), "dim")])
        for pair, number, symbols in word.steps:
            lines.append(
                [
                    (f"    merge {number:<6} ", "dim"),
                    (f"{_spread(pair)}   ", "yellow"),
                    *_marked(symbols, "".join(pair)),
                ]
            )
        lines.append([("    pieces       ", "dim"), (_spread(reading.pieces(word.pieces)), "green")])
    return lines


def _marked(symbols: Sequence[str], new: str | None) -> Line:
    line: Line = []
    for symbol in symbols:
        line += [(escape(symbol), "bold green" if symbol == new else ""), (" ", "")]
    return line[:-1]

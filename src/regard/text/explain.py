"""How byte-pair encoding came to its merges, and how the merges build the tokens of a text, as records and as lines.

    corpus_lines(derive(marked_words("low lower newest wider")), WORDS)

A derivation replays the plain reference (bpe.py): before each merge the pairs and their counts, ties first, and after
it the corpus. Lines are lists of (text, style); a terminal colours them, a pipe drops the styles.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import InputError
from regard.text.bpe import Bpe, Merge, Pair, build, joined, train
from regard.text.bytelevel import bytes_of
from regard.text.words import MARK, STAND_IN, shown

MOST_WORDS = 2_000
"""Different words of a corpus that is explained; more are no small corpus, and every merge looks at all."""
SHOWN_PAIRS = 10
SHOWN_WORDS = 40

Word = tuple[tuple[str, ...], int]
Line = list[tuple[str, str]]


@dataclass(frozen=True)
class Reading:
    """How people read what is written in symbols."""

    word: Callable[[str], str]
    """A word as its text has it."""
    pieces: Callable[[Sequence[str]], Sequence[str]]
    """Pieces as they are shown."""


@dataclass(frozen=True)
class Step:
    """A merge, the pairs it was chosen among (most frequent first), and the corpus after it."""

    merge: Merge
    pairs: tuple[tuple[Pair, int], ...]
    more: int
    """Pairs that occurred less often and are not among `pairs`."""
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Derivation:
    """A corpus as characters, every merge, the vocabulary, and what is left at the end."""

    rule: str
    start: tuple[Word, ...]
    steps: tuple[Step, ...]
    left: tuple[tuple[Pair, int], ...]
    """The pairs after the last merge, most frequent first."""
    vocabulary: tuple[str, ...]

    @property
    def end(self) -> tuple[Word, ...]:
        """The corpus after the last merge."""
        return self.steps[-1].words if self.steps else self.start

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
    learnt = train(counts, size, rule, alphabet=alphabet, bytes_of=as_bytes)
    return _replay(counts, rule, learnt)


def _replay(counts: Mapping[str, int], rule: str, learnt: Bpe) -> Derivation:
    start = words = tuple((tuple(word), count) for word, count in counts.items())
    steps = []
    for merge in learnt.merges:
        first = {pair: place for place, pair in enumerate((merge.pair, *merge.ties))}
        pairs = _pairs(words)
        around = sorted(pairs.items(), key=lambda entry: (-entry[1], first.get(entry[0], len(first)), entry[0]))
        words = tuple((tuple(joined(symbols, merge.pair)), count) for symbols, count in words)
        top = tuple(around[: max(SHOWN_PAIRS, len(first))])
        steps.append(Step(merge, top, len(around) - len(top), words))
    left = sorted(_pairs(words).items(), key=lambda entry: (-entry[1], entry[0]))
    return Derivation(rule, start, tuple(steps), tuple(left[:SHOWN_PAIRS]), learnt.vocabulary)


def _pairs(words: Iterable[Word]) -> Counter[Pair]:
    found: Counter[Pair] = Counter()
    for symbols, count in words:
        for pair in pairwise(symbols):
            found[pair] += count
    return found


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

WORDS = Reading(lambda word: word.removesuffix(MARK).replace(STAND_IN, MARK), shown)
BYTES = Reading(lambda word: repr(bytes_of(word).decode("utf-8", errors="backslashreplace")), list)


def corpus_lines(found: Derivation, reading: Reading) -> list[Line]:
    """The derivation in words: each merge with its ties, the counts around it and the corpus after it."""
    total = sum(count for _, count in found.start)
    lines: list[Line] = [
        [(f"{total} words, {len(found.start)} different; ties go by the rule ", ""), (found.rule, "bold")],
        [],
        [("start   ", "dim"), *_corpus(found.start, None)],
    ]
    for number, step in enumerate(found.steps, start=1):
        lines += [[], *_step(number, step)]
    lines += [[], [(f"{found.stopped}: ", ""), (f"{len(found.steps)} merges", "bold")]]
    lines += [[], [("vocabulary", "bold"), (f" ({len(found.vocabulary)})  ", ""), *_spread(found.vocabulary)]]
    lines += [[("symbols in use", "bold"), (f" ({len(found.in_use)})  ", ""), *_spread(found.in_use)], []]
    rows = [
        (reading.word("".join(symbols)), " ".join(symbols), " ".join(reading.pieces(symbols)))
        for symbols, _ in found.end[:SHOWN_WORDS]
    ]
    widths = [max(len(row[column]) for row in [("word", "pieces", ""), *rows]) for column in (0, 1)]
    lines.append([(f"{'word':<{widths[0]}}   {'pieces':<{widths[1]}}   shown as", "dim")])
    lines += [[(f"{one:<{widths[0]}}   {two:<{widths[1]}}   {three}", "")] for one, two, three in rows]
    more = len(found.end) - SHOWN_WORDS
    return [*lines, *([[(f"… and {more} more words", "dim")]] if more > 0 else [])]


def _step(number: int, step: Step) -> list[Line]:
    left, right = step.merge.pair
    occurs = f"   occurs {step.merge.count} times"
    head: Line = [(f"{number:<4}", "bold"), (f"{left} {right} → {left + right}", "bold green"), (occurs, "")]
    lines = [head]
    if step.merge.ties:
        tied: Line = [("    tied    ", "dim")]
        for pair in step.merge.ties:
            tied += [(" ".join(pair), "yellow"), ("   ", "")]
        lines.append(tied[:-1])
    counts: Line = [("    pairs   ", "dim")]
    level = {step.merge.pair: "bold green", **dict.fromkeys(step.merge.ties, "yellow")}
    for pair, count in step.pairs:
        counts += [(f"{' '.join(pair)} ", level.get(pair, "")), (str(count), "cyan"), ("   ", "")]
    counts[-1] = (f"   … and {step.more} more", "dim") if step.more else ("", "")
    return [*lines, counts, [("    corpus  ", "dim"), *_corpus(step.words, left + right)]]


def _corpus(words: Sequence[Word], new: str | None) -> Line:
    """The corpus in symbols, the new one coloured; of many words, those that hold it."""
    held = [word for word in words if len(words) <= SHOWN_WORDS or new is None or new in word[0]]
    line: Line = []
    for symbols, count in held[:SHOWN_WORDS]:
        for symbol in symbols:
            line += [(symbol, "bold green" if symbol == new else ""), (" ", "")]
        line[-1:] = [(f" ×{count}", "cyan"), ("   ", "")] if count > 1 else [("   ", "")]
    more = len(words) - min(len(held), SHOWN_WORDS)
    return [*line[:-1], *([(f"   … and {more} more", "dim")] if more else [])]


def _spread(symbols: Iterable[str]) -> Line:
    return [(" ".join(symbols), "")]


def text_lines(words: Iterable[Building], reading: Reading) -> list[Line]:
    """How each word of a text is built."""
    lines: list[Line] = []
    for word in words:
        lines.append([(reading.word(word.word), "bold"), ("   ", ""), (" ".join(word.start), "dim")])
        for pair, number, symbols in word.steps:
            lines.append(
                [(f"    merge {number:<6} ", "dim"), (f"{' '.join(pair)}   ", "yellow"), *_marked(symbols, pair)]
            )
        lines.append([("    pieces       ", "dim"), (" ".join(reading.pieces(word.pieces)), "green")])
    return lines


def _marked(symbols: Sequence[str], pair: Pair) -> Line:
    line: Line = []
    for symbol in symbols:
        line += [(symbol, "bold green" if symbol == "".join(pair) else ""), (" ", "")]
    return line[:-1]

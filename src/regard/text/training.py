"""Learning merges: by the `tokenizers` engine, or several times as fast where Numba is there and the text is large.

Words are counted first, in bounded memory (counting.py). The engine takes text, not counts: a word that was counted n
times is shown to it n times, words apart by a space, which no word holds; a word of one symbol has no pair and is not
shown. The compiled learner (bpe_numba.py) takes the counts, and gives the same merges; so does the compiled counter
(pretokenize_numba.py) count the same words. Both take a moment to load and some seconds to compile once: small texts do
without.
The merges are those that the engine learns from the text itself where no word was pruned. Ties go to the lowest ids:
the rule `engine`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import CharDelimiterSplit
from tokenizers.trainers import BpeTrainer

from regard.errors import VocabularyError
from regard.text.bytelevel import SYMBOLS, expand, pieces
from regard.text.compiling import announce
from regard.text.counting import count_blocks

RULE = "engine"
MUCH_TEXT = 2**20
"""Characters counted in Python before compiled code is loaded."""
MANY_LETTERS = 200_000
"""In different words; fewer are shown to the engine."""
COMPILED = {"pretokenize_numba": ("the counting of words", 3), "bpe_numba": ("the learning of merges", 10)}
"""What is compiled, and about how many seconds that takes."""
_TOGETHER = 4000
"""Words shown to the engine at once."""


def learn_merges(
    counts: Mapping[str, int], size: int, *, specials: tuple[str, ...], alphabet: Iterable[str] = ()
) -> Engine:
    """An engine whose vocabulary is the specials, the characters in order, and merges until it is full.

    Merging stops when no pair occurs twice. A word that spells a special token teaches nothing: no text may become one.
    """
    words = {word: count for word, count in counts.items() if not any(special in word for special in specials)}
    letters = sorted({*alphabet, *"".join(words)})
    _check(size, specials, letters)
    length = sum(map(len, words))
    size = min(size, len(specials) + len(letters) + length)  # room is made for as many as are asked for
    pairs = (
        _compiled("bpe_numba", "learn", lambda part: part.merge_words(words, letters, first=len(specials), size=size))
        if length >= MANY_LETTERS
        else None
    )
    if pairs is None:
        return _shown_to_engine(words, size, specials, letters)
    names, merges = [*specials, *letters], []
    for left, right in pairs:
        merges.append((names[left], names[right]))
        names.append(names[left] + names[right])
    engine = Engine(BPE(vocab={name: place for place, name in enumerate(names)}, merges=merges))
    engine.add_special_tokens(list(specials))
    return engine


def learn_byte_merges(texts: Iterable[str], size: int, *, specials: tuple[str, ...]) -> Engine:
    """The same from texts, cut as GPT-2 cuts them; its words never hold both `<` and a letter."""
    _check(size, specials, SYMBOLS)  # before the texts are read
    found = count_blocks(texts, _piece_counter())
    return learn_merges(expand(found.counts), size, specials=specials, alphabet=SYMBOLS)


def _piece_counter() -> Callable[[list[str]], Mapping[str, int]]:
    """Counts pieces of texts; the beginning in Python, what comes after much text compiled."""
    read = 0

    def counted(texts: list[str]) -> Mapping[str, int]:
        nonlocal read
        found: Mapping[str, int] | None = None
        if read >= MUCH_TEXT:
            found = _compiled("pretokenize_numba", "count", lambda part: part.count_pieces(texts))
        read += sum(map(len, texts))
        return Counter(chain.from_iterable(map(pieces, texts))) if found is None else found

    return counted


def _compiled(name: str, entry: str, work: Callable[[Any], Any]) -> Any:
    """What the module of that name finds by its compiled entry; None where Numba cannot be used here."""
    try:
        module = import_module(f"regard.text.{name}")
    except Exception:  # no Numba, one that does not fit NumPy or was damaged, or no folder to keep what it compiles
        return None
    try:
        announce(getattr(module, entry), *COMPILED[name])
        return work(module)
    except MemoryError:
        raise
    except Exception:  # this Numba cannot compile it
        return None


def _check(size: int, specials: tuple[str, ...], letters: Sequence[str]) -> None:
    if size < len(specials) + len(letters):
        raise VocabularyError(size, len(specials), len(letters), f"{len(letters)} characters")


def _shown_to_engine(words: Mapping[str, int], size: int, specials: tuple[str, ...], letters: Sequence[str]) -> Engine:
    engine = Engine(BPE())
    engine.pre_tokenizer = CharDelimiterSplit(" ")
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=list(letters),
    )
    engine.train_from_iterator(_shown(words), trainer)
    return engine


def _shown(counts: Mapping[str, int]) -> Iterator[str]:
    """Every word that has a pair as often as it was counted, some thousands at a time."""
    group: list[str] = []
    for word, count in counts.items():
        if len(word) < 2:
            continue
        while count >= _TOGETHER:
            yield " ".join([word] * _TOGETHER)
            count -= _TOGETHER
        group += [word] * count
        if len(group) >= _TOGETHER:
            yield " ".join(group)
            group = []
    yield " ".join(group)

"""Learning merges with the `tokenizers` engine, which is fast and, for BPE, exactly reproducible.

The engine keeps every different word it meets, so it reads by itself only what is small. Of more text the words are
counted first, in bounded memory (counting.py). It takes text, not counts: a word that was counted n times is shown to
it n times, words apart by a space, which no word holds. Both ways give the same merges where no word was pruned. Ties
go to the lowest ids: the rule `engine`.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, CharDelimiterSplit, PreTokenizer
from tokenizers.trainers import BpeTrainer

from regard.errors import ConfigError
from regard.text.bytelevel import BLANKS, SYMBOLS, expand, pieces_before_blanks
from regard.text.counting import LONGEST_WORD, count_words, valid_text

RULE = "engine"
SMALL = 64_000_000
"""Characters that the engine reads by itself."""
_LONG_WORD = re.compile("|".join(f"(?<!{one}){one}{{{LONGEST_WORD + 1}}}" for one in (f"[{BLANKS}]", f"[^{BLANKS}]")))
"""Of blanks or of anything else: what merges take the engine grows with the square of a word's length."""
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
    return _learn(_shown(words), CharDelimiterSplit(" "), _trainer(size, specials, letters))


def learn_byte_merges(texts: Iterable[str], size: int, *, specials: tuple[str, ...]) -> Engine:
    """The same from texts, cut as GPT-2 cuts them; its words never hold both `<` and a letter."""
    trainer = _trainer(size, specials, sorted(SYMBOLS))
    held: deque[str] = deque()
    rest = iter(texts)
    length = 0
    for text in rest:
        held.append(valid_text(text))
        length += len(text)
        if length > SMALL or (len(text) > LONGEST_WORD and _LONG_WORD.search(text)):
            found = count_words(chain(_given_up(held), rest), pieces_before_blanks)
            return learn_merges(expand(found.counts), size, specials=specials, alphabet=SYMBOLS)
    return _learn(held, ByteLevel(add_prefix_space=False), trainer)


def _learn(texts: Iterable[str], splitter: PreTokenizer, trainer: BpeTrainer) -> Engine:
    engine = Engine(BPE())
    engine.pre_tokenizer = splitter
    engine.train_from_iterator(texts, trainer)
    return engine


def _given_up(texts: deque[str]) -> Iterator[str]:
    """Texts, none kept once it was given."""
    while texts:
        yield texts.popleft()


def _trainer(size: int, specials: tuple[str, ...], letters: list[str]) -> BpeTrainer:
    needed = len(specials) + len(letters)
    if size < needed:
        raise ConfigError(
            f"a vocabulary of {size} cannot hold {len(specials)} special tokens and {len(letters)} characters",
            f"use a size of {needed} or more",
        )
    return BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=letters,
    )


def _shown(counts: Mapping[str, int]) -> Iterator[str]:
    """Every word as often as it was counted, some thousands at a time."""
    group: list[str] = []
    for word, count in counts.items():
        while count >= _TOGETHER:
            yield " ".join([word] * _TOGETHER)
            count -= _TOGETHER
        group += [word] * count
        if len(group) >= _TOGETHER:
            yield " ".join(group)
            group = []
    yield " ".join(group)

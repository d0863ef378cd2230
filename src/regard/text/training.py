"""Learning merges with the `tokenizers` engine, which is fast and, for BPE, exactly reproducible.

The words are counted first, in bounded memory (counting.py), which is several times faster than letting the engine cut
and count the text. It takes text, not counts: a word that was counted n times is shown to it n times, words apart by a
space, which no word holds; a word of one symbol has no pair and is not shown. The merges are those that the engine
learns from the text itself where no word was pruned. Ties go to the lowest ids: the rule `engine`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import CharDelimiterSplit
from tokenizers.trainers import BpeTrainer

from regard.errors import ConfigError
from regard.text.bytelevel import SYMBOLS, expand, pieces
from regard.text.counting import count_words

RULE = "engine"
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
    engine = Engine(BPE())
    engine.pre_tokenizer = CharDelimiterSplit(" ")
    most = len(specials) + len(letters) + sum(map(len, words))  # the engine makes room for as many as it is told
    _check(size, specials, letters)
    trainer = BpeTrainer(
        vocab_size=min(size, most),
        min_frequency=2,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=letters,
    )
    engine.train_from_iterator(_shown(words), trainer)
    return engine


def learn_byte_merges(texts: Iterable[str], size: int, *, specials: tuple[str, ...]) -> Engine:
    """The same from texts, cut as GPT-2 cuts them; its words never hold both `<` and a letter."""
    _check(size, specials, SYMBOLS)  # before the texts are read
    found = count_words(texts, pieces)
    return learn_merges(expand(found.counts), size, specials=specials, alphabet=SYMBOLS)


def _check(size: int, specials: tuple[str, ...], letters: Sequence[str]) -> None:
    needed = len(specials) + len(letters)
    if size < needed:
        raise ConfigError(
            f"a vocabulary of {size} cannot hold {len(specials)} special tokens and {len(letters)} characters",
            f"use a size of {needed} or more",
        )


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

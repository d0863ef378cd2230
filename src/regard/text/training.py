"""Learning merges from word counts with the `tokenizers` engine, which is fast and, for BPE, exactly reproducible.

The engine takes text, not counts; so a word that was counted n times is shown to it n times, words apart by a space,
which no word holds. That is quicker than having it cut the text itself. Ties go to the lowest ids: the rule `engine`.
"""

from collections.abc import Iterable, Iterator, Mapping

from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import CharDelimiterSplit
from tokenizers.trainers import BpeTrainer

from regard.errors import ConfigError

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
    needed = len(specials) + len(letters)
    if size < needed:
        raise ConfigError(
            f"a vocabulary of {size} cannot hold {len(specials)} special tokens and {len(letters)} characters",
            f"use a size of {needed} or more",
        )
    engine = Engine(BPE())
    engine.pre_tokenizer = CharDelimiterSplit(" ")
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=letters,
    )
    engine.train_from_iterator(_shown(words), trainer)
    return engine


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

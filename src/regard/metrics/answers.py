"""How well a short answer fits the reference ones: SQuAD's two figures (Rajpurkar et al. 2016, §6.1).

Both look past case, punctuation, the articles a, an and the, and blanks.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words_of(answer: str) -> list[str]:
    """The words that count."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def same_answer(answer: str, references: Sequence[str]) -> bool:
    """Whether it is one of the references."""
    return any(words_of(answer) == words_of(reference) for reference in references)


def overlap(answer: str, references: Sequence[str]) -> float:
    """The best F1 of its words with those of a reference."""
    return max((_f1(words_of(answer), words_of(reference)) for reference in references), default=0.0)


def _f1(said: list[str], wanted: list[str]) -> float:
    """Twice the shared words over all words; two empty answers agree."""
    if not said or not wanted:
        return float(said == wanted)
    shared = (Counter(said) & Counter(wanted)).total()
    return 2 * shared / (len(said) + len(wanted))

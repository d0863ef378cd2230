"""How well labels are told: accuracy, and the F1 of the labels, where rare ones count as much as frequent ones.

Macro-F1 as scikit-learn has it: the mean over all labels that are said or wanted; of one that is never right it is 0.
"""

from collections import Counter
from collections.abc import Sequence


def accuracy(said: Sequence[str], wanted: Sequence[str]) -> float:
    """The share that is right."""
    return sum(one == other for one, other in zip(said, wanted, strict=True)) / len(wanted)


def macro_f1(said: Sequence[str], wanted: Sequence[str]) -> float:
    """The mean F1 of the labels."""
    right = Counter(one for one, other in zip(said, wanted, strict=True) if one == other)
    spoken, there = Counter(said), Counter(wanted)
    return sum(2 * right[label] / (spoken[label] + there[label]) for label in {*spoken, *there}) / len(
        {*spoken, *there}
    )

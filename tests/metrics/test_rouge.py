"""ROUGE against its definition (Lin 2004, §2 and §3) written out once more."""

import re
from collections import Counter
from functools import cache

import pytest

from regard.errors import InputError
from regard.metrics.rouge import lead, rouge

PAIRS = [
    ("the cat sat on the mat", "the cat was on the mat"),
    ("the the the the", "the cat"),
    ("", "a word"),
    ("mat the on sat cat the", "the cat sat on the mat"),
    ("It's O'Neill's 3.14-inch café!", "its o neill s 3 14 inch cafe"),
    ("SAME, same", "same"),
    ("one", "one"),
    ("a b c d e", "a x c y e"),
]


def f1(shared: int, said: int, wanted: int) -> float:
    return 2 * shared / (said + wanted) if shared else 0.0


def plainly(output: str, reference: str) -> dict[str, float]:
    said, wanted = (tuple(re.findall("[a-z0-9]+", text.lower())) for text in (output, reference))
    found = {}
    for size in (1, 2):
        one, other = (
            Counter(text[start : start + size] for start in range(len(text) - size + 1)) for text in (said, wanted)
        )
        found[f"rouge{size}"] = f1((one & other).total(), one.total(), other.total())

    @cache
    def longest(first: int, second: int) -> int:
        if first == len(said) or second == len(wanted):
            return 0
        if said[first] == wanted[second]:
            return 1 + longest(first + 1, second + 1)
        return max(longest(first + 1, second), longest(first, second + 1))

    return found | {"rougeL": f1(longest(0, 0), len(said), len(wanted))}


@pytest.mark.parametrize(("output", "reference"), PAIRS)
def test_rouge_is_its_definition(output, reference):
    assert rouge([output], [reference]) == pytest.approx(plainly(output, reference))


def test_rouge_of_several_is_the_mean():
    outputs, references = zip(*PAIRS, strict=True)
    each = [plainly(*pair) for pair in PAIRS]
    mean = {kind: sum(one[kind] for one in each) / len(each) for kind in each[0]}
    assert rouge(outputs, references) == pytest.approx(mean)


def test_texts_without_latin_letters_are_refused():
    with pytest.raises(InputError, match="no reference has a letter from a to z"):
        rouge(["Кот", "猫"], ["Кот сидел", "猫在垫子上"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One. Two.", "One."),
        ("  One of 3.5 parts! Two", "One of 3.5 parts!"),
        ("no end", "no end"),
        ("First?\nSecond.", "First?"),
    ],
)
def test_the_lead_is_the_first_sentence(text, said):
    assert lead(text) == said

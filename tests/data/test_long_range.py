"""What only `recall` and `listops` promise; the laws of every corpus are in test_synthetic.py."""

import re
import statistics
import unicodedata

import pytest
import torch

from regard.data.cloze import MASK, Cloze
from regard.data.corpus import Pair, corpus
from regard.data.listops import OPERATORS, evaluate
from regard.data.recall import DIGITS, KEYS, VALUES
from regard.errors import ConfigError, InputError
from regard.tasks.recipe import read_recipe
from regard.text.characters import CharacterTokenizer
from regard.text.wordpiece import WordPieceTokenizer


def texts(name: str, count: int = 20, **options: object) -> list[Pair]:
    one = corpus(name, options)
    return [one.example("train", index) for index in range(count)]


# Recall


def told(text: str) -> dict[str, str]:
    """What its syllables say, by the Unicode database's decomposition of them: first letter and vowel."""
    found = {}
    for character in text:
        parts = unicodedata.normalize("NFD", character)
        if len(parts) == 2:
            first, vowel = (unicodedata.name(part).split(" ")[-1] for part in parts)
            found[first] = vowel
    return found


@pytest.mark.parametrize(("length", "pairs", "queries"), [(61, 3, 5), (512, 16, 64), (97, 1, 2), (300, 19, 7)])
def test_every_question_is_answered_by_the_one_vowel_its_letter_stands_with(length, pairs, queries):
    for text, target in texts("recall", length=length, pairs=pairs, queries=queries):
        said = told(text)
        asked = text[-queries:]
        assert len(said) == pairs == sum("가" <= character <= "힣" for character in text)
        assert set(text[:-queries]) <= set(DIGITS) | {one for one in text if "가" <= one <= "힣"}
        letters = [unicodedata.name(one).removeprefix("HANGUL LETTER ") for one in asked]
        vowels = [unicodedata.name(one).removeprefix("HANGUL LETTER ") for one in target.split()]
        assert [said[letter] for letter in letters] == vowels


@pytest.mark.parametrize("length", [61, 512, 1024])
def test_a_model_reads_exactly_the_length_asked_for(length):
    (pair,) = texts("recall", 1, length=length, pairs=7, queries=11)
    tokenizer = CharacterTokenizer.train([pair.source + pair.target], 200).with_specials(["<mask>"])
    (example,) = Cloze(tokenizer, gaps=tuple(set(pair.source[-11:]))).encode([pair])
    assert len(example.source) == length
    assert len(example.target) == 11


def test_pairs_stand_anywhere_and_values_are_equally_likely():
    found = texts("recall", 400, length=120, pairs=3, queries=13)
    places = [place / 104 for text, _ in found for place, one in enumerate(text) if "가" <= one <= "힣"]
    assert statistics.fmean(places) == pytest.approx(0.5, abs=0.04)
    assert min(places) < 0.02
    assert max(places) > 0.98
    values = [value for _, target in found for value in target.split()]
    assert {values.count(value) / len(values) > 1 / 42 for value in VALUES} == {True}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 40}, "use length 98 or more, or fewer pairs or queries"),
        ({"pairs": 20}, "pairs is 20, but there are 19 keys; use 1 to 19"),
        ({"pairs": 0}, "use 1 to 19"),
        ({"queries": 0}, "queries is 0, so nothing is asked"),
        ({"held_out": 0}, "held_out is 0"),
    ],
)
def test_a_recall_that_cannot_be_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        corpus("recall", options)


def test_the_recipe_calls_every_key_a_gap():
    assert "".join(read_recipe("recall").task.gaps) == KEYS


# ListOps


def plainly(text: str) -> int:
    """By Python's own reading of the expression, written as a call of functions."""
    functions = {"MIN": min, "MAX": max, "MED": lambda v: int(statistics.median(v)), "SM": lambda v: sum(v) % 10}
    called = re.sub(r"\[(\w+) ", r"\1([", text).replace(" ]", "])").replace(" ", ", ")
    return int(eval(called, {"__builtins__": {}}, functions))


def test_an_expression_comes_to_what_python_makes_of_it():
    for text, target in texts("listops", 100):
        assert str(plainly(text)) == target == str(evaluate(text))


def test_expressions_are_of_the_published_lengths_depth_and_arguments():
    deepest, arguments = 0, set()
    for text, _ in texts("listops", 100):
        words = text.split(" ")
        assert 500 < len(words) < 2000
        counts: list[int] = []
        for word in words:
            if word == "]":
                arguments.add(counts.pop())
                continue
            if counts:
                counts[-1] += 1
            if word in OPERATORS:
                counts.append(0)
            deepest = max(deepest, len(counts) + (word not in OPERATORS))
    assert deepest == 10
    assert arguments == set(range(2, 11))


def test_the_median_of_an_even_number_is_rounded_down_as_the_published_one_is():
    assert evaluate("[MED 1 2 ]") == 1
    assert evaluate("[MED 9 0 5 2 ]") == 3
    assert evaluate("[SM 9 9 [MAX 3 [MIN 5 4 ] ] ]") == 2


@pytest.mark.parametrize("text", ["[MIN ]", "[MIN 1 2", "1 2", "]", "[MIN 1  2 ]", "[ADD 1 2 ]", "[MIN 12 3 ]", ""])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(InputError, match="write it as"):
        evaluate(text)


@pytest.mark.parametrize(
    "options", [{"shortest": 99}, {"shortest": 300, "longest": 500}, {"longest": 9000}, {"held_out": 0}]
)
def test_lengths_that_could_not_be_drawn_are_refused(options):
    with pytest.raises(ConfigError):
        corpus("listops", options)


# Gaps


@pytest.mark.parametrize("kind", [CharacterTokenizer, WordPieceTokenizer])
def test_a_gap_has_its_fill_as_target_and_nothing_else_has(kind):
    tokenizer = kind.train(["a b c d e"] * 3, 60).with_specials([kind.mask])
    how = Cloze(tokenizer)
    pairs = [Pair(f"a {MASK} c{MASK}", "b d"), Pair(f"{MASK} a", "e")]
    batch = how.batch(how.encode(pairs))
    for row, (_, target) in enumerate(pairs):
        asked = batch.targets[row] >= 0
        assert (batch.inputs.tokens.ids[row][asked] == tokenizer.mask_id).all()
        assert [tokenizer.decode([one]) for one in batch.targets[row][asked].tolist()] == target.split()
    assert batch.count == 3


@pytest.mark.parametrize(("source", "target"), [(f"a {MASK}", "b c"), ("a b", ""), (f"{MASK}{MASK}", "a")])
def test_gaps_and_fills_must_be_as_many(source, target):
    tokenizer = CharacterTokenizer.train(["abc"], 60).with_specials(["<mask>"])
    with pytest.raises(InputError, match="gaps and"):
        Cloze(tokenizer).encode([Pair(source, target)])


def test_a_token_of_the_text_can_be_a_gap():
    tokenizer = CharacterTokenizer.train(["abcd"], 60).with_specials(["<mask>"])
    how = Cloze(tokenizer, gaps=("a", "c"))
    batch = how.batch(how.encode([Pair("abca", "d b d"), Pair("c", "b")]))
    assert [[tokenizer.decode([one]) for one in row[row >= 0].tolist()] for row in batch.targets] == [
        ["d", "b", "d"],
        ["b"],
    ]
    assert torch.equal(batch.targets >= 0, how.places(batch.inputs.tokens.ids))


def test_a_fill_of_several_tokens_is_refused():
    tokenizer = CharacterTokenizer.train(["abc"], 60).with_specials(["<mask>"])
    with pytest.raises(ConfigError, match="'bc' is 2 tokens and a gap holds one"):
        Cloze(tokenizer).encode([Pair(f"a{MASK}", "bc")])

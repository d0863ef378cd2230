"""The laws of every built-in corpus, then what is particular to copy, reverse and sort."""

from collections.abc import Callable

import pytest

from regard.data.corpus import CORPORA, Corpus, Pair, Split, built_in, corpus
from regard.data.synthetic import Copy, Reverse, Sort
from regard.errors import ConfigError, InputError

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
SMALLER = {"recall": {"held_out": 300}, "listops": {"held_out": 200, "shortest": 100, "longest": 200}}
SMALLER |= {"tales": {"held_out": 200, "length": 40}, "mixture": {"held_out": 200}}
"""Options of those whose texts are long, so that as many can be looked at."""
every_corpus = pytest.mark.parametrize("name", sorted(name for name in CORPORA if Corpus in CORPORA[name].__mro__))
"""Those of pairs."""


def some(one: Corpus, split: Split, count: int) -> list[Pair]:
    return [one.example(split, index) for index in range(min(count, one.size(split) or count))]


def test_the_built_in_corpora_are_known_by_name() -> None:
    assert {"dates", "numbers", "copy", "reverse", "sort"} <= set(CORPORA)
    assert all(built_in(name, {}).name == name for name in CORPORA)


@every_corpus
def test_the_same_seed_gives_the_same_examples_in_any_order(name: str) -> None:
    for split in SPLITS:
        forward = some(corpus(name, {"seed": 5}), split, 100)
        other = corpus(name, {"seed": 5})
        backward = [other.example(split, index) for index in reversed(range(100))]
        assert forward == backward[::-1]


@every_corpus
def test_another_seed_gives_other_examples(name: str) -> None:
    for split in SPLITS:
        one, other = (some(corpus(name, {"seed": seed}), split, 100) for seed in (0, 1))
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 5


@every_corpus
def test_no_source_is_in_two_splits(name: str) -> None:
    one = corpus(name, SMALLER.get(name, {}))
    train, valid, test = (
        {pair.source for pair in some(one, split, 500 if name in SMALLER else 5000)} for split in SPLITS
    )
    assert not train & valid
    assert not train & test
    assert not valid & test


@every_corpus
def test_held_out_sources_are_all_different_and_train_is_endless(name: str) -> None:
    one = corpus(name, SMALLER.get(name, {}))
    assert one.size("train") is None
    assert one.example("train", 10**15).source
    for split in ("valid", "test"):
        size = one.size(split)
        assert size
        assert len({pair.source for pair in some(one, split, size)}) == size


@every_corpus
def test_check_accepts_every_source_the_corpus_gives(name: str) -> None:
    one = corpus(name, SMALLER.get(name, {}))
    for split in SPLITS:
        for source, _ in some(one, split, 200 if name in SMALLER else 1000):
            one.check(source)


@every_corpus
def test_an_index_outside_the_split_is_refused_with_the_size(name: str) -> None:
    one = corpus(name, {})
    with pytest.raises(InputError, match=r"-1 .*endless"):
        one.example("train", -1)
    with pytest.raises(InputError, match=f"{one.size('test')} does not exist: the test split has"):
        one.example("test", one.size("test") or 0)


@every_corpus
def test_an_unknown_option_names_the_nearest(name: str) -> None:
    with pytest.raises(ConfigError, match=f"corpus '{name}' has no option 'sed'; did you mean 'seed'"):
        corpus(name, {"sed": 1})


def test_an_unknown_corpus_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'dates'"):
        corpus("datse", {})


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    ("kind", "answer"),
    [(Copy, list), (Reverse, lambda letters: list(reversed(letters))), (Sort, sorted)],
)
def test_the_target_is_what_python_says(
    kind: Callable[..., Corpus], answer: Callable[[list[str]], list[str]], split: Split
) -> None:
    one = kind(symbols=5, shortest=3, longest=11, seed=2)
    lengths, letters = set(), set()
    for source, target in some(one, split, 500):
        assert target.split(" ") == answer(source.split(" "))
        lengths.add(len(source.split(" ")))
        letters |= set(source.split(" "))
    assert lengths == set(range(3, 12))
    assert letters == set("abcde")


def test_lengths_are_equally_likely_in_train() -> None:
    one = Copy(shortest=4, longest=8)
    lengths = [len(source.split(" ")) for source, _ in some(one, "train", 5000)]
    for length in range(4, 9):  # 1000 expected, standard deviation 28
        assert abs(lengths.count(length) - 1000) < 5 * 28


def test_a_small_space_is_still_split_without_overlap() -> None:
    one = Sort(symbols=2, shortest=1, longest=10, held_out=25)  # 2046 sequences
    train = {source for source, _ in some(one, "train", 5000)}
    assert len(train) > 800
    for split in ("valid", "test"):
        held = {source for source, _ in some(one, split, 25)}
        assert len(held) == 25
        assert not held & train


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"symbols": 2, "shortest": 1, "longest": 2},
            "are 6 sequences.*takes 41000; raise longest or symbols",
        ),
        ({"symbols": 26, "shortest": 1, "longest": 1, "held_out": 1}, "are 26 sequences"),
        ({"symbols": 1}, "symbols is 1"),
        ({"symbols": 27}, "symbols is 27"),
        ({"shortest": 0}, "0 to 16"),
        ({"shortest": 9, "longest": 8}, "9 to 8"),
        ({"held_out": 0}, "held_out is 0"),
    ],
)
def test_an_impossible_option_is_refused_with_both_values(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        corpus("copy", options)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a b z", "'z' is not one of the 5 symbols; use letters from a to e"),
        ("a  b c", "'' is not one"),
        ("abc", "'abc' is not one"),
        ("", "'' is not one"),
        ("a b", "2 letters .* 3 to 7"),
        ("a a a a a a a a", "8 letters .* 3 to 7"),
    ],
)
def test_what_is_not_taught_is_refused(source: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Reverse(symbols=5, shortest=3, longest=7, held_out=3).check(source)

"""What is held out: a function of the seed and the examples, of the size that is promised, nothing on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Pair
from regard.data.splits import (
    FEWEST,
    LONGEST,
    TextDocument,
    default_count,
    hold_out,
    hold_out_documents,
    hold_out_labelled,
)
from regard.errors import ConfigError

PAIRS = [Pair(f"source {number}", f"target {number}") for number in range(211)]


def test_every_example_is_on_one_side_and_the_seed_alone_decides_which():
    train, held = hold_out(PAIRS, None, 0)
    assert sorted([*train, *held]) == sorted(PAIRS)
    assert (len(held), list(train)) == (42, [pair for pair in PAIRS if pair not in held])
    assert set(hold_out(PAIRS[::-1], None, 0)[1]) == set(held), "whatever the order of the file"
    other = hold_out(PAIRS, None, 1)[1]
    assert len(set(other) & set(held)) < 42
    assert len(hold_out(PAIRS, 0.9, 0)[1]) == 22


@given(st.lists(st.sampled_from("abcdefghijklm"), min_size=30, max_size=60), st.integers(0, 5))
def test_examples_of_one_source_are_never_on_both_sides(sources, seed):
    pairs = [Pair(source, str(number)) for number, source in enumerate(sources)]
    if len(set(sources)) == 1:
        with pytest.raises(ConfigError, match="examples that begin alike"):
            hold_out(pairs, None, seed)
        return
    train, held = hold_out(pairs, None, seed)
    assert train
    assert held
    assert not {pair.source for pair in train} & {pair.source for pair in held}


def test_no_label_is_held_out_altogether():
    pairs = [Pair(f"text {number}", f"label {number % 29}") for number in range(58)]
    for seed in range(9):
        train, held = hold_out_labelled(pairs, None, seed)
        assert {pair.target for pair in train} == {pair.target for pair in pairs}
        assert held
        assert not {pair.source for pair in train} & {pair.source for pair in held}


@pytest.mark.parametrize(("size", "count"), [(10, 2), (50, 10), (500, 100), (3000, 150), (10**6, 1000)])
def test_a_twentieth_is_held_out_a_fifth_of_few_and_never_more_than_a_thousand(size, count):
    assert default_count(size) == count


def test_too_few_examples_and_too_short_a_text_are_refused():
    assert len(hold_out(PAIRS[:FEWEST], None, 0)[1]) == 2
    with pytest.raises(ConfigError, match="9 examples are too few to hold some out; give 10 or more, or a file"):
        hold_out(PAIRS[:9], None, 0)
    with pytest.raises(ConfigError, match="a text of 5 characters is too short to hold some of it out; give more"):
        hold_out_documents([TextDocument("short")], None, 0)


def test_of_running_text_the_end_is_held_out():
    text = "".join(chr(97 + number % 26) for number in range(1000))
    (train,), (held,) = hold_out_documents([TextDocument(text)], None, 0)
    assert (train.text + held.text, len(held.text)) == (text, 50)
    (train,), (held,) = hold_out_documents([TextDocument("x" * 30 * LONGEST)], None, 0)
    assert len(held.text) == LONGEST
    documents = [TextDocument(str(number) * 10) for number in range(1, 90)]
    first, last = hold_out_documents(documents, None, 0)
    assert [*first, *last] == documents
    assert 0.05 <= sum(len(one.text) for one in last) / sum(len(one.text) for one in documents) <= 0.07

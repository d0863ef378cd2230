"""What corpus `repeats` promises."""

import pytest

from regard.data.corpus import built_in
from regard.data.repeats import Repeats
from regard.errors import ConfigError


def rows(corpus, split):
    return [corpus.example(split, place).text for place in range(corpus.size(split))]


def test_a_row_is_different_letters_twice_and_belongs_to_one_split():
    corpus = Repeats(shortest=5, longest=11, rows=301, held_out=67)
    found = {split: rows(corpus, split) for split in ("train", "valid", "test")}
    assert {split: len(texts) for split, texts in found.items()} == {"train": 301, "valid": 67, "test": 67}
    for text in (text for texts in found.values() for text in texts):
        half = len(text) // 2
        assert text[:half] == text[half:]
        assert len(set(text)) == half
        assert 5 <= half <= 11
    assert len({text for texts in found.values() for text in texts}) == 301 + 67 + 67
    assert {len(text) // 2 for text in found["train"]} == set(range(5, 12))


def test_rows_are_the_same_whatever_was_asked_before_and_others_for_another_seed():
    once, again = Repeats(rows=97, held_out=13), Repeats(rows=97, held_out=13)
    last = again.example("test", 12)
    assert rows(once, "test")[12] == last.text
    assert rows(once, "train") == rows(again, "train")
    assert not set(rows(once, "train")) & set(rows(Repeats(rows=97, held_out=13, seed=1), "train"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shortest": 4}, "4 to 24 different letters cannot be"),
        ({"longest": 27}, "8 to 27 different letters cannot be"),
        ({"shortest": 12, "longest": 9}, "12 to 9 different letters cannot be"),
        ({"rows": 0}, "rows is 0"),
        ({"held_out": 0}, "held_out is 0"),
        ({"rows": 10**9}, "1,000,000,000 rows are more than are held in memory"),
    ],
)
def test_rows_that_cannot_be_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        built_in("repeats", options)

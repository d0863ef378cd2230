"""Texts with labels: three formats that say the same, and batches that hold what they should."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Pair
from regard.data.labels import Labelling, labels_of, read_labelled
from regard.data.stream import FewShapes
from regard.errors import ConfigError, FileError, InputError
from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece import WordPieceTokenizer

PAIRS = [Pair("a fine film", "good"), Pair("not  so\u2003fine", "bad"), Pair("fine", "good")]
TOKENIZER = WordPieceTokenizer.train([pair.source for pair in PAIRS] * 3, 60)
HOW = Labelling(TOKENIZER, labels=("bad", "good"), window=7)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.txt", lambda pair: f"{pair.target} {pair.source}"),
        ("a.tsv", lambda pair: f"{pair.source}\t{pair.target}"),
        ("a.jsonl", lambda pair: f'{{"text": "{pair.source}", "label": "{pair.target}"}}'),
    ],
)
def test_every_format_gives_the_same_texts_and_labels(tmp_path, name, line):
    (tmp_path / name).write_text("".join(line(pair) + "\n" for pair in PAIRS), encoding="utf-8")
    assert read_labelled(tmp_path / name) == PAIRS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "good film\nbad\n", "line 2 is not a label and a text; write a label, a blank, the text"),
        ("a.txt", " fine\n", "line 1 is not a label and a text"),
        ("a.tsv", "good film\n", "line 1 has 0 tabs, not one"),
        ("a.jsonl", '{"text": "a"}\n', 'line 1 has no "label" but "text"'),
        ("a.jsonl", '{"text": "a", "label": 1.5}\n', "line 1: the label is 1.5, not a string"),
        ("a.jsonl", '{"text": 1, "label": 1}\n', "line 1: the text is 1, not a string"),
        ("a.txt", "\n", "is empty"),
    ],
)
def test_a_line_that_is_not_what_the_format_says_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(FileError) as caught:
        read_labelled(tmp_path / name)
    assert said in str(caught.value)


def test_formats_without_labels_and_data_with_one_label_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="format 'parallel' has no labels; use text, tsv, csv or jsonl"):
        read_labelled(tmp_path / "a", "parallel")
    with pytest.raises(
        ConfigError, match="every one of the 2 training examples has the label 'x'; give examples of two"
    ):
        labels_of([Pair("a", "x"), Pair("b", "x")])


def test_a_row_is_the_text_between_its_marks_and_its_label_the_one_target():
    assert labels_of(PAIRS) == ("bad", "good")
    batch = HOW.batch(HOW.encode(PAIRS))
    for row, pair in zip(batch.inputs.tokens.rows(), PAIRS, strict=True):
        assert row == [TOKENIZER.bos_id, *TOKENIZER.encode(pair.source)[:5], TOKENIZER.eos_id]
    assert batch.targets.tolist() == [[1], [0], [1]]
    assert batch.count == 3
    assert HOW.prompt([pair.source for pair in PAIRS]).tokens.rows() == batch.inputs.tokens.rows()


def test_a_text_longer_than_the_window_is_read_as_far_as_it_fits():
    (example,) = HOW.encode([Pair("fine " * 40, "bad")])
    assert HOW.cost(example) == 7
    assert (example.source[0], example.source[-1]) == (TOKENIZER.bos_id, TOKENIZER.eos_id)


def test_a_label_the_model_does_not_know_is_named():
    with pytest.raises(InputError, match="example 2: label 'god' is not one the model knows; did you mean 'good'"):
        HOW.encode([PAIRS[0], Pair("fine", "god")])


def test_a_window_with_no_room_for_a_text_is_refused():
    with pytest.raises(
        ConfigError, match="a window of 2 tokens has no room for a text between its 2 special tokens; raise"
    ):
        Labelling(TOKENIZER, labels=("bad", "good"), window=2).encode(PAIRS)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    round_to=st.integers(2, 11),
    window=st.integers(3, 30),
    rows=st.integers(1, 4),
)
def test_rounded_texts_come_in_one_shape_for_each_width_with_every_example_once(lengths, round_to, window, rows):
    tokenizer = Tokenizer.train(["a"], 260)
    how = Labelling(tokenizer, labels=("bad", "good"), window=window, round_to=round_to)
    examples = how.encode([Pair("a" * length, ("bad", "good")[length % 2]) for length in lengths])
    widths = {min(-(-min(length + 2, window) // round_to) * round_to, window) for length in lengths}
    room = max(widths) * rows
    cut = FewShapes().cut(examples, how, room)
    batches = [FewShapes().batch(one, how) for one in cut]
    shapes = [tuple(batch.inputs.tokens.ids.shape) for batch in batches]
    assert {columns for _, columns in shapes} <= widths
    assert all(count == room // columns for count, columns in shapes[:-1])
    assert shapes[-1][0] <= room // shapes[-1][1]
    found = Counter(
        (tuple(row), *target)
        for one in batches
        for row, target in zip(one.inputs.tokens.rows(), one.targets.tolist(), strict=True)
    )
    assert found == Counter((tuple(one.source), *one.target) for one in examples)
    alone = how.prompt(["a" * lengths[0]])
    assert alone.tokens.ids.shape[1] in widths
    assert alone.tokens.rows() == [examples[0].source]

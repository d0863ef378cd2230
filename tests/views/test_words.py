"""Merged words keep every row's sum, and their weights are the sums and means that the definition says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.views.words import join_pieces, merge_words, word_starts

PIECE = st.sampled_from(
    ["<bos>", "He", " le", "ft", " the", " ", "\n", "def", ".", "", "▁ro", "\\xc3", "\\xa9", "[SEP]"]
)


def softmax_rows(*shape: int) -> np.ndarray:
    raw = np.exp(np.random.default_rng(7).normal(0, 2, shape))
    return raw / raw.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (("<bos>", "He", " le", "ft", " ro", "ses", ".", "<eos>"), ("<bos>", "He", " left", " roses.", "<eos>")),
        (("[CLS]", "un", "##aff", "##able", "men", "[SEP]"), ("[CLS]", "unaffable", "men", "[SEP]")),
        (("▁He", "llo", "▁you"), ("▁Hello", "▁you")),
        (("def", " f", "\n", "    ", "return"), ("def", " f", "\n", "    ", "return")),
        (("caf", "\\xc3", "\\xa9", " 3"), ("café", " 3")),
        (("\\xc3", " x"), ("\\xc3", " x")),
        (("de", ":"), ("de:",)),
    ],
    ids="".join,
)
def test_pieces_become_the_words_they_were_cut_from(pieces, words):
    starts = word_starts(pieces)
    ends = [*starts[1:], len(pieces)]
    assert tuple(join_pieces(pieces[start:end]) for start, end in zip(starts, ends, strict=True)) == words


@given(st.lists(PIECE, min_size=1, max_size=11), st.lists(PIECE, min_size=1, max_size=13))
def test_merging_sums_over_the_columns_and_averages_over_the_rows_of_a_word(rows, columns):
    weights = softmax_rows(3, len(rows), len(columns))
    merged, row_words, column_words = merge_words(weights, rows, columns)
    row_ends, column_ends = [*word_starts(rows), len(rows)], [*word_starts(columns), len(columns)]
    assert merged.shape == (3, len(row_words), len(column_words)) == (3, len(row_ends) - 1, len(column_ends) - 1)
    np.testing.assert_allclose(merged.sum(axis=-1), 1, rtol=1e-12)
    for row in range(len(row_words)):
        for column in range(len(column_words)):
            pieces = range(row_ends[row], row_ends[row + 1])
            looked_at = slice(column_ends[column], column_ends[column + 1])
            by_hand = [
                sum(weights[head, piece, looked_at].sum() for piece in pieces) / len(pieces) for head in range(3)
            ]
            np.testing.assert_allclose(merged[:, row, column], by_hand, rtol=1e-12)


@given(st.lists(PIECE, min_size=1, max_size=11))
def test_words_spell_what_their_pieces_spell(pieces):
    starts = word_starts(pieces)
    ends = [*starts[1:], len(pieces)]
    words = [join_pieces(pieces[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert "".join(words) == join_pieces(pieces)
    assert starts[0] == 0


def test_a_token_that_sees_nothing_stays_at_zero():
    merged, _, _ = merge_words(np.zeros((2, 3, 5)), ("a", "b", " c"), ("a", " b", "c", " d", " e"))
    assert merged.shape == (2, 2, 4)
    assert not merged.any()


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (2, 4, 5), (0, 3, 5)], ids=str)
def test_weights_that_do_not_fit_their_tokens_are_refused(shape):
    with pytest.raises(InputError, match=r"shape .*; pass \[heads, rows, columns\]"):
        merge_words(np.zeros(shape), ("a",) * 3, ("b",) * 5)

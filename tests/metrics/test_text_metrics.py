"""BLEU and chrF against their formulas on texts small enough to count by hand."""

import math

import pytest

from regard.metrics.text import bleu, chrf, exact_match, signature


def test_exact_match_is_the_share_of_equal_texts():
    assert exact_match(["a", "b", "c "], ["a", "x", "c"]) == 1 / 3


def test_bleu_is_the_geometric_mean_of_the_n_gram_precisions():
    precisions = (4 / 5, 3 / 4, 2 / 3, 1 / 2)
    assert bleu(["a b c d e"], ["a b c d f"], "none") == pytest.approx(100 * math.prod(precisions) ** 0.25)


def test_bleu_punishes_what_is_too_short():
    whole = "a b c d e f g"
    assert bleu(["a b c d e"], [whole], "none") == pytest.approx(100 * math.exp(1 - 7 / 5))
    assert bleu([whole], [whole], "none") == pytest.approx(100)


def test_bleu_counts_over_the_corpus_and_not_per_text():
    """One text right and one wrong: precisions 5/10, 4/8, 3/6, 2/4 whatever their order."""
    outputs, references = ["a b c d e", "p q r s t"], ["a b c d e", "u v w x y"]
    assert bleu(outputs, references, "none") == pytest.approx(50)


def test_punctuation_is_cut_off_unless_the_text_is_tokenised_already():
    outputs, references = ["one two three four five ."], ["one two three four five."]
    assert bleu(outputs, references, "13a") == pytest.approx(100)
    assert bleu(outputs, references, "none") < 90
    assert "tok:13a" in signature("13a")
    assert "tok:none" in signature("none")


def test_chrf_is_the_f_score_of_character_n_grams():
    """`abcd` and `abce`, n from 1 to 4 (longer ones do not exist): 3/4, 2/3, 1/2 and 0 are shared on both sides."""
    assert chrf(["abcd"], ["abce"]) == pytest.approx(100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4)

"""The figures are those of the reference implementations, on inputs that are easy to get wrong."""

import re
import string
from collections import Counter

import pytest

from regard.metrics.answers import overlap, same_answer
from regard.metrics.labels import accuracy, macro_f1
from regard.metrics.rouge import rouge
from regard.metrics.text import bleu, chrf

TRICKY = [
    ("", ""),
    ("", "a word"),
    ("a word", "."),
    ("The  cat.", "the cat"),
    ("An apple, a day!", "apple day"),
    ("a", "the"),
    ("U.S.A.", "usa"),
    ("it's", "its"),
    ("naïve café", "naive café"),
    ("naïve", "naïve"),
    ("１２ Uhr", "12 Uhr"),
    ("42,000.50 $", "42000.50"),
    ("the the the cat", "the cat"),
    ("«Oui»—non", "Oui non"),
    ("thea an", "an thea"),
    ("tab\there\nline", "tab here line"),
    ("日本語 です", "日本語です"),
    ("running runs ran", "run running ran"),
    ("x" * 300, "x" * 300),
    ("a\u00a0b", "a b"),
    ("don\u2019t", "don't"),
]


def normalized(text):
    """As the official script of SQuAD 1.1 does it, written down again: case, punctuation, articles, blanks."""
    text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def official_f1(said, wanted):
    spoken, right = normalized(said).split(), normalized(wanted).split()
    shared = sum((Counter(spoken) & Counter(right)).values())
    if not spoken or not right:  # as the script of 2.0 decides what that of 1.1 leaves open
        return float(spoken == right)
    if shared == 0:
        return 0.0
    precision, recall = shared / len(spoken), shared / len(right)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(("said", "wanted"), [*TRICKY, *(pair[::-1] for pair in TRICKY)])
def test_answers_are_measured_as_squad_does(said, wanted):
    assert same_answer(said, [wanted]) == (normalized(said) == normalized(wanted))
    assert overlap(said, [wanted]) == pytest.approx(official_f1(said, wanted), abs=1e-12)
    others = ["a word", wanted, "the cat"]
    assert overlap(said, others) == pytest.approx(max(official_f1(said, one) for one in others), abs=1e-12)
    assert same_answer(said, others) == any(normalized(said) == normalized(one) for one in others)


@pytest.mark.parametrize("tokenizer", ["13a", "intl", "char", "none", "zh"])
def test_bleu_and_chrf_are_sacrebleus(tokenizer):
    sacrebleu = pytest.importorskip("sacrebleu")
    said, wanted = [pair[0] for pair in TRICKY], [pair[1] for pair in TRICKY]
    assert bleu(said, wanted, tokenizer) == pytest.approx(
        sacrebleu.corpus_bleu(said, [wanted], tokenize=tokenizer, force=True).score, abs=1e-9
    )
    assert chrf(said, wanted) == pytest.approx(sacrebleu.corpus_chrf(said, [wanted]).score, abs=1e-9)


def longest_common(left, right):
    """Of two lists, by the textbook's table."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row, one in enumerate(left):
        for column, other in enumerate(right):
            best = max(table[row][column + 1], table[row + 1][column])
            table[row + 1][column + 1] = table[row][column] + 1 if one == other else best
    return table[-1][-1]


def test_rouge_is_the_library_s_and_the_papers():
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    said, wanted = [pair[0] for pair in TRICKY], [pair[1] for pair in TRICKY]
    found = rouge(said, wanted)
    for kind in found:
        reference = scorer.RougeScorer([kind], use_stemmer=False)
        scores = [reference.score(right, one)[kind].fmeasure for one, right in zip(said, wanted, strict=True)]
        assert found[kind] == pytest.approx(sum(scores) / len(scores), abs=1e-9), kind
    left, right = ["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "lay", "on", "a", "mat"]
    shared = longest_common(left, right)
    assert rouge([" ".join(left)], [" ".join(right)])["rougeL"] == pytest.approx(2 * shared / (len(left) + len(right)))


def test_macro_f1_is_the_mean_of_every_label_s_f1():
    """By precision and recall of each label, as scikit-learn's with zero_division=0."""
    wanted = ["a", "a", "a", "b", "c", "c", "e"]
    for said in (wanted, ["a"] * 7, ["b"] * 7, ["a", "b", "a", "b", "d", "c", "c"], ["d"] * 7):
        each = []
        for label in set(wanted) | set(said):
            right = sum(one == other == label for one, other in zip(said, wanted, strict=True))
            precision = right / said.count(label) if label in said else 0.0
            recall = right / wanted.count(label) if label in wanted else 0.0
            each.append(2 * precision * recall / (precision + recall) if right else 0.0)
        assert macro_f1(said, wanted) == pytest.approx(sum(each) / len(each), abs=1e-12)
        assert accuracy(said, wanted) == sum(map(str.__eq__, said, wanted)) / 7
    assert macro_f1(["a"] * 7, wanted) == pytest.approx(2 * (3 / 7) / (3 / 7 + 1) / 4)

"""The bag of n-grams against counting by hand and against Newton's method on a dense matrix."""

import numpy as np
import pytest

from regard.metrics.ngrams import BagOfNgrams, ngrams

TEXTS = [
    "a fine film",
    "fine , fine !",
    "a dull film",
    "so dull",
    "not fine",
    "what a film ?",
    "dull or not dull ?",
]
LABELS = ["good", "good", "bad", "bad", "bad", "asked", "asked"]


def newton(counts: np.ndarray, targets: np.ndarray, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Summed cross-entropy + ½‖W‖² in float64, by full Newton steps; the bias is a last column without a penalty."""
    rows = np.hstack([counts, np.ones((len(counts), 1))])
    size = rows.shape[1]
    penalty = np.tile([*np.ones(size - 1), 1e-9], labels)  # all biases may shift together: hold them in place
    weights = np.zeros(labels * size)
    wanted = np.eye(labels)[targets]
    for _ in range(60):
        scores = rows @ weights.reshape(labels, size).T
        shares = np.exp(scores - scores.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        gradient = ((shares - wanted).T @ rows).ravel() + penalty * weights
        hessian = np.diag(penalty)
        for row, share in zip(rows, shares, strict=True):
            hessian += np.kron(np.diag(share) - np.outer(share, share), np.outer(row, row))
        weights = weights - np.linalg.solve(hessian, gradient)
    found = weights.reshape(labels, size)
    return found[:, :-1].T, found[:, -1]


def test_a_text_is_its_words_marks_and_pairs_in_lower_case():
    assert list(ngrams("So, SO it’s")) == ["so", ",", "so", "it", "’", "s", "so ,", ", so", "so it", "it ’", "’ s"]
    assert list(ngrams(" ")) == []


def test_the_weights_are_those_of_newtons_method():
    bag = BagOfNgrams(TEXTS, LABELS)
    columns = list(bag.columns)
    counts = np.array([[list(ngrams(text)).count(column) for column in columns] for text in TEXTS], dtype=float)
    weight, bias = newton(counts, np.array([bag.labels.index(label) for label in LABELS]), len(bag.labels))
    assert bag.weight.numpy() == pytest.approx(weight, abs=2e-3)
    assert (bag.bias - bag.bias.mean()).numpy() == pytest.approx(bias - bias.mean(), abs=5e-3)


def test_words_and_pairs_decide_and_what_was_never_read_does_not():
    bag = BagOfNgrams(TEXTS, LABELS)
    assert bag.predict(TEXTS) == LABELS
    assert bag.predict(["fine fine"]) == ["good"]
    assert bag.predict(["zebra"]) == bag.predict([""])
    assert bag.accuracy(["so dull", "so dull"], ["bad", "good"]) == 0.5

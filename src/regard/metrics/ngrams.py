"""A bag of n-grams: the classifier that every other has to beat (Wang & Manning 2012).

A text is how often each word and each pair of neighbouring words is in it. On these counts a logistic regression is
fitted: W and b minimise the summed cross-entropy of the training texts plus ½‖W‖², by L-BFGS from zero. Nothing is
drawn at random. It knows no order beyond pairs, and no word that the training texts do not have.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

_WORDS = re.compile(r"\w+|[^\w\s]")
_ITERATIONS = 100


def ngrams(text: str) -> Iterator[str]:
    """The words and marks of a text in lower case, then each pair of neighbours."""
    words = _WORDS.findall(text.lower())
    yield from words
    yield from map(" ".join, pairwise(words))


class BagOfNgrams:
    """A logistic regression on counts of words and pairs of words."""

    def __init__(self, texts: Sequence[str], labels: Sequence[str]) -> None:
        counted = [Counter(ngrams(text)) for text in texts]
        self.labels = sorted(set(labels))
        self.columns = {ngram: column for column, ngram in enumerate(dict.fromkeys(g for row in counted for g in row))}
        place = {label: index for index, label in enumerate(self.labels)}
        self.weight, self.bias = _fit(
            self._matrix(counted), torch.tensor([place[label] for label in labels]), len(self.labels)
        )

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The likeliest label of each text."""
        logits = self._matrix([Counter(ngrams(text)) for text in texts]) @ self.weight + self.bias
        return [self.labels[index] for index in logits.argmax(dim=1).tolist()]

    def accuracy(self, texts: Sequence[str], labels: Sequence[str]) -> float:
        """The share of texts whose likeliest label is theirs."""
        return sum(said == label for said, label in zip(self.predict(texts), labels, strict=True)) / len(labels)

    def _matrix(self, counted: Sequence[Counter[str]]) -> Tensor:
        """Texts × n-grams, sparse; n-grams that the training texts do not have are left out."""
        found = [[(self.columns[g], count) for g, count in row.items() if g in self.columns] for row in counted]
        rows = torch.tensor([row for row, entries in enumerate(found) for _ in entries], dtype=torch.long)
        entries = torch.tensor([entry for row in found for entry in row], dtype=torch.long).reshape(-1, 2)
        places, shape = torch.stack([rows, entries[:, 0]]), (len(found), len(self.columns))
        with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]  # else 2.11 warns
            return torch.sparse_coo_tensor(places, entries[:, 1].float(), shape).coalesce()


def _fit(counts: Tensor, targets: Tensor, labels: int) -> tuple[Tensor, Tensor]:
    """The weights and the bias that minimise summed cross-entropy + ½‖W‖²."""
    weight = torch.zeros(counts.shape[1], labels, requires_grad=True)
    bias = torch.zeros(labels, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=_ITERATIONS, tolerance_grad=1e-4, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(counts @ weight + bias, targets) + weight.square().sum() / (2 * len(targets))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()

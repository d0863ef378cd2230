"""Token vectors: a row of the table times √width, and the same table read backwards."""

import math

import pytest
import torch

from regard.embedding.tokens import TokenEmbedding
from rounding import assert_close


@pytest.mark.parametrize("scaled", [True, False])
def test_a_tokens_vector_is_its_row_times_the_root_of_the_width(scaled):
    embedding = TokenEmbedding(11, 7, scaled=scaled)
    ids = torch.tensor([[3, 0, 10], [3, 5, 1]])
    found = embedding(ids)
    for row in range(2):
        for column in range(3):
            expected = embedding.weight[ids[row, column]] * (math.sqrt(7) if scaled else 1.0)
            assert_close(found[row, column], expected, 1e-6)


def test_a_logit_is_the_dot_product_with_the_tokens_unscaled_row():
    embedding = TokenEmbedding(11, 7)
    hidden = torch.randn(2, 3, 7)
    found = embedding.logits(hidden)
    for token in range(11):
        expected = (hidden * embedding.weight[token]).sum(-1)
        assert_close(found[..., token], expected)


def test_scaled_vectors_and_tied_logits_begin_with_unit_variance():
    embedding = TokenEmbedding(1009, 257)
    vectors = embedding(torch.arange(1009)[None])
    assert vectors.var().item() == pytest.approx(1.0, rel=0.02)
    assert embedding.logits(torch.randn(1, 499, 257)).var().item() == pytest.approx(1.0, rel=0.02)

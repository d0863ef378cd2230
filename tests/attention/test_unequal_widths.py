"""Queries and keys of different widths, for similarities that map them; and what of the keys is computed once."""

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.similarity import SIMILARITIES, Similarity, split_similarity
from regard.errors import InputError
from regard.inspection.formulas import FORMULAS

QUERY_WIDTH, KEY_WIDTH = 5, 7
MADE = {"additive": regard.Additive, "general": regard.General}


def tensors(key_width: int = KEY_WIDTH) -> list[Tensor]:
    shapes = (2, 2, 3, QUERY_WIDTH), (2, 2, 11, key_width), (2, 2, 11, 13)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def score(similarity: Similarity, query: Tensor, key: Tensor) -> Tensor:
    """Of one pair."""
    if isinstance(similarity, regard.General):
        return sum(
            query[row] * similarity.matrix[row, column] * key[column]
            for row in range(len(query))
            for column in range(len(key))
        )
    mapped = similarity.of_query.weight @ query + similarity.of_key.weight @ key
    return sum(one * part.tanh() for one, part in zip(similarity.direction, mapped, strict=True))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("shared", [False, True])
def test_attention_is_the_formula_with_gradients(name, shared):
    similarity = MADE[name](QUERY_WIDTH, KEY_WIDTH).double()
    assert similarity.widths == (QUERY_WIDTH, KEY_WIDTH)
    query, key, value = tensors()
    key, value = (one[:, :1].detach().requires_grad_() if shared else one for one in (key, value))
    lengths = torch.tensor([11, 4])
    found = regard.attend(query, key, value, similarity=similarity, mask=regard.Padding(lengths))
    expected = torch.zeros_like(found)
    for row in range(2):
        for head in range(2):
            keys, values = (one[row, 0 if shared else head, : int(lengths[row])] for one in (key, value))
            for place in range(3):
                scores = torch.stack([score(similarity, query[row, head, place], one) for one in keys])
                expected[row, head, place] = scores.softmax(0) @ values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    direction = torch.randn_like(found)
    wanted = [query, key, value, *similarity.parameters()]
    own, peer = (torch.autograd.grad((one * direction).sum(), wanted) for one in (found, expected))
    for mine, other in zip(own, peer, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("key_width", [QUERY_WIDTH, KEY_WIDTH])
def test_mapped_keys_are_compared_as_the_formula_says_by_every_kernel_that_can(name, key_width):
    of_key, compare = (one.double() for one in split_similarity(name, QUERY_WIDTH, key_width))
    query, key, value = tensors(key_width)
    mapped = of_key(key)
    for row, head in ((0, 1), (1, 0)):
        torch.testing.assert_close(
            compare.scores(query, mapped)[row, head],
            FORMULAS[type(compare)](compare, query[row, head], mapped[row, head]),
        )
    reference = regard.attend(query, mapped, value, similarity=compare, kernel="reference")
    torch.testing.assert_close(regard.attend(query, mapped, value, similarity=compare), reference)
    learns = any(True for _ in of_key.parameters())
    assert learns == (key_width != QUERY_WIDTH or name in MADE)


@pytest.mark.parametrize("name", MADE)
def test_splitting_changes_no_score_and_copies_no_weight(name):
    similarity = MADE[name](QUERY_WIDTH, KEY_WIDTH).double()
    of_key, compare = similarity.split()
    query, key, _ = tensors()
    torch.testing.assert_close(compare.scores(query, of_key(key)), similarity.scores(query, key))
    halves = {id(one) for part in (of_key, compare) for one in part.parameters()}
    assert halves == {id(one) for one in similarity.parameters()}


def test_a_similarity_of_ones_own_gets_mapped_keys():
    class Near(regard.Similarity):
        def __init__(self, head_width: int) -> None:
            super().__init__()
            self.scale = head_width**-0.5

        def scores(self, query: Tensor, key: Tensor) -> Tensor:
            return -self.scale * torch.cdist(query, key)

    regard.register_similarity("near", Near)
    try:
        of_key, compare = split_similarity("near", QUERY_WIDTH, KEY_WIDTH)
        query, key, _ = (one.float() for one in tensors())
        expected = -torch.cdist(query, key @ of_key.weight.T) / QUERY_WIDTH**0.5
        torch.testing.assert_close(compare.scores(query, of_key(key)), expected)
    finally:
        del SIMILARITIES["near"]


@pytest.mark.parametrize("similarity", ["dot", "scaled_dot", "cosine"])
def test_what_maps_nothing_refuses_different_widths(similarity):
    with pytest.raises(InputError, match="queries of width 5 cannot be compared with keys of width 7; make them equal"):
        regard.attend(*tensors(), similarity=similarity)


@pytest.mark.parametrize("name", MADE)
def test_widths_it_was_not_made_for_are_refused(name):
    similarity = MADE[name](QUERY_WIDTH, 8).double()
    said = (
        f"queries of width 5 cannot be compared with keys of width 7; this {type(similarity).__name__} was made for 5"
    )
    with pytest.raises(InputError, match=said):
        regard.attend(*tensors(), similarity=similarity)

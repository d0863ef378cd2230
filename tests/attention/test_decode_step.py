"""One query per row against the reference: masks, shared heads, similarities, rows that see nothing."""

import pytest
import torch

from regard.attention.cache import KeyValues
from regard.attention.core import attend
from regard.attention.decode_step import suits_one_query
from regard.attention.mask import Causal, Dense, Padding, Window
from regard.attention.multihead import Attend
from regard.attention.similarity import similarity_module
from rounding import assert_close

MASKS = {
    "none": None,
    "causal": Causal(),
    "padding": Padding(torch.tensor([3, 7]), side="left"),
    "window": Causal() & Window(3),
    "heads apart": Dense(torch.rand(2, 6, 1, 7, generator=torch.Generator().manual_seed(0)) < 0.6),
    "nothing": Dense(torch.tensor([[True] * 7, [False] * 7])[:, None]),
}


@pytest.mark.parametrize("kind", ["dot", "scaled_dot", "cosine", "general"])
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("mask", MASKS)
@torch.no_grad()
def test_one_query_gives_what_the_reference_gives(mask, kv_heads, kind):
    torch.manual_seed(0)
    query = torch.randn(2, 6, 1, 5)
    memory = KeyValues(torch.randn(2, kv_heads, 7, 5), torch.randn(2, kv_heads, 7, 3))
    similarity = similarity_module(kind, 5)
    assert suits_one_query(query, similarity, None, 0.0)
    expected = attend(query, memory.keys, memory.values, similarity=similarity, mask=MASKS[mask], kernel="reference")
    found = Attend(similarity)(query, memory, mask=MASKS[mask])
    assert_close(found, expected)
    if mask == "nothing":
        assert (found[1] == 0).all()


@torch.no_grad()
def test_keys_with_room_behind_them_are_read_to_their_last_token_alone():
    torch.manual_seed(0)
    memory = KeyValues(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4))
    for _ in range(3):
        memory = memory.append(KeyValues(torch.randn(2, 3, 1, 4), torch.randn(2, 3, 1, 4)))
    assert memory.room is not None
    assert memory.room.keys.shape[2] > memory.tokens
    memory.room.keys[:, :, memory.tokens :] = torch.nan
    query = torch.randn(2, 3, 1, 4)
    found = Attend(similarity_module("scaled_dot", 4))(query, memory)
    expected = attend(query, memory.keys.clone(), memory.values.clone(), kernel="reference")
    assert_close(found, expected)


def test_gradients_dropout_biases_and_more_queries_take_the_usual_way():
    similarity = similarity_module("scaled_dot", 5)
    query = torch.randn(2, 3, 1, 5)
    assert not suits_one_query(query, similarity, None, 0.0)
    with torch.no_grad():
        assert suits_one_query(query, similarity, None, 0.0)
        assert not suits_one_query(query, similarity, None, 0.1)
        assert not suits_one_query(query, similarity, torch.zeros(1), 0.0)
        assert not suits_one_query(torch.randn(2, 3, 2, 5), similarity, None, 0.0)
        assert not suits_one_query(query, similarity_module("additive", 5), None, 0.0)

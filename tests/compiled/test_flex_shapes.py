"""FlexAttention is compiled for the first shape it meets, then for all of a kind: texts are ragged."""

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

import regard
from regard.attention import flex
from regard.attention.mask import Causal, Document, Padding, Window
from rounding import assert_close

SHAPES = ((3, 160), (4, 170), (5, 200), (2, 290), (7, 240), (6, 230))


def padded(batch, tokens):
    return Window(31) & Padding(torch.randint(100, tokens, (batch,)))


def packed(batch, tokens):
    return Causal() & Document(torch.randint(0, 3, (batch, tokens)).sort(-1).values)


@pytest.mark.parametrize("mask", [padded, packed])
def test_texts_of_ever_new_lengths_do_not_compile_anew(mask, monkeypatch):
    torch.manual_seed(0)
    torch._dynamo.reset()
    compilations = []

    def counting(graph, _):
        compilations.append(graph)
        return graph.forward

    monkeypatch.setattr(
        flex, "compiled", lambda device: torch.compile(flex_attention, backend=counting, **flex.OPTIONS)
    )
    for batch, tokens in SHAPES:
        query, key, value = (torch.randn(batch, 2, tokens, 16) for _ in range(3))
        here = mask(batch, tokens)
        found = regard.attend(query, key, value, mask=here, kernel="flex")
        assert_close(found, regard.attend(query, key, value, mask=here, kernel="reference"))
    assert 1 <= len(compilations) <= 3

"""Weights of 8 bits on a GPU: the product of what was rounded, by either way; a graph writes what plain steps write."""

import pytest
import torch
from torch.nn import functional as F

from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Greedy
from regard.layers.linear import Linear, keep_int8
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("rows", [1, 16, 61])
@pytest.mark.parametrize("width", [128, 61])
@pytest.mark.parametrize("plain", [False, True])
@torch.no_grad()
def test_the_product_is_that_of_the_rounded_weight(rows, width, plain, monkeypatch):
    if plain:
        monkeypatch.setenv("REGARD_WITHOUT", "product")
    torch.manual_seed(0)
    linear = Linear(width, 192).to("cuda", torch.bfloat16)
    keep_int8(linear)
    inputs = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    expected = F.linear(inputs.double(), linear.weight.double(), linear.bias.double())
    found = linear(inputs)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))


@torch.inference_mode()
def test_a_graph_writes_what_the_plain_loop_writes(monkeypatch):
    torch.manual_seed(0)
    config = TransformerConfig(architecture="decoder", vocabulary=211, width=64, heads=4, layers=2, positions="rotary")
    model = Transformer(config).eval().cuda()  # in bfloat16 two equal logits may be rounded apart
    keep_int8(model)
    inputs = Inputs(Padded.of([[5, 3, 9], [7, 7, 4]], side="left")).to("cuda")
    graph = generate(model, inputs, Greedy(), Stop(2, 23))
    assert {one.path for one in graph} == {"graph"}
    monkeypatch.setattr(paths, "DEVICES", frozenset())
    plain = generate(model, inputs, Greedy(), Stop(2, 23))
    assert [one.ids for one in graph] == [one.ids for one in plain]

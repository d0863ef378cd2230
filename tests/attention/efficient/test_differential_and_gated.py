"""Differential and gated softmax attention against the papers' sentences, written with plain softmaxes."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard.attention.efficient.differential import DifferentialShape
from regard.attention.efficient.gated_softmax import GatedSoftmaxShape
from regard.attention.exact import ExactShape
from regard.attention.mask import Causal, Padding, Window
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Site, Slot
from regard.errors import ConfigError
from regard.inspection.capture import watch_module
from rounding import assert_close

WIDTH, HEADS, HEAD_WIDTH, TOKENS = 22, 4, 5, 13


def built(shape, *, index: int = 2, **more):
    torch.manual_seed(3)
    given = {"key_value_heads": HEADS, "causal": True, "site": Site("decoder", index, "self"), **more}
    layer = shape.build(Slot(width=WIDTH, heads=HEADS, head_width=HEAD_WIDTH, **given)).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return layer


def heads_of(projected, count: int):
    return projected.unflatten(2, (count, -1)).transpose(1, 2)


def map_of(query, key, allowed):
    scores = query @ key.mT / HEAD_WIDTH**0.5
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)


@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("index", [0, 2])
def test_differential_attention_is_the_papers_sentence(kv_heads, index):
    layer = built(DifferentialShape(), index=index, key_value_heads=kv_heads)
    inputs, allowed = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64), torch.ones(TOKENS, TOKENS).bool().tril()
    query, key, value = heads_of(layer.query(inputs), HEADS), layer.key(inputs), layer.value(inputs)
    key = heads_of(key, kv_heads).repeat_interleave(HEADS // kv_heads, dim=1)
    pairs = heads_of(value, kv_heads // 2).repeat_interleave(HEADS // kv_heads, dim=1)  # values of twice the width
    initial = 0.8 - 0.6 * math.exp(-0.3 * index)
    factor = torch.exp(layer.query_first @ layer.key_first) - torch.exp(layer.query_second @ layer.key_second) + initial
    read, maps = [], []
    for pair in range(HEADS // 2):
        first, second = (map_of(query[:, at], key[:, at], allowed) for at in (2 * pair, 2 * pair + 1))
        maps.append(first - factor * second)
        head = maps[-1] @ pairs[:, pair]
        normed = head / (head.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
        read.append(normed * (1 - initial))
    context = LayerContext(Causal())
    assert_close(layer(inputs, None, context)[0], layer.output(torch.cat(read, dim=-1)), 1e-10)
    found = layer.dense_map(inputs, context)
    assert_close(found[:, ::2], torch.stack(maps, dim=1), 1e-10)
    assert torch.equal(found[:, ::2], found[:, 1::2])


def test_two_equal_maps_take_each_other_away():
    """Where both heads of a pair ask the same and λ is 1, nothing is left."""
    layer = built(DifferentialShape())
    with torch.no_grad():
        for one in (layer.query, layer.key):
            one.weight.copy_(one.weight.view(2, 2, -1)[:, :1].expand(2, 2, -1).reshape_as(one.weight))
            one.bias.copy_(one.bias.view(2, 2, -1)[:, :1].expand(2, 2, -1).flatten())
        layer.query_first.fill_(0)
        layer.query_second.zero_()
        layer.query_second[0], layer.key_second[0] = math.log(layer.initial), 1.0
    assert_close(layer.subtracted, torch.tensor(1.0, dtype=torch.float64), 1e-12)
    maps = layer.dense_map(torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), LayerContext(Causal()))
    assert_close(maps, torch.zeros_like(maps), 1e-12)


@pytest.mark.parametrize("gates", ["feature", "head"])
def test_gated_softmax_attention_is_the_papers_sentence(gates):
    layer = built(GatedSoftmaxShape(gates=gates))
    inputs, allowed = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64), torch.ones(TOKENS, TOKENS).bool().tril()
    query, key, value = (heads_of(one(inputs), HEADS) for one in (layer.query, layer.key, layer.value))
    read = map_of(query, key, allowed) @ value * heads_of(torch.sigmoid(layer.gate(inputs)), HEADS)
    context = LayerContext(Causal())
    assert_close(layer(inputs, None, context)[0], layer.output(read.transpose(1, 2).flatten(2)), 1e-10)
    assert_close(layer.dense_map(inputs, context), map_of(query, key, allowed), 1e-12)


def test_with_its_gates_wide_open_it_is_exact_attention():
    layer, exact = built(GatedSoftmaxShape()), built(ExactShape())
    exact.load_state_dict({name: one for name, one in layer.state_dict().items() if "gate" not in name})
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(50.0)
    inputs = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    context = LayerContext(Causal() & Window(4) & Padding(torch.tensor([13, 5])))
    assert_close(layer(inputs, None, context)[0], exact(inputs, None, context)[0], 1e-12)


def test_its_weights_are_seen_as_exact_attentions_are():
    layer = built(GatedSoftmaxShape())
    inputs = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    with watch_module(layer) as seen, torch.no_grad():
        layer(inputs, None, LayerContext(Causal()))
    assert_close(seen.weights("decoder.2.self"), layer.dense_map(inputs, LayerContext(Causal()))[0], 1e-12)


@pytest.mark.parametrize("shape", [DifferentialShape(), GatedSoftmaxShape()], ids=lambda shape: shape.name)
def test_any_mask_a_memory_and_steps(shape):
    layer = built(shape)
    inputs, mask = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64), Causal() & Window(3)
    whole, _ = layer(inputs, None, LayerContext(mask))
    for place in (0, 7, 12):
        near = inputs[:, max(place - 2, 0) : place + 1]
        assert_close(layer(near, None, LayerContext(Causal()))[0][:, -1], whole[:, place], 1e-12)
    _, state = layer(inputs[:, :5], None, LayerContext(Causal()))
    step, _ = layer(inputs[:, 5:6], state, LayerContext(past=5))
    assert_close(step, layer(inputs[:, :6], None, LayerContext(Causal()))[0][:, 5:], 1e-12)
    across = built(shape, causal=False, cross=True)
    memory = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    told = LayerContext(memory_mask=Padding(torch.tensor([7, 2]))).cross
    out, _ = across(inputs, across.start(memory), told)
    assert_close(across(inputs[1:], across.start(memory[1:, :2]), LayerContext())[0], out[1:], 1e-12)
    assert across.dense_map(inputs, told, memory).shape == (2, HEADS, TOKENS, 7)


def test_dropout_is_on_the_weights():
    for shape in (DifferentialShape(), GatedSoftmaxShape()):
        layer, inputs = built(shape, dropout=0.5), torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
        plain = layer(inputs, None, LayerContext(Causal()))[0]
        assert not torch.allclose(layer.train()(inputs, None, LayerContext(Causal()))[0], plain)


def test_heads_that_do_not_pair_are_refused():
    with pytest.raises(ConfigError, match="takes heads in pairs and there is an odd number of heads, 3; use 4"):
        DifferentialShape().build(Slot(15, 3, 3, 5, causal=True))
    with pytest.raises(ConfigError, match="odd number of key/value heads, 1; use 2"):
        DifferentialShape().build(Slot(20, 4, 1, 5, causal=True))


def test_gates_that_are_shut_read_nothing():
    layer = built(GatedSoftmaxShape())
    with torch.no_grad():
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(-800.0)
    out, _ = layer(torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), None, LayerContext(Causal()))
    assert_close(out, layer.output.bias.expand_as(out), 1e-12)
    assert F.sigmoid(torch.tensor(-800.0)) == 0

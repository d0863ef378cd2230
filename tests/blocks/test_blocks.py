"""Blocks against their formulas: feed-forward, normalisation, residual, and dropout that only training has."""

import math

import pytest
import torch
from torch import nn

from regard.attention.mechanism import LayerContext
from regard.blocks.config import BlockConfig
from regard.blocks.decoder import Decoder, DecoderLayer
from regard.blocks.encoder import Encoder, EncoderLayer, final_norm, residual
from regard.errors import ConfigError
from regard.layers.feedforward import ACTIVATIONS, GATED, FeedForward
from regard.layers.norm import norm
from rounding import assert_close

# Feed-forward


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


FORMULAS = {
    "relu": lambda x: max(0.0, x),
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "geglu": gelu,
    "geglu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swiglu": lambda x: x / (1 + math.exp(-x)),
}


def test_every_kind_has_its_formula_here():
    assert FORMULAS.keys() == ACTIVATIONS.keys()
    for kind in FORMULAS:
        BlockConfig(feedforward=kind)


@pytest.mark.parametrize("kind", FORMULAS)
def test_a_feedforward_is_its_formula_at_every_position(kind):
    block = FeedForward(kind, 3, 5, dropout=0.0).double()
    hidden = torch.randn(2, 7, 3, dtype=torch.float64)
    found = block(hidden)
    up, down = block.up.weight.tolist(), block.down.weight.tolist()
    for row in range(2):
        for token in range(7):
            x = hidden[row, token].tolist()
            inner = []
            for unit in range(5):
                raised = sum(w * v for w, v in zip(up[unit], x, strict=True)) + block.up.bias[unit].item()
                if kind in GATED:
                    gate = block.gate.weight[unit].tolist()
                    opened = sum(w * v for w, v in zip(gate, x, strict=True)) + block.gate.bias[unit].item()
                    inner.append(FORMULAS[kind](opened) * raised)
                else:
                    inner.append(FORMULAS[kind](raised))
            for unit in range(3):
                out = sum(w * v for w, v in zip(down[unit], inner, strict=True)) + block.down.bias[unit].item()
                assert found[row, token, unit].item() == pytest.approx(out, abs=1e-12)


def test_only_gated_kinds_have_a_gate():
    gated = {kind for kind in ACTIVATIONS if FeedForward(kind, 3, 5, 0.0).gate is not None}
    assert gated == GATED == {"geglu", "geglu_tanh", "swiglu"}


# Normalisation


@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_layer_norm_is_its_closed_form(epsilon):
    module = norm("layer", 7, epsilon).double()
    nn.init.normal_(module.weight)
    nn.init.normal_(module.bias)
    x = 3 + 5 * torch.randn(2, 3, 7, dtype=torch.float64)
    mean = x.sum(-1, keepdim=True) / 7
    variance = (x - mean).square().sum(-1, keepdim=True) / 7
    expected = module.weight * (x - mean) / (variance + (epsilon or 1e-5)).sqrt() + module.bias
    assert_close(module(x), expected, 1e-12)


@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_rms_norm_is_its_closed_form(epsilon):
    module = norm("rms", 7, epsilon).double()
    nn.init.normal_(module.weight)
    x = 3 + 5 * torch.randn(2, 3, 7, dtype=torch.float64)
    expected = module.weight * x / (x.square().sum(-1, keepdim=True) / 7 + (epsilon or 1e-6)).sqrt()
    assert_close(module(x), expected, 1e-12)
    assert dict(module.named_parameters()).keys() == {"weight"}
    assert norm("rms", 2)(torch.tensor([3.0, 4.0])).tolist() == pytest.approx(
        [3 / math.sqrt(12.5), 4 / math.sqrt(12.5)]
    )


# Residual


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_residual_is_the_formula_of_its_placement(kind, placement):
    around = residual(BlockConfig(width=8, norm=kind, norm_placement=placement, dropout=0.0)).double()
    nn.init.normal_(around.norm.weight)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    found = around.add(x, torch.sin(around.enter(x)))
    expected = x + torch.sin(around.norm(x)) if placement == "pre" else around.norm(x + torch.sin(x))
    assert torch.equal(found, expected)


def test_a_sandwich_normalises_what_is_read_and_what_is_made_by_weights_of_their_own():
    around = residual(BlockConfig(width=8, norm="rms_offset", norm_placement="sandwich", dropout=0.0)).double()
    x, weights = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 8, dtype=torch.float64)
    with torch.no_grad():
        around.norm.weight.copy_(weights[0])
        around.made_norm.weight.copy_(weights[1])

    def normed(vectors, weight):
        return vectors / (vectors.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + weight)

    expected = x + normed(torch.sin(normed(x, weights[0])), weights[1])
    assert_close(around.add(x, torch.sin(around.enter(x))), expected, 1e-12)


def test_a_norm_with_an_offset_counts_in_float32_what_comes_in_bfloat16():
    one = norm("rms_offset", 8).bfloat16()
    nn.init.normal_(one.weight, std=0.01)
    x = torch.randn(5, 8).bfloat16()
    wanted = torch.nn.functional.rms_norm(x.float(), (8,), 1 + one.weight.float(), 1e-6)
    assert torch.equal(one(x), wanted.bfloat16())


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_without_the_connection_the_sublayer_takes_the_streams_place(placement):
    around = residual(BlockConfig(width=8, norm_placement=placement, residual=False, dropout=0.0)).double()
    nn.init.normal_(around.norm.weight)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    found = around.add(x, torch.sin(around.enter(x)))
    assert torch.equal(found, torch.sin(around.norm(x)) if placement == "pre" else around.norm(torch.sin(x)))


def test_without_norms_a_residual_is_the_sum_alone():
    config = BlockConfig(width=8, norm="none", dropout=0.0)
    around, x = residual(config), torch.randn(2, 5, 8)
    assert torch.equal(around.add(x, torch.sin(around.enter(x))), x + torch.sin(x))
    assert list(around.parameters()) == list(final_norm(config).parameters()) == []


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_stack_ends_with_a_norm_where_layers_normalise_before(kind):
    places = ("pre", "post", "sandwich")
    pre, post, sandwich = (final_norm(BlockConfig(width=8, norm=kind, norm_placement=place)) for place in places)
    assert isinstance(pre, nn.LayerNorm if kind == "layer" else nn.RMSNorm)
    assert type(sandwich) is type(pre)
    assert isinstance(post, nn.Identity)


def test_a_stack_is_its_layers_one_after_another():
    config = BlockConfig(width=12, heads=3, norm_placement="pre", dropout=0.0)
    stream = torch.randn(2, 5, 12)
    encoder = Encoder(config, 3)
    expected = stream
    for layer in encoder.layers:
        expected = layer(expected, LayerContext())
    assert torch.equal(encoder(stream, LayerContext()), encoder.norm(expected))
    decoder = Decoder(config, 3, cross=True)
    cache = decoder.precompute_cross(torch.randn(2, 7, 12))
    expected = stream
    for layer, memory in zip(decoder.layers, cache.memory, strict=True):
        expected, _ = layer(expected, None, memory, LayerContext())
    found, extended = decoder(stream, cache, LayerContext())
    assert torch.equal(found, decoder.norm(expected))
    assert (extended.tokens, len(extended.own), extended.memory) == (5, 3, cache.memory)


def test_the_inner_width_is_four_times_the_width_unless_said():
    assert EncoderLayer(BlockConfig(width=12, heads=3)).feedforward.up.out_features == 48
    assert EncoderLayer(BlockConfig(width=12, heads=3, feedforward_width=7)).feedforward.up.out_features == 7


# Dropout


def encoded(config: BlockConfig) -> tuple[nn.Module, tuple]:
    return EncoderLayer(config), (LayerContext(),)


def decoded(config: BlockConfig) -> tuple[nn.Module, tuple]:
    return DecoderLayer(config, cross=False), (None, None, LayerContext())


@pytest.mark.parametrize("make", [encoded, decoded])
@pytest.mark.parametrize("where", ["dropout", "attention_dropout"])
def test_only_training_drops_anything(make, where):
    layer, rest = make(BlockConfig(width=12, heads=3, **{"dropout": 0.0, where: 0.5}))
    plain, _ = make(BlockConfig(width=12, heads=3, dropout=0.0))
    plain.load_state_dict(layer.state_dict())
    stream = torch.randn(2, 5, 12)

    def run(module: nn.Module) -> torch.Tensor:
        out = module(stream, *rest)
        return out[0] if isinstance(out, tuple) else out

    assert torch.equal(run(layer.eval()), run(plain.eval()))
    assert torch.equal(run(plain.train()), run(plain.eval()))
    assert not torch.equal(run(layer.train()), run(layer.train()))


@pytest.mark.parametrize("part", ["feedforward", "residual"])
def test_dropping_keeps_the_expectation(part):
    many, rate = 20_011, 0.3
    if part == "feedforward":
        block = FeedForward("gelu", 3, 5, rate)
        stream = torch.randn(1, 1, 3).expand(many, 1, 3)
        dropped, plain = block.train()(stream), block.eval()(stream[:1])[0]
    else:
        around = residual(BlockConfig(width=4, norm_placement="pre", dropout=rate))
        stream, made = (torch.randn(1, 1, 4).expand(many, 1, 4) for _ in range(2))
        dropped, plain = around.train().add(stream, made), around.eval().add(stream[:1], made[:1])[0]
    error = dropped.std(0) / math.sqrt(many)
    assert (dropped.std(0) > 1e-3).all()
    assert ((dropped.mean(0) - plain).abs() < 5 * error).all()


# What is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 12, "heads": 5}, ("width 12", "5 heads")),
        ({"heads": 4, "key_value_heads": 3}, ("3 key/value heads", "4 heads")),
        ({"feedforward": "relo"}, ("'relo'", "'relu'")),
        ({"norm": "batch"}, ("'batch'", "'layer'")),
        ({"norm_placement": "middle"}, ("'middle'", "'pre'")),
        ({"dropout": 1.0}, ("1.0", "less than 1")),
        ({"similarity": "cosinus"}, ("'cosinus'", "cosine")),
        ({"widht": 12}, ("'widht'", "'width'")),
    ],
)
def test_a_layer_that_cannot_be_is_refused_with_the_remedy(options, words):
    with pytest.raises(ConfigError) as refusal:
        BlockConfig(**options)
    assert all(word in str(refusal.value) for word in words)

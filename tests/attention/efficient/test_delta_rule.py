"""The gated delta rule against itself token by token, against `transformers`, and as a layer."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrences import real_tokens
from torch.nn import functional as F

from regard.attention.efficient.chunked import restarts
from regard.attention.efficient.delta_rule import gated_delta_rule
from regard.attention.efficient.gated_deltanet import GatedDeltaNetShape
from regard.attention.mask import Causal, Document, Padding
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Site, Slot
from regard.errors import InputError
from rounding import assert_close

BATCH, HEADS, WIDTH, VALUE = 2, 3, 5, 7


def draw(tokens: int, dtype=torch.float64, kv_heads: int = HEADS):
    query, key = (torch.randn(BATCH, count, tokens, WIDTH, dtype=dtype) for count in (HEADS, kv_heads))
    value = torch.randn(BATCH, kv_heads, tokens, VALUE, dtype=dtype)
    decay = F.logsigmoid(1 + 2 * torch.randn(BATCH, HEADS, tokens, 1, dtype=dtype))
    return [query, key, value, decay, torch.rand(BATCH, HEADS, tokens, 1, dtype=dtype)]


def by_steps(query, key, value, decay, rate, state=None):
    """`S ← αS`, then `S ← S + β kᵀ(v − kS)`, one token after the other."""
    key, value = (one.repeat_interleave(HEADS // one.shape[1], dim=1) for one in (key, value))
    query, key = (one / one.norm(dim=-1, keepdim=True) for one in (query, key))
    state = query.new_zeros(BATCH, HEADS, WIDTH, value.shape[3]) if state is None else state
    out = []
    for token in range(query.shape[2]):
        state = state * decay[:, :, token, :, None].exp()
        wrong = value[:, :, token] - (key[:, :, token, :, None] * state).sum(dim=2)
        state = state + rate[:, :, token, :, None] * key[:, :, token, :, None] * wrong[:, :, None]
        out.append((query[:, :, token, :, None] * state).sum(dim=2) / WIDTH**0.5)
    return torch.stack(out, dim=2), state


def with_gradients(compute, tensors, state):
    leaves = [one.detach().clone().requires_grad_() for one in (*tensors, state) if one is not None]
    out, behind = compute(*leaves[:5], leaves[5] if state is not None else None)
    towards = [torch.cos(torch.arange(one.numel())).view(one.shape).to(one) for one in (out, behind)]
    return [out, behind, *torch.autograd.grad((out * towards[0]).sum() + (behind * towards[1]).sum(), leaves)]


@settings(max_examples=25)
@given(
    tokens=st.integers(1, 70),
    chunk=st.sampled_from([1, 3, 16, 64]),
    started=st.booleans(),
    kv_heads=st.sampled_from([1, HEADS]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_reading_in_chunks_equals_reading_token_by_token(tokens, chunk, started, kv_heads, dtype):
    torch.manual_seed(tokens * 100 + chunk)
    tensors = draw(tokens, dtype, kv_heads)
    state = torch.randn(BATCH, HEADS, WIDTH, VALUE, dtype=dtype) if started else None
    found = with_gradients(lambda *at: gated_delta_rule(*at[:5], state=at[5], chunk=chunk), tensors, state)
    exact = with_gradients(by_steps, [one.double() for one in tensors], None if state is None else state.double())
    for one, other in zip(found, exact, strict=True):
        assert_close(one.double(), other, 1e-11 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("tokens", [1, 63, 130])
def test_transformers_has_the_same_rule(tokens):
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    query, key, value, decay, rate = draw(tokens, torch.float32)
    peer = [one.transpose(1, 2) for one in (query, key, value, decay[..., 0], rate[..., 0])]
    out, state = torch_chunk_gated_delta_rule(*peer, output_final_state=True, use_qk_l2norm_in_kernel=True)
    found, behind = gated_delta_rule(query, key, value, decay, rate)
    assert_close(found, out.transpose(1, 2), 2e-5)
    assert_close(behind, state, 2e-5)


def test_a_key_that_comes_again_replaces_what_it_stood_for():
    """With rate 1 and nothing fading, a token that asks for a key reads the last value that it was given."""
    keys = torch.eye(WIDTH)[torch.tensor([0, 1, 2, 1, 0, 1])].expand(1, 1, -1, -1)
    value, ones = torch.randn(1, 1, 6, VALUE), torch.ones(1, 1, 6, 1)
    out, _ = gated_delta_rule(keys, keys, value, 0 * ones, ones)
    assert_close(out * WIDTH**0.5, value)


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_corrects_nothing_and_fades_nothing(side):
    tensors, real = draw(37), real_tokens([37, 11], 37, side)
    spoilt = [torch.where(real[:, None, :, None], one, 50.0 * one) for one in tensors]
    found, state = gated_delta_rule(*spoilt, real=real, chunk=8)
    alone, behind = by_steps(*(one[:, :, real[1]] for one in tensors))
    assert_close(found[1:, :, real[1]], alone[1:], 1e-11)
    assert_close(state[1:], behind[1:], 1e-11)


def test_a_gate_that_is_shut_parts_two_texts():
    tensors, ids = draw(41), torch.tensor([[0] * 13 + [1] * 24 + [2] * 4, [0] * 1 + [1] * 2 + [2] * 38])
    decay = tensors[3].masked_fill(restarts(ids)[:, None, :, None], -torch.inf).requires_grad_()
    found = gated_delta_rule(*tensors[:3], decay, tensors[4], chunk=8)[0]
    for row in range(2):
        for document in range(3):
            at = ids[row] == document
            assert_close(found[row, :, at], by_steps(*(one[:, :, at] for one in tensors))[0][row], 1e-11)
    assert torch.autograd.grad(found.sum(), decay)[0].isfinite().all()


@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_bfloat16_gives_finite_numbers_and_gradients_and_a_state_in_float32(size):
    tensors = [size * one.bfloat16() for one in draw(130)[:3]] + [one.bfloat16() for one in draw(130)[3:]]
    leaves = [one.requires_grad_() for one in tensors]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = gated_delta_rule(*leaves)
    assert (out.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert all(one.isfinite().all() for one in (out, *torch.autograd.grad(out.float().sum(), leaves)))


# The layer

SHAPES = {"convolution": GatedDeltaNetShape(convolution=3), "none": GatedDeltaNetShape(convolution=0)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def built(shape, kv_heads: int = 3):
    torch.manual_seed(3)
    return shape.build(Slot(15, 3, kv_heads, 5, causal=True, site=Site("decoder", 1, "self"))).double().eval()


@every_shape
def test_the_layer_is_the_papers_sentence(shape):
    layer = built(shape)
    inputs = torch.randn(2, 23, 15, dtype=torch.float64)
    parts = [one(inputs) for one in (layer.query, layer.key, layer.value)]
    if layer.mixing is not None:
        both = torch.cat(parts, dim=2)
        kernel = layer.mixing.T.flip(1)[:, None]
        parts = F.conv1d(F.pad(both.mT, (2, 0)), kernel, groups=45).mT.split(15, dim=2)
    heads = [F.silu(one).view(2, 23, 3, 5).transpose(1, 2) for one in parts]
    decay = -layer.fading.exp() * F.softplus(layer.decay(inputs) + layer.offset)
    rate = torch.sigmoid(layer.rate(inputs))
    read = by_steps(*heads, decay.mT[..., None], rate.mT[..., None])[0]
    read = read / (read.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    gates = F.silu(layer.output_gate(inputs))
    expected = layer.output(read.transpose(1, 2).flatten(2) * gates)
    assert_close(layer(inputs, None, LayerContext(Causal()))[0], expected, 1e-6)  # gates are float32


@every_shape
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_the_dense_map_times_the_values_is_what_the_heads_read(shape, kv_heads):
    layer, context = built(shape, kv_heads), LayerContext(Causal() & Padding(torch.tensor([29, 11, 1])))
    inputs = torch.randn(3, 29, 15, dtype=torch.float64)
    weights = layer.dense_map(inputs, context)
    values = layer.mixed(inputs, layer.told(inputs, 29, context), None, None)[1].values
    read = layer.finish(inputs, weights @ values.repeat_interleave(3 // kv_heads, dim=1))
    assert_close(read, layer(inputs, None, context)[0], 1e-9)
    assert (weights.triu(1) == 0).all()
    assert (weights[2, :, :, 1:] == 0).all()


@every_shape
@settings(max_examples=10)
@given(
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=9), before=st.tuples(st.integers(0, 6), st.integers(0, 6))
)
def test_reading_piece_by_piece_equals_reading_at_once(shape, pieces, before):
    layer = built(shape)
    pieces = [max(before) + 1, *pieces]
    total = sum(pieces)
    inputs, lengths = torch.randn(2, total, 15, dtype=torch.float64), torch.tensor([total - one for one in before])
    whole, _ = layer(inputs, None, LayerContext(Causal() & Padding(lengths, "left")))
    state, past, order = None, 0, torch.tensor([0, 1])
    for piece in pieces:
        here = past + piece
        real = Padding(here - torch.tensor(before)[order], "left")
        context = LayerContext(Causal() & real if piece > 1 else real, past=past)
        found, state = layer(inputs[order, past:here], state, context)
        for row, sequence in enumerate(order.tolist()):
            begin = max(before[sequence] - past, 0)
            assert_close(found[row, begin:], whole[sequence, past:here][begin:], 1e-6)
        state, order, past = state.select(torch.tensor([1, 0])), order.flip(0), here
    with pytest.raises(InputError, match="cannot go back to the first 1"):
        state.trim(1)


@every_shape
def test_packed_texts_are_read_as_if_each_stood_alone(shape):
    layer, ids = built(shape), torch.tensor([[0] * 9 + [1] * 1 + [2] * 21])
    inputs = torch.randn(1, 31, 15, dtype=torch.float64)
    together, _ = layer(inputs, None, LayerContext(Causal() & Document(ids)))
    for document in range(3):
        at = ids[0] == document
        assert_close(together[:, at], layer(inputs[:, at], None, LayerContext(Causal()))[0], 1e-6)

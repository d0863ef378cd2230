"""Linformer and Nyström attention: exact where they can be, Nyströmformer as `transformers` has it, padding, sizes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recurrences import real_tokens
from torch import nn

from regard.attention.core import attend
from regard.attention.efficient.linformer import linformer_attention
from regard.attention.efficient.nystrom import convolved, nystrom_attention, pseudo_inverse
from regard.errors import InputError
from rounding import assert_close

BATCH, HEADS, WIDTH = 2, 3, 5


def draw(tokens: int, dtype=torch.float64, kv_heads: int = HEADS):
    query = torch.randn(BATCH, HEADS, tokens, WIDTH, dtype=dtype)
    key, value = (torch.randn(BATCH, kv_heads, tokens, width, dtype=dtype) for width in (WIDTH, 7))
    return [query, key, value]


def differentiated(compute, tensors):
    leaves = [one.detach().clone().requires_grad_() for one in tensors]
    out = compute(*leaves)
    towards = torch.cos(torch.arange(out.numel())).view(out.shape).to(out)
    return [out, *torch.autograd.grad((out * towards).sum(), leaves)]


@pytest.mark.parametrize("tokens", [1, 2, 13])
@pytest.mark.parametrize("kv_heads", [1, HEADS])
def test_linformer_with_the_identity_is_exact_attention(tokens, kv_heads):
    identity = torch.eye(tokens, dtype=torch.float64)[None]
    tensors = draw(tokens, kv_heads=kv_heads)
    found = differentiated(lambda *at: linformer_attention(*at, identity, identity), tensors)
    for one, other in zip(found, differentiated(attend, tensors), strict=True):
        assert_close(one, other, 1e-12)


@pytest.mark.parametrize("shared", [1, HEADS])
def test_linformer_is_the_formula_of_the_paper(shared):
    query, key, value = draw(11)
    first, second = (torch.randn(shared, 17, 4, dtype=torch.float64) for _ in range(2))
    found = linformer_attention(query, key, value, first, second)
    for head in range(HEADS):
        first_rows, second_rows = (one[head % shared, :11].T for one in (first, second))
        scores = query[:, head] @ (first_rows @ key[:, head]).mT / WIDTH**0.5
        assert_close(found[:, head], scores.softmax(dim=-1) @ (second_rows @ value[:, head]), 1e-12)


def linformer(query, key, value, real=None):
    draws = torch.Generator().manual_seed(3)
    first, second = (torch.randn(HEADS, 64, 4, generator=draws).to(query) for _ in range(2))
    return linformer_attention(query, key, value, first, second, real=real)


def nystrom(query, key, value, real=None, iterations=6):
    return nystrom_attention(query, key, value, landmarks=6, real=real, iterations=iterations)


METHODS = {"linformer": linformer, "nystrom": nystrom, "pinv": lambda *at: nystrom(*at, iterations=None)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("length", [1, 4, 6, 23])
def test_padding_never_changes_a_real_token(method, side, length):
    tensors = draw(37)
    real = real_tokens([37, length], 37, side)
    spoilt = [torch.where(real[:, None, :, None], one, 50.0 * one) for one in tensors]
    found = METHODS[method](*spoilt, real)
    assert_close(found[1:, :, real[1]], METHODS[method](*(one[1:, :, real[1]] for one in tensors)), 1e-8)
    assert_close(found[:1], METHODS[method](*(one[:1] for one in tensors)), 1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_a_text_of_nothing_but_padding_spoils_neither_its_neighbours_nor_the_gradient(method):
    tensors, real = draw(9), torch.tensor([[True] * 9, [False] * 9])
    for one in differentiated(lambda *at: METHODS[method](*at, real), tensors):
        assert one.isfinite().all()
    assert_close(METHODS[method](*tensors, real)[:1], METHODS[method](*(one[:1] for one in tensors)), 1e-10)


@given(tokens=st.integers(1, 19), more=st.integers(0, 3), kv_heads=st.sampled_from([1, HEADS]))
def test_nystrom_with_every_token_a_landmark_and_the_true_pseudo_inverse_is_exact_attention(tokens, more, kv_heads):
    torch.manual_seed(tokens)
    tensors = draw(tokens, kv_heads=kv_heads)
    found = nystrom_attention(*tensors, landmarks=tokens + more, iterations=None)
    assert_close(found, attend(*tensors), 1e-9)


def test_its_gradient_is_exact_attention_s_too():
    tensors = draw(7)
    found = differentiated(lambda *at: nystrom_attention(*at, landmarks=7, iterations=None), tensors)
    for one, other in zip(found, differentiated(attend, tensors), strict=True):
        assert_close(one, other, 1e-7)


def test_six_iterations_come_near_the_true_pseudo_inverse_and_more_come_nearer():
    tensors = draw(13)
    exact = attend(*tensors)
    errors = [
        float((nystrom_attention(*tensors, landmarks=13, iterations=count) - exact).norm() / exact.norm())
        for count in (0, 3, 6, 12, 24)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.2
    assert errors[-1] < 1e-4


def test_the_iteration_converges_to_the_inverse():
    matrix = (3 * torch.eye(7, dtype=torch.float64) + torch.randn(2, 3, 7, 7, dtype=torch.float64)).softmax(dim=-1)
    assert_close(pseudo_inverse(matrix, 40), torch.linalg.inv(matrix), 1e-8)
    assert_close(pseudo_inverse(matrix, None), torch.linalg.inv(matrix), 1e-8)


@pytest.mark.parametrize("tokens", [12, 24])
def test_nystrom_equals_transformers_nystromformer(tokens):
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    config = NystromformerConfig(
        hidden_size=12,
        num_attention_heads=3,
        num_landmarks=6,
        segment_means_seq_len=tokens,
        conv_kernel_size=5,
        attention_probs_dropout_prob=0.0,
    )
    peer = NystromformerSelfAttention(config).eval()
    peer.init_option = "exact"  # a start for each head of its own; its config cannot say so
    inputs = torch.randn(2, tokens, 12)
    query, key, value = (
        layer(inputs).view(2, tokens, 3, 4).transpose(1, 2) for layer in (peer.query, peer.key, peer.value)
    )
    actual = nystrom_attention(query, key, value, landmarks=6) + convolved(value, peer.conv.weight)
    assert_close(actual.transpose(1, 2).flatten(2), peer(inputs)[0])


def test_the_convolution_mixes_neighbours_head_by_head():
    value, kernel = draw(9)[2], torch.randn(HEADS, 1, 3, 1, dtype=torch.float64)
    found = convolved(value, kernel)
    for head in range(HEADS):
        own = nn.functional.pad(value[:, head], (0, 0, 1, 1))
        assert_close(found[:, head], sum(kernel[head, 0, at, 0] * own[:, at : at + 9] for at in range(3)), 1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_bfloat16_gives_finite_numbers_and_gradients(method, size):
    tensors = [size * one.bfloat16() for one in draw(50)]
    for one in differentiated(METHODS[method], tensors):
        assert one.dtype == torch.bfloat16
        assert one.isfinite().all()


def test_a_text_longer_than_the_projections_is_refused_by_linformer():
    with pytest.raises(InputError, match="65 tokens are more than the 64"):
        linformer(*draw(65))


def test_nystrom_refuses_two_texts_and_no_landmarks():
    query, key, value = draw(5)
    with pytest.raises(InputError, match="4 queries and 5 keys are not of one text"):
        nystrom(query[:, :, :4], key, value)
    with pytest.raises(InputError, match="0 landmarks show nothing"):
        nystrom_attention(query, key, value, landmarks=0)

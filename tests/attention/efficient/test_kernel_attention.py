"""Linear attention and Performer against the n×n matrices they never make, and Performer against softmax attention."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrences import as_mean, real_tokens

from regard.attention.core import attend
from regard.attention.efficient.linear import linear_attention, linear_scan
from regard.attention.efficient.performer import orthogonal_features, performer_attention, performer_scan
from regard.attention.mask import Causal
from rounding import assert_close

BATCH, HEADS, WIDTH = 2, 3, 4
OMEGA = orthogonal_features(11, WIDTH, seed=5)


def draw(tokens: int, dtype=torch.float64, kv_heads: int = HEADS, size: float = 1.0):
    query = size * torch.randn(BATCH, HEADS, tokens, WIDTH, dtype=dtype)
    key = size * torch.randn(BATCH, kv_heads, tokens, WIDTH, dtype=dtype)
    return [query, key, torch.randn(BATCH, kv_heads, tokens, 7, dtype=dtype)]


def spread(shared):
    return shared.repeat_interleave(HEADS // shared.shape[1], dim=1)


def elu_matrix(query, key, value, causal, real=None):
    """The n×n form as the paper writes it."""
    features = [torch.nn.functional.elu(one) + 1 for one in (query, spread(key))]
    return as_mean(features[0] @ features[1].mT, spread(value), causal, real)


def favor_matrix(query, key, value, causal, real=None):
    """The mean over ω of `exp(ω·q − |q|²/2) · exp(ω·k − |k|²/2)`, for every pair."""
    query, key = (one / WIDTH**0.25 for one in (query, spread(key)))
    weights = 0.0
    for omega in OMEGA.to(query.dtype):
        first, second = (torch.exp(one @ omega - one.square().sum(-1) / 2) for one in (query, key))
        weights = weights + first[..., :, None] * second[..., None, :] / len(OMEGA)
    return as_mean(weights, spread(value), causal, real)


def performer(*tensors, causal=False, real=None):
    return performer_attention(*tensors, OMEGA, causal=causal, real=real)


METHODS = {"linear": (linear_attention, elu_matrix), "performer": (performer, favor_matrix)}


def differentiated(compute, tensors, at=None):
    leaves = [one.detach().clone().requires_grad_() for one in tensors]
    out = compute(*leaves)
    out = out if at is None else out * at[:, None, :, None]
    towards = torch.cos(torch.arange(out.numel())).view(out.shape).to(out)
    return [out, *torch.autograd.grad((out * towards).sum(), leaves)]


@settings(max_examples=25)
@given(
    method=st.sampled_from(list(METHODS)),
    tokens=st.integers(1, 79),
    causal=st.booleans(),
    kv_heads=st.sampled_from([1, HEADS]),
    padding=st.sampled_from(["none", "right", "left"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_it_equals_the_matrix_it_never_makes_forward_and_backward(method, tokens, causal, kv_heads, padding, dtype):
    torch.manual_seed(tokens)
    actual, matrix = METHODS[method]
    tensors = draw(tokens, dtype, kv_heads)
    real = None if padding == "none" else real_tokens([tokens, 1 + tokens // 3], tokens, padding)
    found = differentiated(lambda *at: actual(*at, causal=causal, real=real), tensors, real)
    wide = [one.double() for one in tensors]
    exact = differentiated(lambda *at: matrix(*at, causal, real), wide, real)
    for one, other in zip(found, exact, strict=True):
        assert_close(one.double(), other, 1e-11 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("later", [1.0, 40.0])
def test_a_causal_one_never_sees_a_later_token(method, later):
    query, key, value = draw(90, torch.float32)
    out = METHODS[method][0](query, key, value, causal=True)
    key[:, :, 71:], value[:, :, 71:] = later * torch.randn(BATCH, HEADS, 19, WIDTH), later
    changed = METHODS[method][0](query, key, value, causal=True)
    assert torch.equal(changed[:, :, :64], out[:, :, :64])  # the chunks before
    assert_close(changed[:, :, :71], out[:, :, :71], 1e-6)
    assert not torch.allclose(changed[:, :, 71:], out[:, :, 71:])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_never_changes_a_real_token(method, causal, side):
    tensors = draw(37, torch.float32)
    real = real_tokens([37, 23], 37, side)
    spoilt = [torch.where(real[:, None, :, None], one, 50.0 * one) for one in tensors]
    found = METHODS[method][0](*spoilt, causal=causal, real=real)[1:, :, real[1]]
    alone = METHODS[method][0](*(one[1:, :, real[1]] for one in tensors), causal=causal)
    assert_close(found, alone, 1e-6)


@pytest.mark.parametrize("scan", [linear_scan, performer_scan])
def test_decoding_from_a_state_of_constant_size_equals_reading_at_once(scan):
    more = () if scan is linear_scan else (OMEGA,)
    tensors = draw(29, torch.float32, kv_heads=1)
    tensors[1][:, :, 20] *= 30  # a larger key than all before rescales what a Performer has summed
    whole = scan(*tensors, *more)[0]
    (first, state), read = scan(*(one[:, :, :17] for one in tensors), *more), []
    for token in range(17, 29):
        out, state = scan(*(one[:, :, token : token + 1] for one in tensors), *more, state=state)
        read.append(out)
    assert_close(torch.cat((first, *read), dim=2), whole)
    sums = state if scan is linear_scan else state.sums
    assert sums.shape == (BATCH, HEADS, 4 if scan is linear_scan else 11, 7 + 1)


@pytest.mark.parametrize("causal", [False, True])
def test_the_error_of_random_features_falls_as_one_over_the_root_of_their_number(causal):
    query, key, value = (size * torch.randn(2, 3, 31, 8, dtype=torch.float64) for size in (0.5, 0.5, 1.0))
    exact = attend(query, key, value, mask=Causal() if causal else None)
    counts = (64, 256, 1024, 4096)
    errors = []
    for count in counts:
        squares = []
        for seed in range(6):
            omega = orthogonal_features(count, 8, seed)
            squares.append((performer_attention(query, key, value, omega, causal=causal) - exact).square().mean())
        errors.append(math.sqrt(sum(squares) / len(squares)))
    steps = torch.tensor([math.log(one) for one in counts])
    logs = torch.tensor([math.log(one) for one in errors])
    slope = ((steps - steps.mean()) * (logs - logs.mean())).sum() / (steps - steps.mean()).square().sum()
    assert -0.6 < slope < -0.4
    assert errors[-1] < 0.05 * value.std()


def test_orthogonal_features_are_orthogonal_and_as_long_as_if_drawn_alone():
    width, blocks = 5, 4000
    features = orthogonal_features(blocks * width - 2, width, seed=3).double()
    block = features[: 7 * width].view(7, width, width)
    products = block @ block.mT
    assert_close(
        products - torch.diag_embed(products.diagonal(dim1=1, dim2=2)), torch.zeros(7, width, width).double(), 1e-5
    )
    assert features.shape == (blocks * width - 2, width)
    assert_close(features.T @ features / len(features), torch.eye(width, dtype=torch.float64), 0.05)
    assert_close(features.norm(dim=1).mean(), torch.tensor(2**0.5 * math.gamma(3) / math.gamma(2.5)).double(), 0.03)
    assert torch.equal(orthogonal_features(11, WIDTH, 5), OMEGA)
    assert not torch.equal(orthogonal_features(11, WIDTH, 6), OMEGA)


def test_orthogonal_features_estimate_better_than_independent_ones():
    query, key, value = (torch.randn(2, 4, 41, 16, dtype=torch.float64) for _ in range(3))
    exact, errors = attend(query, key, value), [0.0, 0.0]
    for seed in range(30):
        independent = torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))
        for at, omega in enumerate((orthogonal_features(16, 16, seed), independent)):
            errors[at] += float((performer_attention(query, key, value, omega) - exact).square().mean())
    assert errors[0] < errors[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_any_size_of_queries_and_keys_gives_finite_means_and_gradients(method, causal, dtype, size):
    tensors = draw(130, dtype, size=size)
    for one in differentiated(lambda *at: METHODS[method][0](*at, causal=causal), tensors):
        assert one.dtype == dtype
        assert one.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_in_bfloat16_it_is_off_by_no_more_than_the_rounding_of_its_inputs_and_output(method, causal):
    tensors = draw(500, torch.bfloat16)
    actual, matrix = METHODS[method]
    exact = matrix(*(one.double() for one in tensors), causal)
    assert_close(actual(*tensors, causal=causal).double(), exact, 2**-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(actual(*tensors, causal=causal).double(), exact, 2**-8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("causal", [False, True])
def test_rows_without_a_key_read_nothing(method, causal):
    tensors = draw(5, torch.float32)
    real = torch.tensor([[False] * 5, [True] * 5])
    for one in differentiated(lambda *at: METHODS[method][0](*at, causal=causal, real=real), tensors):
        assert one.isfinite().all()
    assert (METHODS[method][0](*tensors, causal=causal, real=real)[0] == 0).all()

"""Dropout drawn in blocks of bits: its rate, its expectation, its gradient, and what it draws from."""

import math

import pytest
import torch

from regard.layers.dropout import Dropout, drop

MANY = 300_007


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_others_divided_by_what_stays(rate, dtype):
    torch.manual_seed(0)
    out = drop(torch.ones(MANY, dtype=dtype), rate)
    factor = torch.tensor(2**16 / (2**16 - round(rate * 2**16)), dtype=dtype)
    assert set(out.unique().tolist()) == {0.0, factor.item()}
    dropped = float((out == 0).double().mean())
    assert abs(dropped - rate) < 5 * math.sqrt(rate * (1 - rate) / MANY)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    rate = 0.3
    gone = (drop(torch.ones(MANY), rate) == 0).double() - rate
    for distance in range(1, 9):
        together = float((gone[distance:] * gone[:-distance]).mean())
        assert abs(together) < 5 * rate * (1 - rate) / math.sqrt(MANY)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_gradient_goes_where_the_elements_stayed(dtype):
    torch.manual_seed(0)
    inputs = torch.randn(3, 7, 5, dtype=dtype, requires_grad=True)
    weights = torch.randn(3, 5, 7, dtype=dtype).transpose(1, 2)  # a gradient that is not contiguous
    out = drop(inputs, 0.4)
    out.backward(weights)
    stayed = out.detach() != 0
    factor = 2**16 / (2**16 - round(0.4 * 2**16))
    assert 0 < int(stayed.sum()) < inputs.numel()
    torch.testing.assert_close(out.detach(), torch.where(stayed, inputs.detach() * factor, 0.0))
    torch.testing.assert_close(inputs.grad, torch.where(stayed, weights * factor, 0.0))


def test_what_is_dropped_is_a_function_of_the_default_generator():
    inputs = torch.randn(11, 13)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = drop(inputs, 0.5), drop(inputs, 0.5)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(drop(inputs, 0.5), first)
    assert torch.equal(drop(inputs, 0.5), second)


def test_nothing_is_dropped_or_drawn_in_evaluation_or_at_rate_0():
    inputs = torch.randn(3, 5)
    state = torch.get_rng_state()
    assert torch.equal(Dropout(0.5).eval()(inputs), inputs)
    assert torch.equal(Dropout(0.0).train()(inputs), inputs)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_number_that_is_none_is_not_hidden_where_it_stays_and_is_zero_where_it_is_dropped():
    torch.manual_seed(0)
    out = drop(torch.full((1009,), torch.inf), 0.5)
    assert set(out.tolist()) == {0.0, torch.inf}

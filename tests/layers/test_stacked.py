"""Several maps as one product: what each gives is what it gives alone, and their weights stay theirs."""

import pytest
import torch

from regard.layers.linear import Linear, keep_int8
from regard.layers.stacked import StackedMaps


@pytest.mark.parametrize("bias", [True, False])
def test_each_gives_what_it_gives_alone_and_sees_what_is_changed(bias):
    torch.manual_seed(0)
    maps = [Linear(7, out, bias=bias).double() for out in (5, 3, 11)]
    inputs = torch.randn(2, 3, 7, dtype=torch.float64)
    before = [one(inputs) for one in maps]
    stack = StackedMaps.of(maps)
    for found, expected, one in zip(stack.times(inputs), before, maps, strict=True):
        torch.testing.assert_close(found, expected)
        assert torch.equal(one(inputs), expected)
    with torch.no_grad():
        maps[1].weight.mul_(3)
    torch.testing.assert_close(stack.times(inputs)[1], maps[1](inputs))
    assert StackedMaps.of(maps).weight.data_ptr() == stack.weight.data_ptr() == maps[0].weight.data_ptr()


def test_stacked_in_inference_they_can_still_be_trained():
    maps = [Linear(7, 5), Linear(7, 3)]
    with torch.inference_mode():
        assert StackedMaps.of(maps) is not None
    sum(one(torch.ones(1, 7)).sum() for one in maps).backward()
    assert all(one.weight.grad is not None for one in maps)
    stack = StackedMaps.of([one.double() for one in maps])  # moved apart, and together again
    assert stack.weight.dtype == torch.float64


def test_what_is_not_plain_is_not_stacked():
    rounded = Linear(7, 5)
    keep_int8(rounded)
    hooked = Linear(7, 5)
    hooked.register_forward_hook(lambda *_: None)
    for other in (rounded, hooked, Linear(7, 5, bias=False)):
        assert StackedMaps.of([Linear(7, 5), other]) is None

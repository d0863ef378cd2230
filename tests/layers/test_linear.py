"""Linear maps from packed weights: the same to rounding, never stale, and only where they may be used."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.embedding.tokens import TokenEmbedding
from regard.layers import linear as module
from regard.layers.linear import Layouts, Linear, linears


@pytest.fixture
def packings(monkeypatch) -> list[int]:
    """How often weights were laid out, one entry each time."""
    if not module._TYPES:
        pytest.skip("PyTorch's oneDNN operators are not here")
    seen: list[int] = []
    layout = torch.ops.mkldnn._reorder_linear_weight

    class Operators:
        _linear_pointwise = torch.ops.mkldnn._linear_pointwise

        @staticmethod
        def _reorder_linear_weight(weight: torch.Tensor) -> torch.Tensor:
            seen.append(weight.data_ptr())
            return layout(weight)

    monkeypatch.setattr(module.torch.ops, "mkldnn", Operators)
    return seen


def packed(linear: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), Layouts().used():
        return linear(inputs)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 44), (5, 44), (3, 7, 44)])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_packed_weights_give_the_same_to_rounding(packings, dtype, rounding, shape, bias):
    torch.manual_seed(0)
    linear, inputs = Linear(44, 53, bias=bias).to(dtype), torch.randn(shape).to(dtype)
    found = packed(linear, inputs)
    expected = F.linear(inputs.double(), linear.weight.double(), linear.bias.double() if bias else None)
    assert (found.double() - expected).abs().max() <= rounding * expected.abs().max()
    assert found.dtype == dtype
    assert len(packings) == (dtype in module._TYPES)  # not every processor has bfloat16


def test_the_embedding_table_read_backwards_is_packed_too(packings):
    table, hidden = TokenEmbedding(11, 6), torch.randn(2, 3, 6)
    with torch.no_grad(), Layouts().used():
        found = table.logits(hidden)
    torch.testing.assert_close(found, F.linear(hidden, table.weight.detach()))
    assert len(packings) == 1


def stepped(linear: Linear) -> None:
    linear(torch.ones(3, 6)).sum().backward()
    torch.optim.AdamW(linear.parameters(), lr=0.1, fused=True).step()


def replaced(linear: Linear) -> None:
    linear.weight.data = torch.randn(7, 6)


def renewed(linear: Linear) -> None:
    linear.weight = nn.Parameter(torch.randn(7, 6))


def written(linear: Linear) -> None:
    linear.weight.data[2, 3] += 1


def in_place(linear: Linear) -> None:
    with torch.no_grad():
        linear.weight[2, 3] += 1


def turned(linear: Linear) -> None:
    linear.weight.data.copy_(linear.weight.data.flip(0))


def mirrored(linear: Linear) -> None:
    linear.weight.data.copy_(linear.weight.data.flip(1))


def loaded(linear: Linear) -> None:
    linear.load_state_dict(Linear(6, 7).state_dict())


@pytest.mark.parametrize(
    "change",
    [stepped, replaced, renewed, written, in_place, turned, mirrored, loaded],
    ids=lambda change: change.__name__,
)
def test_changed_weights_are_packed_anew(packings, change):
    linear, inputs = Linear(6, 7), torch.randn(2, 6)
    before = packed(linear, inputs)
    change(linear)
    after = packed(linear, inputs)
    torch.testing.assert_close(after, linear(inputs).detach())
    assert not torch.allclose(after, before)
    assert len(packings) == 2


def test_weights_that_stay_are_packed_once(packings):
    linear = Linear(6, 7)
    for _ in range(3):
        packed(linear, torch.randn(2, 6))
    assert len(packings) == 1


def with_gradients(linear: Linear) -> torch.Tensor:
    with Layouts().used():
        return linear(torch.ones(2, 6))


def outside(linear: Linear) -> torch.Tensor:
    with torch.no_grad():
        return linear(torch.ones(2, 6))


def under_autocast(linear: Linear) -> torch.Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), Layouts().used():
        return linear(torch.ones(2, 6))


def in_float64(linear: Linear) -> torch.Tensor:
    with torch.no_grad(), Layouts().used():
        return linear.double()(torch.ones(2, 6, dtype=torch.float64))


@pytest.mark.parametrize("call", [with_gradients, outside, under_autocast, in_float64], ids=lambda call: call.__name__)
def test_nothing_is_packed_elsewhere(packings, call):
    linear = Linear(6, 7)
    found = call(linear)
    expected = F.linear(torch.ones(2, 6, dtype=linear.weight.dtype), linear.weight, linear.bias)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0.02, atol=0.02)
    assert not packings


def test_where_the_operators_are_missing_the_plain_product_does_the_work(packings, monkeypatch):
    monkeypatch.setattr(module, "_TYPES", ())
    linear, inputs = Linear(6, 7), torch.randn(2, 6)
    assert torch.equal(packed(linear, inputs), linear(inputs))
    assert not packings


def test_weights_whose_bits_are_no_whole_numbers_are_left_alone(packings):
    linear, inputs = Linear(5, 7), torch.randn(2, 5)
    assert torch.equal(packed(linear, inputs), linear(inputs))
    assert not packings


def test_a_module_knows_nothing_of_its_packed_weights(packings):
    linear = Linear(6, 7)
    names, parts = set(linear.state_dict()), set(vars(linear))
    packed(linear, torch.randn(2, 6))
    assert set(linear.state_dict()) == names == {"weight", "bias"}
    assert set(vars(linear)) == parts


def test_packed_weights_are_forgotten_with_the_weights(packings):
    linear = Linear(6, 7)
    packed(linear, torch.randn(2, 6))
    kept = len(module._kept)
    del linear
    assert len(module._kept) == kept - 1


class Doubled(Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(inputs)


def hooked() -> Linear:
    one = Linear(6, 7)
    one.register_forward_hook(lambda module, given, out: 3 * out)
    return one


@pytest.mark.parametrize(
    "make",
    [hooked, lambda: Doubled(6, 7), lambda: nn.Sequential(Linear(6, 7), nn.Tanh()), lambda: Linear(6, 7, bias=False)],
    ids=["a hook", "a subclass", "another module", "no bias beside one"],
)
@torch.no_grad()
def test_maps_read_together_do_what_each_does_alone(make):
    maps, inputs = (Linear(6, 5), make()), torch.randn(2, 6)
    with Layouts().used():
        together = linears(inputs, maps)
    for found, one in zip(together, maps, strict=True):
        torch.testing.assert_close(found, one(inputs))


@torch.no_grad()
def test_maps_read_together_are_packed_as_one(packings):
    maps, inputs = (Linear(6, 5), Linear(6, 7), Linear(6, 3)), torch.randn(2, 6)
    with Layouts().used():
        together = linears(inputs, maps)
    assert len(packings) == 1
    for found, one in zip(together, maps, strict=True):
        torch.testing.assert_close(found, one(inputs))


def test_a_weight_in_the_middle_of_a_buffer_is_left_alone(packings):
    linear, inputs = Linear(6, 7), torch.randn(2, 6)
    linear.weight = nn.Parameter(torch.randn(43)[1:].view(7, 6))
    assert torch.equal(packed(linear, inputs), linear(inputs))
    assert not packings


def test_weights_computed_at_every_call_are_not_kept(packings):
    linear, layouts = nn.utils.parametrizations.weight_norm(Linear(6, 7)), Layouts()
    with torch.no_grad(), layouts.used():
        for _ in range(3):
            linear(torch.randn(2, 6))
    assert not layouts.found
    assert not packings


def test_a_gradient_asked_for_after_decoding_reaches_the_weights(packings):
    linear, layouts = Linear(6, 7), Layouts()
    with layouts.used():
        with torch.no_grad():
            linear(torch.ones(2, 6))
        linear(torch.ones(2, 6)).sum().backward()
    assert linear.weight.grad is not None

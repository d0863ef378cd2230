"""Linear maps of a loaded model: the same to rounding from packed weights, held once, and exact when asked for."""

import copy
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.embedding.tokens import TokenEmbedding
from regard.layers import private_ops
from regard.layers.linear import Linear, PackedParameters, file_pages, give_back_pages, keep_packed, parameter_count

TYPES = private_ops._types()
needs_packing = pytest.mark.skipif(torch.float32 not in TYPES, reason="PyTorch's oneDNN operators are not here")


def held(module: nn.Module) -> PackedParameters:
    return module.__dict__["_parameters"]


@torch.no_grad()
def used(module: nn.Module) -> nn.Module:
    """As it is after its first product."""
    keep_packed(module)
    module(torch.ones(2, module.in_features, dtype=module.bias.dtype))
    assert held(module).layout
    assert dict.__getitem__(held(module), "weight") is None
    return module


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 43), (5, 43), (3, 7, 43)])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_packed_weights_give_the_same_to_rounding(dtype, rounding, shape, bias):
    if dtype not in TYPES:
        pytest.skip(f"{dtype} cannot be packed here")
    torch.manual_seed(0)
    linear, inputs = Linear(43, 53, bias=bias).to(dtype), torch.randn(shape).to(dtype)
    expected = F.linear(inputs.double(), linear.weight.double(), linear.bias.double() if bias else None)
    keep_packed(linear)
    with torch.no_grad():
        found = linear(inputs)
    assert held(linear).layout
    assert (found.double() - expected).abs().max() <= rounding * expected.abs().max()
    assert found.dtype == dtype


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
def test_a_large_weight_is_packed_some_rows_at_a_time(monkeypatch, bias):
    monkeypatch.setattr("regard.layers.linear.PART", 3 * 43)
    linear, inputs = Linear(43, 53, bias=bias), torch.randn(2, 5, 43)
    weight, expected = linear.weight.detach().clone(), linear(inputs).detach()
    keep_packed(linear)
    with torch.no_grad():
        torch.testing.assert_close(linear(inputs), expected)
    assert len(held(linear).layout) == 18
    assert torch.equal(linear.weight, weight)


@needs_packing
def test_the_plain_weight_is_let_go():
    linear = Linear(6, 7)
    there = weakref.ref(linear.weight)
    used(linear)
    assert there() is None


@needs_packing
def test_numbers_are_counted_where_they_are():
    module = nn.Sequential(used(Linear(6, 7)), nn.LayerNorm(7), TokenEmbedding(11, 3))
    keep_packed(module)
    with torch.no_grad():
        module[2].logits(torch.ones(1, 1, 3))
    assert parameter_count(module) == 6 * 7 + 7 + 7 + 7 + 11 * 3
    assert held(module[0]).layout
    assert held(module[2]).layout


@needs_packing
def test_a_table_that_is_looked_up_stays_beside_its_layout():
    table, hidden = TokenEmbedding(11, 6), torch.randn(2, 3, 6)
    weight = table.weight.detach().clone()
    keep_packed(table)
    with torch.no_grad():
        torch.testing.assert_close(table.logits(hidden), F.linear(hidden, weight))
        assert held(table).layout
        assert torch.equal(table(torch.tensor([[3, 5]])), weight[[3, 5]][None] * table.factor)
    assert held(table).layout
    assert torch.equal(table.weight, weight)
    assert not held(table).layout


ASKED = {
    "weight": lambda linear: linear.weight,
    "parameters": lambda linear: next(iter(linear.parameters())),
    "named": lambda linear: dict(linear.named_parameters())["weight"],
    "state_dict": lambda linear: linear.state_dict()["weight"],
    "get_parameter": lambda linear: linear.get_parameter("weight"),
    "copy": lambda linear: copy.deepcopy(linear).weight,
    "pickle": lambda linear: pickle.loads(pickle.dumps(linear)).weight,
    "a dictionary": lambda linear: dict(linear._parameters)["weight"],
    "items": lambda linear: dict(linear._parameters.items())["weight"],
    "get": lambda linear: linear._parameters.get("weight"),
    "copied": lambda linear: linear._parameters.copy()["weight"],
    "popped": lambda linear: linear._parameters.pop("weight"),
    "listed": lambda linear: next(linear._parameters[name] for name in linear._parameters),
    "values": lambda linear: next(iter(linear._parameters.values())),
    "to": lambda linear: linear.to(torch.float64).weight,
}


@needs_packing
@pytest.mark.parametrize("way", ASKED)
def test_whoever_asks_for_a_weight_gets_it_bit_for_bit(way):
    linear = Linear(5, 7)
    weight = linear.weight.detach().clone()
    found = ASKED[way](used(linear))
    assert torch.equal(found.detach().float(), weight)


def stepped(linear: Linear) -> None:
    optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, fused=True)
    linear(torch.ones(3, 6)).sum().backward()
    optimizer.step()


def replaced(linear: Linear) -> None:
    linear.weight.data = torch.randn(7, 6)


def renewed(linear: Linear) -> None:
    linear.weight = nn.Parameter(torch.randn(7, 6))


def written(linear: Linear) -> None:
    linear.weight.data[2, 3] += 1


def mirrored(linear: Linear) -> None:
    linear.state_dict()["weight"].copy_(linear.weight.detach().flip(1))


def loaded(linear: Linear) -> None:
    linear.load_state_dict(Linear(6, 7).state_dict())


def assigned(linear: Linear) -> None:
    linear.load_state_dict(Linear(6, 7).state_dict(), assign=True)


def normed(linear: Linear) -> None:
    nn.utils.parametrizations.weight_norm(linear).parametrizations.weight.original0.data.mul_(2)


CHANGES = [stepped, replaced, renewed, written, mirrored, loaded, assigned, normed]


@needs_packing
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_weights_are_the_ones_that_are_used(change):
    linear, inputs = used(Linear(6, 7)), torch.randn(2, 6)
    with torch.no_grad():
        before = linear(inputs)
        change_with = torch.enable_grad()(change)
        change_with(linear)
        after = linear(inputs)
    torch.testing.assert_close(after, F.linear(inputs, linear.weight.detach(), linear.bias.detach()))
    assert not torch.allclose(after, before)


@needs_packing
@torch.no_grad()
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_does_what_it_is_a_copy_of(copied):
    linear, inputs = used(Linear(43, 53)), torch.randn(2, 43)
    torch.testing.assert_close(copied(linear)(inputs), linear(inputs))
    table, ids = TokenEmbedding(11, 7), torch.tensor([[3, 5, 2]])
    keep_packed(table)
    torch.testing.assert_close(copied(table)(ids), table(ids))


@needs_packing
def test_a_weight_that_was_asked_for_may_change_at_any_time():
    linear, inputs = used(Linear(6, 7)), torch.randn(2, 6)
    weight = linear.weight
    with torch.no_grad():
        linear(inputs)
        weight.data[2, 3] += 1
        assert torch.equal(linear(inputs), F.linear(inputs, weight, linear.bias))


@needs_packing
def test_a_gradient_reaches_the_weight_and_an_optimizer_made_before_moves_it():
    linear = Linear(6, 7)
    keep_packed(linear)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    used(Linear(6, 7))
    with torch.no_grad():
        before = linear(torch.ones(1, 6))
    linear(torch.ones(1, 6)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(linear(torch.ones(1, 6)), before - 0.7)


def with_gradients(linear: Linear) -> torch.Tensor:
    return linear(torch.ones(2, 6))


def under_autocast(linear: Linear) -> torch.Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return linear(torch.ones(2, 6))


def in_float64(linear: Linear) -> torch.Tensor:
    with torch.no_grad():
        return linear.double()(torch.ones(2, 6, dtype=torch.float64))


@pytest.mark.parametrize("call", [with_gradients, under_autocast, in_float64], ids=lambda call: call.__name__)
def test_nothing_is_packed_elsewhere(call):
    linear = Linear(6, 7)
    keep_packed(linear)
    found = call(linear)
    assert not held(linear).layout
    expected = F.linear(torch.ones(2, 6, dtype=linear.weight.dtype), linear.weight, linear.bias)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0.02, atol=0.02)


def test_where_the_operators_are_missing_the_plain_product_does_the_work(monkeypatch):
    monkeypatch.setattr(private_ops, "_types", lambda: ())
    linear, inputs = Linear(6, 7), torch.randn(2, 6)
    expected = linear(inputs)
    keep_packed(linear)
    with torch.no_grad():
        assert torch.equal(linear(inputs), expected)
    assert not held(linear).layout


def test_pages_of_a_file_are_given_back_and_read_again(tmp_path):
    numbers = torch.arange(2**16, dtype=torch.int64)
    (tmp_path / "numbers").write_bytes(numbers.numpy().tobytes())
    mapped = torch.from_file(str(tmp_path / "numbers"), size=2**16, dtype=torch.int64)
    if not file_pages():
        pytest.skip("this system does not tell where files are mapped")
    assert any(mapped.data_ptr() in pages for pages in file_pages())
    assert not any(numbers.data_ptr() in pages for pages in file_pages())
    assert torch.equal(mapped, numbers)
    give_back_pages(mapped)
    assert torch.equal(mapped, numbers)


# The ways without


def test_every_private_operator_has_a_way_without_it(monkeypatch):
    torch.manual_seed(0)
    scores, change = torch.randn(3, 5, 7), torch.randn(3, 5, 7)
    for _ in range(2):
        weights = private_ops.softmax_(scores.clone())
        torch.testing.assert_close(weights, scores.softmax(dim=-1))
        wanted = scores.clone().requires_grad_()
        (expected,) = torch.autograd.grad((wanted.softmax(dim=-1) * change).sum(), wanted)
        torch.testing.assert_close(private_ops.softmax_gradient_(change.clone(), weights), expected)
        some = [torch.full((2,), 6.0), torch.full((3,), 9.0)]
        private_ops.divide_(some, 3)
        assert [one.tolist() for one in some] == [[2.0] * 2, [3.0] * 3]
        for name in ("_softmax", "_softmax_backward_data", "_foreach_div_"):
            monkeypatch.delattr(torch, name, raising=False)

"""Weights of 8 bits: how far they are from what was rounded, the same in any batch, and what is refused of them."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.embedding.tokens import TokenEmbedding
from regard.errors import InputError
from regard.layers import private_ops
from regard.layers.int8 import Int8Weight
from regard.layers.linear import Linear, in_int8, keep_int8, keep_packed, parameter_count
from regard.models.checkpoint import save_model
from regard.models.transformer import Transformer

ways = pytest.mark.parametrize("packs", [True, False], ids=["whole numbers", "plain product"])


@pytest.fixture
def way(packs: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    if packs and not private_ops.int8_packs():
        pytest.skip("PyTorch's int8 operators are not here")
    if not packs:
        monkeypatch.setattr(private_ops, "int8_packs", lambda: False)
    return packs


def test_a_weight_is_off_by_half_a_step_of_its_row_at_most():
    torch.manual_seed(0)
    weight = torch.randn(7, 43) * torch.tensor([[1e-6], [1e-3], [1.0], [30.0], [1e5], [0.0], [2.0]])
    held = Int8Weight(weight).settle()
    assert held.numbers.dtype == torch.int8
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((held.plain() - weight).abs() <= step * 0.5001).all()
    assert torch.equal(held.plain()[5], weight[5])


@ways
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(43,), (5, 43), (3, 7, 43), (0, 43)])
@torch.no_grad()
def test_the_product_is_off_by_the_rounding_and_no_more(way, dtype, shape, bias):
    torch.manual_seed(0)
    linear, inputs = Linear(43, 53, bias=bias).to(dtype), torch.randn(shape).to(dtype)
    weight, added = linear.weight.double(), linear.bias.double() if bias else None
    expected = F.linear(inputs.double(), weight, added)
    keep_int8(linear)
    found = linear(inputs)
    assert found.dtype == dtype
    assert found.shape == expected.shape
    weights_off = inputs.double().abs().sum(dim=-1, keepdim=True) * weight.abs().amax(dim=1) / 127 / 2
    largest = inputs.double().abs().amax(dim=-1, keepdim=True) if inputs.numel() else inputs.double()[..., :1]
    inputs_off = largest / 127 * linear.weight.double().abs().sum(dim=1) if way else 0.0
    rounding = 1e-5 if dtype == torch.float32 else 2e-2
    assert ((found.double() - expected).abs() <= weights_off + inputs_off + rounding * (1 + expected.abs())).all()


@pytest.mark.parametrize("packs", [True])
@torch.no_grad()
def test_a_row_is_the_same_bit_for_bit_in_any_batch(way):
    torch.manual_seed(1)
    linear, inputs = Linear(43, 53), torch.randn(11, 43) * torch.logspace(-3, 3, 11)[:, None]
    inputs[4] = 0.0
    keep_int8(linear)
    whole = linear(inputs)
    for row in range(11):
        assert torch.equal(linear(inputs[row : row + 1])[0], whole[row])
    assert torch.equal(whole[4], linear.bias)


@ways
def test_what_is_no_number_stays_none(way):
    linear = Linear(43, 5)
    keep_int8(linear)
    with torch.no_grad():
        assert linear(torch.full((1, 43), torch.nan)).isnan().all()
        assert not linear(torch.full((1, 43), torch.inf)).isfinite().any()


@ways
def test_gradients_reach_what_came_before(way):
    linear, inputs = Linear(6, 5), torch.randn(2, 6, requires_grad=True)
    keep_int8(linear)
    linear(inputs).sum().backward()
    torch.testing.assert_close(inputs.grad, linear.weight.sum(dim=0).expand(2, 6))


def test_the_plain_weight_is_let_go_but_where_it_is_looked_up():
    module = nn.Sequential(Linear(6, 7), TokenEmbedding(11, 3), Linear(1, 2))
    table, count = module[1].weight.detach().clone(), sum(one.numel() for one in module.parameters())
    keep_packed(module)
    keep_int8(module)
    assert [name for name, _ in module.named_parameters()] == ["0.bias", "1.weight", "2.bias"]
    assert parameter_count(module) == count
    with torch.no_grad():
        assert torch.equal(module[1](torch.tensor([[3]])), table[None, None, 3] * module[1].factor)
        off = (module[1].logits(torch.ones(1, 1, 3)) - table.sum(dim=1)).abs()
        assert 0 < off.max() < 0.05
        assert torch.isfinite(module[2](torch.ones(2, 1))).all()
    assert in_int8(module)


def test_it_is_moved_and_not_trained():
    module = nn.Sequential(Linear(6, 7), nn.Tanh())
    keep_int8(module)
    with torch.no_grad():
        before = module(torch.ones(2, 6))
        module.to("cpu", torch.bfloat16).to(torch.float32)
        torch.testing.assert_close(module(torch.ones(2, 6)), before, rtol=0.01, atol=0.01)
        assert module[0].weight.dtype == torch.float32
    module.eval()
    with pytest.raises(InputError, match="int8 cannot be trained"):
        module.train()


def test_it_is_not_saved(tmp_path: Path):
    config = regard.TransformerConfig(architecture="decoder", vocabulary=11, width=16, heads=2, layers=1)
    model = Transformer(config).eval()
    keep_int8(model)
    with pytest.raises(InputError, match="rounded to int8"):
        save_model(tmp_path / "saved", model)
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_a_whole_model_is_near_the_one_it_was(tied):
    torch.manual_seed(3)
    config = regard.TransformerConfig(
        architecture="decoder", vocabulary=61, width=48, heads=2, layers=3, tie_embeddings=tied
    )
    model = Transformer(config).eval()
    inputs = regard.Inputs(regard.Padded.of([[1, 5, 3, 17, 9], [2, 2, 60]]))
    expected = model(inputs)
    keep_int8(model)
    found = model(inputs)
    assert (found - expected).norm() < 0.05 * expected.norm()
    assert not torch.equal(found, expected)
    alone = model(regard.Inputs(regard.Padded.of([[2, 2, 60]])))[0]
    torch.testing.assert_close(alone, found[1, :3], rtol=1e-5, atol=0.02 * float(expected.abs().max()))


def test_a_table_that_is_looked_up_is_read_as_it_was():
    """And not made anew from its rounded numbers at every look."""
    torch.manual_seed(0)
    table = TokenEmbedding(53, 24)
    before = table.weight.detach().clone()
    keep_int8(table)
    ids = torch.tensor([[3, 52, 0]])
    assert torch.equal(table(ids), before[ids] * table.factor)
    assert table.weight.data_ptr() == table.plain_weight().data_ptr()

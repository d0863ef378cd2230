"""AdamW: which parameters decay, and one step against the algorithm written out (Loshchilov & Hutter 2017, alg. 2)."""

import pytest
import torch
from torch import nn

from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.training.optimizer_table import AdamWTable
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan


class Small(nn.Module):
    """A matrix, a bias, a norm's scale and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.linear = nn.Linear(3, 2)
        self.norm = nn.LayerNorm(2)
        self.frozen = nn.Parameter(torch.ones(7, 2), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(self.table(ids))).square().sum() + self.linear.weight.sin().sum()


def decay_of(module: nn.Module, weight_decay: float = 0.5) -> dict[str, float]:
    """By name, what each parameter's group decays by."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = adamw(module, TrainingPlan(weight_decay=weight_decay)).param_groups
    return {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}


def test_matrices_decay_and_biases_norms_and_tables_do_not():
    assert decay_of(Small()) == {
        "table.weight": 0.0,
        "linear.weight": 0.5,
        "linear.bias": 0.0,
        "norm.weight": 0.0,
        "norm.bias": 0.0,
    }


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["learned", "t5", "rotary"])
def test_of_a_transformer_every_parameter_is_in_one_group_and_linear_matrices_alone_decay(tied, positions):
    model = Transformer(
        TransformerConfig(vocabulary=11, width=6, heads=3, layers=1, tie_embeddings=tied, positions=positions)
    )
    decays = decay_of(model)
    assert set(decays) == {name for name, _ in model.named_parameters()}
    linear = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    linear |= set() if tied else {"output.weight"}
    tables = {name for name, parameter in model.named_parameters() if parameter.dim() >= 2} - linear
    assert {name for name, decay in decays.items() if decay} >= linear
    assert decays["embedding.weight"] == 0.0
    assert all(decays[name] == 0.0 for name in tables), tables


def test_steps_are_adamws_algorithm_written_out():
    plan = TrainingPlan(learning_rate=0.03, weight_decay=0.5, optimizer=AdamWTable(betas=(0.75, 0.875)))
    module = Small().double()
    optimizer = adamw(module, plan)
    decays = decay_of(module)
    expected = {name: one.detach().clone() for name, one in module.named_parameters()}
    first = {name: torch.zeros_like(one) for name, one in expected.items()}
    second = {name: torch.zeros_like(one) for name, one in expected.items()}
    for step, ids in enumerate(([0, 2], [1, 2, 3], [4]), start=1):
        optimizer.zero_grad(set_to_none=True)
        module(torch.tensor(ids)).backward()
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            first[name] = 0.75 * first[name] + 0.25 * parameter.grad
            second[name] = 0.875 * second[name] + 0.125 * parameter.grad**2
            mean, square = first[name] / (1 - 0.75**step), second[name] / (1 - 0.875**step)
            expected[name] = expected[name] - 0.03 * (decays[name] * expected[name] + mean / (square.sqrt() + 1e-9))
        optimizer.step()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-12, atol=1e-12)
    assert torch.equal(module.frozen, torch.ones(7, 2, dtype=torch.float64))

"""Which parameters learn and how fast: parts by name, rates by depth, and every optimizer's own step and resume."""

import pytest
import torch
from tiny_runs import Climber, assert_same_run, real
from torch import nn

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.network import read_shape
from regard.models.transformer import Transformer
from regard.training.groups import check_rates, depths, factors, freeze, groups
from regard.training.optimizer_table import OPTIMIZERS, read_optimizer
from regard.training.optimizers import CombinedOptimizer, optimizer_of
from regard.training.plan import TrainingPlan

MODEL = {"vocabulary": 11, "width": 6, "heads": 3, "layers": 3, "positions": "learned", "tie_embeddings": False}


def encoder() -> Transformer:
    return Transformer(TransformerConfig(architecture="encoder", **MODEL))


def learning(module: nn.Module) -> set[str]:
    return {name for name, one in module.named_parameters() if one.requires_grad}


@pytest.mark.parametrize(
    ("patterns", "begins"),
    [
        (["embedding"], ("embedding.",)),
        (["encoder.layers.0"], ("encoder.layers.0.",)),
        (["encoder.layers.0", "embedding"], ("encoder.layers.0.", "embedding.")),
        (["encoder.layers.[01]"], ("encoder.layers.0.", "encoder.layers.1.")),
        (["encoder_positions.absolute.weight"], ("encoder_positions.",)),
    ],
)
def test_what_is_frozen_is_what_the_patterns_name(patterns, begins):
    module = encoder()
    every = learning(module)
    freeze(module, patterns)
    assert every - learning(module) == {name for name in every if name.startswith(begins)}


def test_a_star_stands_for_anything():
    module = encoder()
    freeze(module, ["*.norm"])
    assert not any(".norm." in name for name in learning(module))
    assert any(".feedforward." in name for name in learning(module))


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (
            ["encoder.layer.0"],
            r"freeze: 'encoder.layer.0' names no part of this model; did you mean 'encoder.layers.0'\?",
        ),
        (["embedding", "decoder"], "'decoder' names no part of this model"),
        (["*"], r"freeze = \['\*'\] leaves nothing that learns"),
    ],
)
def test_what_names_nothing_or_everything_is_refused(patterns, said):
    with pytest.raises(ConfigError, match=said):
        freeze(encoder(), patterns)


def test_the_rate_decays_by_layers_below_the_head():
    found = factors(encoder(), TrainingPlan(layer_decay=0.5))
    expected = {"embedding": 4, "encoder_positions": 4, "encoder.layers.0": 3, "encoder.layers.2": 1, "output": 0}
    for begin, depth in expected.items():
        assert {rate for name, rate in found.items() if name.startswith(f"{begin}.")} == {0.5**depth}, begin


def test_both_stacks_have_depths_of_their_own():
    config = TransformerConfig(vocabulary=11, width=6, heads=3, layers=2, encoder_layers=3)
    found = depths(Transformer(config))
    assert found["encoder.layers.0.self_attention.query.weight"] == 3
    assert found["encoder.layers.2.self_attention.query.weight"] == 1
    assert found["decoder.layers.0.self_attention.query.weight"] == 2
    assert found["embedding.weight"] == 4


def test_the_first_pattern_that_names_a_part_says_its_rate():
    plan = TrainingPlan(rate_factors={"encoder.layers.1": 3.0, "encoder": 0.1, "output": 7.0}, layer_decay=0.5)
    found = factors(encoder(), plan)
    assert found["encoder.layers.1.feedforward.up.weight"] == 3.0 * 0.25
    assert found["encoder.layers.0.feedforward.up.weight"] == 0.1 * 0.125
    assert found["output.weight"] == 7.0
    assert found["embedding.weight"] == 0.5**4


def test_a_pattern_of_rates_that_names_nothing_that_learns_is_refused():
    module = encoder()
    freeze(module, ["embedding"])
    with pytest.raises(ConfigError, match=r"\[training\] rate_factors: 'embedding' names nothing that learns here"):
        check_rates(module, TrainingPlan(rate_factors={"embedding": 2.0}))
    freeze(module, ["encoder", "encoder_positions"])
    with pytest.raises(ConfigError, match=r"layer_decay = 0.5 has no effect where all that learns is at one depth"):
        check_rates(module, TrainingPlan(layer_decay=0.5))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_parameter_that_learns_is_in_one_group(name):
    module = encoder()
    freeze(module, ["encoder.layers.1"])
    plan = TrainingPlan(optimizer=name, layer_decay=0.9, weight_decay=0.3)
    names = {id(one): key for key, one in module.named_parameters()}
    listed = [names[id(one)] for group in optimizer_of(module, plan).param_groups for one in group["params"]]
    assert sorted(listed) == sorted(learning(module))
    for group in optimizer_of(module, plan).param_groups:
        assert {factors(module, plan)[names[id(one)]] for one in group["params"]} == {group["factor"]}


def test_a_step_is_as_long_as_its_part_is_told():
    """Signs are all that AdamW's first step knows of a gradient: it is as long as the rate."""
    module = encoder()
    before = {name: one.detach().clone() for name, one in module.named_parameters()}
    plan = TrainingPlan(learning_rate=0.01, weight_decay=0.0, rate_factors={"output": 10.0, "encoder.layers.0": 0.5})
    optimizer = optimizer_of(module, plan)
    for group in optimizer.param_groups:
        group["lr"] = plan.learning_rate * group["factor"]
    for one in module.parameters():
        one.grad = torch.full_like(one, 3.0)
    optimizer.step()
    for begin, length in {"output.": 0.1, "encoder.layers.0.": 0.005, "encoder.layers.1.": 0.01}.items():
        for name, one in module.named_parameters():
            if name.startswith(begin):
                torch.testing.assert_close(
                    (before[name] - one).detach(), torch.full_like(one, length), rtol=1e-4, atol=1e-6
                )


# Optimizers


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Jordan et al. 2024: five steps of their Newton–Schulz polynomial, in bfloat16 as they have it."""
    found = matrix.bfloat16()
    flat = found.shape[0] > found.shape[1]
    found = found.T if flat else found
    found = found / found.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = found @ found.T
        found = 3.4445 * found + (-4.7750 * gram + 2.0315 * gram @ gram) @ found
    return found.T if flat else found


def test_muon_steps_matrices_of_layers_orthogonally_and_the_rest_as_adamw():
    torch.manual_seed(5)
    module, twin = encoder(), encoder()
    twin.load_state_dict(module.state_dict())
    plan = TrainingPlan(optimizer={"name": "muon", "momentum": 0.9}, learning_rate=0.02, weight_decay=0.1)
    optimizer, other = (
        optimizer_of(module, plan),
        optimizer_of(twin, TrainingPlan(learning_rate=0.02, weight_decay=0.1)),
    )
    for one, two in zip(module.parameters(), twin.parameters(), strict=True):
        one.grad = torch.randn_like(one)
        two.grad = one.grad.clone()
    before = {name: one.detach().clone() for name, one in module.named_parameters()}
    gradients = {name: one.grad.clone() for name, one in module.named_parameters()}
    optimizer.step()
    other.step()
    adamw = dict(twin.named_parameters())
    seen = set()
    for name, one in module.named_parameters():
        inner = one.dim() == 2 and name.startswith("encoder.layers")
        if inner:
            momentum = 0.1 * gradients[name]  # Nesterov: the gradient moved towards its memory once more
            step = orthogonal(0.1 * gradients[name] + 0.9 * momentum).to(one.dtype)
            length = 0.02 * 0.2 * max(one.shape) ** 0.5  # Liu et al. 2025, eq. 4
            expected = before[name] * (1 - 0.02 * 0.1) - length * step
            torch.testing.assert_close(one.detach(), expected, rtol=0, atol=0.08 * length)
        else:
            assert torch.equal(one, adamw[name]), name
        seen.add(inner)
    assert seen == {True, False}


def test_sgd_steps_are_the_gradient_with_momentum():
    module = Climber()
    optimizer = optimizer_of(module, TrainingPlan(optimizer={"name": "sgd", "momentum": 0.5}, learning_rate=0.1))
    place, memory = 0.0, 0.0
    for gradient in (2.0, -1.0, 3.0):
        module.place.grad = torch.tensor(gradient)
        optimizer.step()
        memory = 0.5 * memory + gradient
        place -= 0.1 * memory
        assert float(module.place.detach()) == pytest.approx(place)


def test_adafactor_keeps_a_number_for_each_row_and_column_of_a_matrix():
    module = nn.Linear(7, 5)
    optimizer = optimizer_of(module, TrainingPlan(optimizer="adafactor"))
    for one in module.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    assert sum(one.numel() for one in optimizer.state[module.weight].values() if one.dim()) == 7 + 5


@pytest.mark.parametrize("optimizer", ["muon", "adafactor", {"name": "sgd"}, {"name": "sgd", "momentum": 0.0}])
def test_a_run_goes_on_bit_for_bit_whatever_steps_it(optimizer, tmp_path):
    rates = {"optimizer": optimizer, "learning_rate": 1e-2, "rate_factors": {"embedding": 0.5}, "freeze": ()}
    real(tmp_path / "whole", **rates).fit()
    real(tmp_path / "parts", **rates).fit(until=4)
    real(tmp_path / "parts", **rates).fit()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_several_optimizers_are_saved_as_one():
    one, two = nn.Linear(3, 2), nn.Linear(2, 5)
    both = CombinedOptimizer([torch.optim.SGD(one.parameters(), momentum=0.5), torch.optim.AdamW(two.parameters())])
    for parameter in (*one.parameters(), *two.parameters()):
        parameter.grad = torch.randn_like(parameter)
    both.step()
    state = both.state_dict()
    assert set(state["state"]) == {0, 1, 2, 3}
    again = CombinedOptimizer([torch.optim.SGD(one.parameters(), momentum=0.5), torch.optim.AdamW(two.parameters())])
    again.load_state_dict(state)
    found = again.state_dict()["state"]
    assert all(
        torch.equal(found[place][key], value) for place, own in state["state"].items() for key, value in own.items()
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("adam", r"optimizer 'adam' is unknown; did you mean 'adamw'\?"),
        ({"name": "sgd", "betas": [0.9, 0.9]}, "'betas' has no effect on 'sgd'; leave it out; it is for adamw, muon"),
        ({"momentum": 0.5}, "'momentum' has no effect on 'adamw'"),
        (3, "3 names no optimizer"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused(value, said):
    with pytest.raises(ConfigError, match=said):
        read_optimizer(value)


def test_depths_of_a_recurrent_network_are_of_its_layers():
    module = read_shape({"name": "seq2seq", "width": 5, "layers": 3}).built_for(11).build()
    found = depths(module)
    assert found["embedding.weight"] == max(found.values())
    assert len(set(found.values())) > 2
    assert {group["factor"] for group in groups(module, TrainingPlan())} == {1.0}

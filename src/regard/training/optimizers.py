"""Optimizers as PyTorch has them, from a plan: what learns in groups, each with its own decay and rate."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from regard.training.groups import groups, matrices_in_layers
from regard.training.optimizer_table import AdafactorTable, AdamWTable, MuonTable, SGDTable
from regard.training.plan import TrainingPlan

EPSILON = 1e-9


def optimizer_of(module: nn.Module, plan: TrainingPlan) -> Optimizer:
    """The plan's optimizer of what learns in a module."""
    makers: dict[str, Callable[[nn.Module, TrainingPlan], Optimizer]] = {
        "adamw": adamw,
        "muon": muon,
        "sgd": sgd,
        "adafactor": adafactor,
    }
    return makers[plan.optimizer.name](module, plan)


def adamw(module: nn.Module, plan: TrainingPlan) -> torch.optim.AdamW:
    """AdamW, fused."""
    return _adamw(groups(module, plan), plan)


def muon(module: nn.Module, plan: TrainingPlan) -> Optimizer:
    """Muon for the matrices in layers, AdamW for everything else."""
    momentum = plan.optimizer.momentum if isinstance(plan.optimizer, MuonTable) else MuonTable().momentum
    inner, parts = matrices_in_layers(module), groups(module, plan)
    matrices, others = _parted(parts, inner, inside=True), _parted(parts, inner, inside=False)
    found: list[Optimizer] = []
    if matrices:
        rate = plan.learning_rate
        own = torch.optim.Muon(matrices, lr=rate, momentum=momentum, adjust_lr_fn="match_rms_adamw")
        for group in matrices:
            for one in group["params"]:  # laid out as a state that is read again: a gradient's layout rounds otherwise
                own.state[one]["momentum_buffer"] = torch.zeros_like(one, memory_format=torch.contiguous_format)
        found.append(own)
    if others:
        found.append(_adamw(others, plan))
    return CombinedOptimizer(found)


def sgd(module: nn.Module, plan: TrainingPlan) -> torch.optim.SGD:
    """Stochastic gradient descent."""
    momentum = plan.optimizer.momentum if isinstance(plan.optimizer, SGDTable) else SGDTable().momentum
    return torch.optim.SGD(groups(module, plan), lr=plan.learning_rate, momentum=momentum)


def adafactor(module: nn.Module, plan: TrainingPlan) -> torch.optim.Adafactor:
    """Adafactor."""
    decay = plan.optimizer.beta2_decay if isinstance(plan.optimizer, AdafactorTable) else AdafactorTable().beta2_decay
    return torch.optim.Adafactor(groups(module, plan), lr=plan.learning_rate, beta2_decay=decay)


def _adamw(parts: list[dict[str, Any]], plan: TrainingPlan) -> torch.optim.AdamW:
    table = plan.optimizer if isinstance(plan.optimizer, AdamWTable | MuonTable) else AdamWTable()
    return torch.optim.AdamW(parts, lr=plan.learning_rate, betas=table.betas, eps=EPSILON, fused=True)


class CombinedOptimizer(Optimizer):
    """Optimizers of different parameters as one: their groups in a row, their memories numbered on."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self.optimizers = optimizers
        self.param_groups = self._groups()

    def _groups(self) -> list[dict[str, Any]]:
        return [group for one in self.optimizers for group in one.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self.optimizers:
            one.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self.optimizers:
            one.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """As one optimizer of all parameters has it."""
        state: dict[int, Any] = {}
        listed: list[dict[str, Any]] = []
        first = 0
        for one in self.optimizers:
            own = one.state_dict()
            state |= {first + number: value for number, value in own["state"].items()}
            listed += [
                group | {"params": [first + number for number in group["params"]]} for group in own["param_groups"]
            ]
            first += _count(one)
        return {"state": state, "param_groups": listed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        first = 0
        for one in self.optimizers:
            end = first + _count(one)
            own = {number - first: value for number, value in state_dict["state"].items() if first <= number < end}
            one.load_state_dict({"state": own, "param_groups": one.state_dict()["param_groups"]})
            first = end
        self.param_groups = self._groups()  # loading makes new ones


def _count(optimizer: Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


def _parted(parts: list[dict[str, Any]], inner: set[int], *, inside: bool) -> list[dict[str, Any]]:
    """The groups with those parameters alone that are, or are not, among some."""
    kept = [group | {"params": [one for one in group["params"] if (id(one) in inner) == inside]} for group in parts]
    return [group for group in kept if group["params"]]

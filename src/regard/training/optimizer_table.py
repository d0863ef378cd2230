"""The table [training.optimizer] of a recipe: a union, each member an optimizer with the options that are its own.

`training.optimizer = "muon"` is short for a table with that name. The rate and the decay of weights are in [training],
since every optimizer has them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from regard.config import Config, refuse_foreign_keys
from regard.errors import ConfigError, choose

Memory = Annotated[float, Field(ge=0, lt=1)]


class OptimizerTable(Config):
    """What all have: a name."""

    name: str = Field(description="the rule by which a gradient becomes a step")


class AdamWTable(OptimizerTable):
    """Loshchilov & Hutter 2017."""

    name: Literal["adamw"] = Field("adamw", description="Adam with decoupled weight decay")
    betas: tuple[Memory, Memory] = Field(
        (0.9, 0.98), description="decay rates of the running means of gradient and squared gradient"
    )


class MuonTable(OptimizerTable):
    """Jordan et al. 2024, with steps as large as AdamW's (Liu et al. 2025, §2.2)."""

    name: Literal["muon"] = Field("muon", description="orthogonal steps for matrices in layers, AdamW for the rest")
    momentum: float = Field(0.95, ge=0, lt=1, description="decay rate of the running sum of gradients, for matrices")
    betas: tuple[Memory, Memory] = Field((0.9, 0.98), description="AdamW's decay rates, for the rest")


class SGDTable(OptimizerTable):
    """Stochastic gradient descent (Robbins & Monro 1951), with momentum."""

    name: Literal["sgd"] = Field("sgd", description="the gradient itself, with momentum")
    momentum: float = Field(0.9, ge=0, lt=1, description="decay rate of the running sum of gradients; 0: none")


class AdafactorTable(OptimizerTable):
    """Shazeer & Stern 2018: of a matrix's squares, the sums of rows and columns alone are kept."""

    name: Literal["adafactor"] = Field("adafactor", description="mean squares by rows and columns: little memory")
    beta2_decay: float = Field(
        -0.8, lt=0, allow_inf_nan=False, description="decay rate of the running means at a step: 1 − step^this"
    )


OPTIMIZERS: Mapping[str, type[OptimizerTable]] = MappingProxyType(
    {"adamw": AdamWTable, "muon": MuonTable, "sgd": SGDTable, "adafactor": AdafactorTable}
)


def read_optimizer(value: Any) -> OptimizerTable:
    """The optimizer that a name, or a table with one, describes; AdamW where a table has none."""
    if isinstance(value, OptimizerTable):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{value!r} names no optimizer", f"give a name, or a table with one: {', '.join(OPTIMIZERS)}")
    name = str(value.get("name", "adamw"))
    if name not in OPTIMIZERS:
        raise ConfigError(f"optimizer {name!r} is unknown", choose(name, OPTIMIZERS))
    refuse_foreign_keys(value, name, OPTIMIZERS)
    return OPTIMIZERS[name].model_validate(dict(value))

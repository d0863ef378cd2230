"""Which parameters learn, and how fast each does: groups of an optimizer, by the parameters' names.

freeze        what these patterns name stays as it is
layer_decay   the rate d layers below the head is multiplied by decayᵈ; embeddings are below all layers (Clark et al.
              2020, ELECTRA, table 7)
rate_factors  the first pattern that names a parameter says what its rate is multiplied by

Weights decay in matrices of linear layers; not in biases, norms, and tables that are looked up.
"""

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from regard.embedding.positions import Learnt
from regard.embedding.tokens import TokenEmbedding
from regard.errors import ConfigError
from regard.models.patterns import inside, paths, unknown
from regard.training.plan import TrainingPlan

TABLES = (TokenEmbedding, Learnt, nn.Embedding)
LAYER = re.compile(r"(.+?)\.(?:layers\.)?(\d+)\.")
BELOW = re.compile(r"(embedding|\w+_positions|segments|embedding_norm)\.")
"""What stands before the first layer."""


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Let what the patterns name learn nothing; one that names nothing is refused, and so are all together."""
    names = [name for name, one in module.named_parameters() if one.requires_grad]
    for pattern in patterns:
        if not any(inside(name, pattern) for name in names):
            raise unknown("[training] freeze", pattern, "no part of this model", paths(names))
    for name, one in module.named_parameters():
        if any(inside(name, pattern) for pattern in patterns):
            one.requires_grad_(False)
    if names and not any(one.requires_grad for one in module.parameters()):
        raise ConfigError(f"[training] freeze = {list(patterns)} leaves nothing that learns", "freeze less")


def check_rates(module: nn.Module, plan: TrainingPlan) -> None:
    """Raise ConfigError for a rate factor of nothing that learns, and for a decay where there are no layers."""
    names = [name for name, one in module.named_parameters() if one.requires_grad]
    for pattern in plan.rate_factors:
        if not any(inside(name, pattern) for name in names):
            raise unknown("[training] rate_factors", pattern, "nothing that learns here", paths(names))
    if plan.layer_decay < 1 and len({depth for name, depth in depths(module).items() if name in names}) < 2:
        raise ConfigError(
            f"[training] layer_decay = {plan.layer_decay} has no effect where all that learns is at one depth",
            "leave it out",
        )


def depths(module: nn.Module) -> dict[str, int]:
    """How many layers below the head every parameter is: 0 for the head, 1 for the last layer of a stack."""
    names = [name for name, _ in module.named_parameters()]
    layers = {name: (found[1], int(found[2])) for name in names if (found := LAYER.match(name))}
    counts: dict[str, int] = {}
    for stack, index in layers.values():
        counts[stack] = max(counts.get(stack, 0), index + 1)
    lowest = max(counts.values(), default=0) + 1
    within = {name: counts[stack] - index for name, (stack, index) in layers.items()}
    return {name: within.get(name, lowest if BELOW.match(name) else 0) for name in names}


def factors(module: nn.Module, plan: TrainingPlan) -> dict[str, float]:
    """What the learning rate of every parameter is multiplied by."""
    found = {}
    for name, depth in depths(module).items():
        own = next((value for pattern, value in plan.rate_factors.items() if inside(name, pattern)), 1.0)
        found[name] = own * plan.layer_decay**depth
    return found


def groups(module: nn.Module, plan: TrainingPlan) -> list[dict[str, Any]]:
    """Parameters that learn, by decay and by rate, with what the rate is multiplied by as `factor`."""
    tables = {id(part.weight) for part in module.modules() if isinstance(part, TABLES)}
    rates = factors(module, plan)
    found: dict[tuple[float, bool], list[Tensor]] = {}
    named = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
    for decays in (True, False):  # as ever: those that decay first
        for name, one in named:
            if (one.dim() >= 2 and id(one) not in tables) == decays:
                found.setdefault((rates[name], decays), []).append(one)
    return [
        {"params": ones, "weight_decay": plan.weight_decay if decays else 0.0, "factor": rate}
        for (rate, decays), ones in found.items()
    ]


def matrices_in_layers(module: nn.Module) -> set[int]:
    """The ids of the parameters that are matrices of layers: neither tables nor an output over the vocabulary."""
    tables = {id(part.weight) for part in module.modules() if isinstance(part, TABLES)}
    return {
        id(one)
        for name, one in module.named_parameters()
        if one.dim() == 2 and id(one) not in tables and not name.startswith("output.")
    }


def told(module: nn.Module, plan: TrainingPlan) -> list[str]:
    """How much learns where not everything does, and between which rates where they differ."""
    named = dict(module.named_parameters())
    learning = {name for name, one in named.items() if one.requires_grad}
    total, count = (sum(named[name].numel() for name in names) for names in (named, learning))
    said = [] if count == total else [f"{count:,} of {total:,} parameters learn ({100 * count / total:.2g} %)"]
    own = [rate for name, rate in factors(module, plan).items() if name in learning]
    if any(rate != 1.0 for rate in own):
        least, most = (plan.learning_rate * rate for rate in (min(own), max(own)))
        said.append(f"learning rates from {least:.2g} to {most:.2g}, by the parts")
    return said

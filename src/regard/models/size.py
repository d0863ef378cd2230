"""What a model takes: parameters, memory to run and to train it, work for a token. Nothing is allocated.

Parameters are those of the model itself, built without memory (`torch.device("meta")`), each counted once: a tied
output has none of its own. The cache, the activations and the work are what the network says of itself
(`Network.estimates`); what it does not say is not guessed. The rest follows:

training     for each parameter itself, and for each that learns its gradient and AdamW's two moments, all in float32;
             in mixed precision the matrices once more in bfloat16, and activations in half the bytes; three times
             the work, since the backward pass multiplies twice

An estimate, where it is one, leaves out what is small or comes and goes: dropout's masks, buffers of the kernels.
"""

from dataclasses import dataclass

import torch
from torch import nn

from regard.layers.linear import MapModule
from regard.models.adapter_table import AdapterTable
from regard.models.estimates import Estimates
from regard.models.lora import attach, new_beside
from regard.models.network import NetworkConfig

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""


@dataclass(frozen=True)
class Work:
    """Floating-point operations for a token; for one of the source and one of the target together, where there are
    two texts, equally long."""

    forward: float

    @property
    def training(self) -> float:
        """Forward, and backward twice that."""
        return 3 * self.forward


@dataclass(frozen=True)
class Memory:
    """Bytes, where numbers are float32 and where they are bfloat16 or mixed."""

    float32: int
    bfloat16: int


@dataclass(frozen=True)
class Rounded:
    """Of a model in int8: the numbers of 8 bits, their rows, and how many numbers are then there in no other way."""

    numbers: int
    rows: int
    let_go: int


@dataclass(frozen=True)
class Size:
    """All of it, for texts of `context` tokens."""

    config: NetworkConfig
    context: int
    parts: dict[str, int]
    """How many numbers are learnt, by where they are."""
    matrices: int
    """Parameters that vectors are multiplied by: what mixed precision has a second copy of."""
    estimates: Estimates
    learnt: int
    """How many of its parameters learn: with an adapter, only those beside the base and a head that is new."""
    rounded: "Rounded"
    """What of them int8 rounds."""

    @property
    def parameters(self) -> int:
        """How many numbers are learnt."""
        return sum(self.parts.values())

    @property
    def work(self) -> Work:
        """To compute."""
        return Work(self.estimates.work)

    @property
    def weights(self) -> Memory:
        """To run: the parameters."""
        return _memory(self.parameters)

    @property
    def int8_weights(self) -> Memory:
        """To run in int8: a byte for each number of a map and a scale for each row, the rest as it was.

        A table that is looked up and multiplied by is there twice, once as it was.
        """
        rounded, kept = self.rounded, self.parameters - self.rounded.let_go
        own = rounded.numbers + FLOAT32 * rounded.rows
        return Memory(own + FLOAT32 * kept, own + BFLOAT16 * kept)

    @property
    def cache(self) -> Memory:
        """To write: what is kept of one token."""
        return _memory(self.estimates.cache)

    @property
    def whole_cache(self) -> Memory:
        """What is kept of a whole context, of the source and of the target where both are."""
        return _memory(self.estimates.cached_texts * self.context * self.estimates.cache)

    @property
    def trained_weights(self) -> Memory:
        """To train: the parameters, in mixed precision the matrices once more."""
        return Memory(self.weights.float32, self.weights.float32 + BFLOAT16 * self.matrices)

    @property
    def gradients(self) -> Memory:
        """To train: a number for each parameter that learns."""
        return Memory(FLOAT32 * self.learnt, FLOAT32 * self.learnt)

    @property
    def moments(self) -> Memory:
        """To train: AdamW's two numbers for each parameter that learns."""
        return Memory(2 * FLOAT32 * self.learnt, 2 * FLOAT32 * self.learnt)

    @property
    def state(self) -> Memory:
        """To train: all of these."""
        parts = self.trained_weights, self.gradients, self.moments
        return Memory(sum(one.float32 for one in parts), sum(one.bfloat16 for one in parts))

    @property
    def activations(self) -> Memory | None:
        """To train: what a token leaves for the backward pass, where the network says."""
        return None if self.estimates.kept is None else _memory(self.estimates.kept)


@dataclass(frozen=True)
class Beside:
    """Adapters beside a base: which, and what the base of this config is, whose head may be another."""

    table: AdapterTable
    base: NetworkConfig


def size_of(config: NetworkConfig, context: int | None = None, adapter: Beside | None = None) -> Size:
    """What the model of this config takes, for texts of `context` tokens; of those it is made for if absent."""
    context = config.made_for if context is None else context
    with torch.device("meta"):
        model = config.build()
        base = None if adapter is None else adapter.base.build()
    estimates = model.estimates(context)
    if adapter is not None and base is not None:
        attach(model, adapter.table, new_beside(model, base))
    parts, matrices = dict.fromkeys(model.parts, 0), estimates.tied
    for name, parameter in model.named_parameters():
        part = "adapters" if ".adapter." in name else model.part(name)
        parts[part] = parts.get(part, 0) + parameter.numel()
        looked_up = part == "embedding" or isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Embedding)
        matrices += parameter.numel() if parameter.dim() >= 2 and not looked_up else 0
    count = sum(one.numel() for one in model.parameters() if one.requires_grad)
    return Size(config, context, parts, matrices, estimates, count, _rounded(model, estimates.tied))


def _rounded(model: nn.Module, tied: int) -> Rounded:
    """`tied` are the numbers of a table that is looked up and multiplied by."""
    maps = [one for one in model.modules() if isinstance(one, MapModule) and one.weight is not None]
    let_go = sum(one.weight.numel() for one in maps if not one.looked_up)
    rows = sum(len(one.weight) for one in maps if tied or not one.looked_up)
    return Rounded(let_go + tied, rows, let_go)


def _memory(numbers: int) -> Memory:
    return Memory(FLOAT32 * numbers, BFLOAT16 * numbers)

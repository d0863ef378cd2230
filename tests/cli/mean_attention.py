"""A mechanism of somebody's own, as a file outside the package: every token reads the mean of the values up to itself.

regard train dates --plugin mean_attention.py --set model.architecture=decoder --set model.attention=mean
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import regard


@dataclass(frozen=True, eq=False)
class Sums(regard.AttentionState):
    """Of the values read so far, and how many they were."""

    values: Tensor
    count: Tensor

    def select(self, rows):
        return Sums(self.values[rows], self.count[rows])


class MeanShape(regard.MechanismShape):
    """Every token reads the mean of what came before it."""

    name: Literal["mean"] = "mean"
    gain: float = 1.0

    abilities = regard.Abilities(causal=True, bidirectional=False)
    samples = ({}, {"gain": 0.5})

    def make(self, slot):
        return Mean(slot, self.gain)


class Mean(regard.Projections, regard.Mechanism):
    """`gain · (v₁ + … + vₜ) / t` at token t."""

    def __init__(self, slot, gain):
        super().__init__(slot)
        self.gain = gain

    def forward(self, inputs, state, context):
        tokens = inputs.shape[1]
        value = self.gain * self.keys_values(inputs).values.repeat_interleave(self.heads // self.key_value_heads, 1)
        real = context.parts().real(context.past + tokens, tokens, inputs.device)
        counted = value.new_ones(len(value), tokens) if real is None else real.to(value.dtype)
        sums, counts = (value * counted[:, None, :, None]).cumsum(2), counted.cumsum(1)
        if state is not None:
            sums, counts = sums + state.values[:, :, None], counts + state.count[:, None]
        hidden = self.joined(sums / counts.clamp(min=1)[:, None, :, None])
        return hidden, Sums(sums[:, :, -1], counts[:, -1])

    def dense_map(self, inputs, context, memory=None):
        lower = torch.ones(inputs.shape[1], inputs.shape[1], dtype=inputs.dtype, device=inputs.device).tril()
        return (self.gain * lower / lower.sum(1, keepdim=True)).expand(len(inputs), self.heads, -1, -1)


regard.register_mechanism(MeanShape)

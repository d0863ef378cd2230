"""Gated DeltaNet (Yang et al. 2024, "Gated Delta Networks", §3.4, figure 1): the gated delta rule as attention.

    q, k, v = silu(short convolution of the projections)         each channel with its last few tokens
    α = exp(−exp(a) · softplus(x W_α + b)),  β = sigmoid(x W_β)  for each head
    out = (rms norm of what the rule reads ⊙ silu(x W_g)) W_o

The arithmetic is `delta_rule.py`'s. Decoding keeps one matrix for each head, and the last few projections.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.efficient.chunked import CHUNK, LogDecay, widened
from regard.attention.efficient.delta_rule import Rates, gated_delta_rule
from regard.attention.efficient.implied import ImpliedWeights, SummedState, Told, costs_of_sums
from regard.attention.mechanism import Abilities, AttentionCosts, LayerContext, MechanismShape, register_mechanism
from regard.attention.rotary import Rotate
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Query, RowIds, Weights
from regard.layers.linear import Linear
from regard.layers.norm import norm

Channels = Float[Tensor, "batch tokens channels"]
Last = Float[Tensor, "batch reach channels"]
SLOWEST, FASTEST = 0.001, 0.1
"""Between which softplus(b) is drawn (Gu and Dao 2023, appendix): how fast a head forgets at first."""


@dataclass(frozen=True, eq=False)
class DeltaState(SummedState):
    """All tokens read so far as one matrix for each head, and the projections of the last few."""

    before: Last | None = None

    def select(self, rows: RowIds) -> "DeltaState":
        return DeltaState(self.sums[rows], None, None if self.before is None else self.before[rows])


class GatedDeltaNetShape(MechanismShape):
    """A recurrence that corrects what it remembers of a key (Yang et al. 2024): linear in the length."""

    name: Literal["gated_deltanet"] = Field("gated_deltanet", description="how a layer attends")
    convolution: int = Field(
        4, ge=0, le=2**20, description="last tokens whose projections are mixed, channel by channel; 0: none are"
    )

    samples = ({"convolution": 3}, {"convolution": 0})
    abilities = Abilities(causal=True, bidirectional=False, documents=True)

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        sums, channels = costs_of_sums(slot, slot.head_width, slot.head_width), slot.heads + 2 * slot.key_value_heads
        solving = 2 * slot.heads * CHUNK * 2 * slot.head_width
        mixing = 2 * channels * slot.head_width * self.convolution
        return sums._replace(work=sums.work + solving + mixing)

    def make(self, slot: Slot) -> "GatedDeltaNet":
        return GatedDeltaNet(slot, self)


class GatedDeltaNet(ImpliedWeights):
    """`gated_delta_rule` between projections."""

    def __init__(self, slot: Slot, shape: GatedDeltaNetShape) -> None:
        super().__init__(slot)
        self.channels = [slot.heads * slot.head_width, *[slot.key_value_heads * slot.head_width] * 2]
        self.mixing: nn.Parameter | None = None
        if shape.convolution:
            bound = shape.convolution**-0.5  # as PyTorch draws a convolution, which the paper's code leaves as it is
            self.mixing = nn.Parameter(torch.empty(shape.convolution, sum(self.channels)).uniform_(-bound, bound))
        self.decay = Linear(slot.width, slot.heads, bias=False)
        self.fading = nn.Parameter(torch.empty(slot.heads).uniform_(1, 16).log())
        step = torch.empty(slot.heads).uniform_(math.log(SLOWEST), math.log(FASTEST)).exp()
        self.offset = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus of it is the step
        self.rate = Linear(slot.width, slot.heads)
        self.norm = norm("rms", slot.head_width)
        self.output_gate = Linear(slot.width, slot.heads * slot.head_width, bias=slot.bias)

    def forward(self, inputs: Hidden, state: AttentionState | None, context: LayerContext) -> tuple[Hidden, DeltaState]:
        assert state is None or isinstance(state, DeltaState)
        told = self.told(inputs, inputs.shape[1], context)
        query, own, before = self.mixed(inputs, told, state, context.rotate)
        attended, behind = self.read(inputs, query, own, told, state)
        assert isinstance(behind, DeltaState)
        return self.finish(inputs, attended), replace(behind, before=before)

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        told = self.told(inputs, inputs.shape[1], context)
        query, own, _ = self.mixed(inputs, told, None, context.rotate)
        identity = torch.eye(inputs.shape[1], dtype=query.dtype, device=query.device)
        identity = identity.expand(*own.keys.shape[:2], -1, -1)
        return self.read(inputs, query, KeyValues(own.keys, identity), told, None)[0]

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        decay = told.shut(self.log_decay(inputs), self.heads)
        assert decay is not None
        given = (query, memory.keys, memory.values, decay, self.rates(inputs))
        attended, sums = gated_delta_rule(*given, real=told.real, state=None if state is None else state.sums)
        return attended, DeltaState(sums)

    def finish(self, inputs: Hidden, attended: Attended) -> Hidden:
        return self.joined(self.norm(attended) * F.silu(self._split(self.output_gate(inputs), self.heads)))

    def mixed(
        self, inputs: Hidden, told: Told, state: DeltaState | None, rotate: Rotate | None
    ) -> tuple[Query, KeyValues, Last | None]:
        """Queries, keys and values, each mixed with those of the tokens before; and what the next ones need."""
        projected = torch.cat((self.query(inputs), self.key(inputs), self.value(inputs)), dim=2)
        before = None
        if self.mixing is not None:
            if told.real is not None:
                projected = projected * told.real[..., None]
            known = None if state is None else state.before
            projected, before = convolved(projected, self.mixing, known, told)
        query, key, value = torch.split(F.silu(projected), self.channels, dim=2)
        heads = self._split(query, self.heads), self._split(key, self.key_value_heads)
        turned = [rotate(one) if rotate else one for one in heads]
        return turned[0], KeyValues(turned[1], self._split(value, self.key_value_heads)), before

    def log_decay(self, inputs: Hidden) -> LogDecay:
        """The logarithm of every gate: [batch, heads, tokens, 1]."""
        steps = F.softplus(widened(self.decay(inputs)) + self.offset)
        return (-self.fading.exp() * steps).mT[..., None]

    def rates(self, inputs: Hidden) -> Rates:
        """How far each token corrects: [batch, heads, tokens, 1]."""
        rates: Tensor = self.rate(inputs).sigmoid().mT[..., None]
        return rates


def convolved(
    projected: Channels, taps: Float[Tensor, "taps channels"], before: Last | None, told: Told
) -> tuple[Channels, Last]:
    """Each channel's mean of its last tokens by weights of its own, and the last tokens; the first tap is of itself.

    Nothing comes from another text of the row.
    """
    reach, tokens = len(taps) - 1, projected.shape[1]
    if before is None:
        before = projected.new_zeros(len(projected), reach, projected.shape[2])
    whole = torch.cat((before.to(projected.dtype), projected), dim=1)
    out = projected * taps[0].to(projected.dtype)
    since_begin: Tensor | None = None
    if told.begins is not None:
        places = torch.arange(tokens, device=projected.device).expand_as(told.begins)
        since_begin = places - torch.where(told.begins, places, 0).cummax(dim=1).values
    for back in range(1, reach + 1):
        part = whole[:, reach - back : reach - back + tokens] * taps[back].to(projected.dtype)
        out = out + (part if since_begin is None else part * (since_begin >= back)[..., None])
    return out, whole[:, tokens:]


register_mechanism(GatedDeltaNetShape)

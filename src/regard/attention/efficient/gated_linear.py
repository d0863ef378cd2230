"""Gated linear attention (Yang et al. 2024): a state that each token lets fade before it adds its key and value.

    S_t = α_tᵀ1 ⊙ S_{t−1} + k_tᵀ v_t        o_t = q_t S_t / √d_k          (eq. 3; §4.4: what o_t goes through then)

The gates α_t are computed from the token itself: one for each feature of a key, sigmoid(x W₁ W₂ + b)^{1/τ} with W₁
and W₂ of low rank and τ = 16 (§4.4), or one for each head, which is the recurrence of RetNet with a gate that looks,
and of Mamba-2's SSD (Dao and Gu 2024, eq. 16). The arithmetic is `chunked.py`'s. Nothing is divided by a sum of
weights: they need not be positive.
"""

from typing import Literal

from jaxtyping import Bool
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.cache import KeyValues
from regard.attention.core import checked
from regard.attention.efficient.chunked import CHUNK, LogDecay, Sums, Valued, scan, spread, widened
from regard.attention.efficient.implied import ImpliedWeights, SummedState, Told, costs_of_sums
from regard.attention.mechanism import Abilities, AttentionCosts, MechanismShape, register_mechanism
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value
from regard.errors import ConfigError, InputError
from regard.layers.linear import Linear
from regard.layers.norm import norm


def gated_linear_attention(
    query: Query,
    key: Key,
    value: Value,
    log_decay: LogDecay,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
) -> Attended:
    """What every query reads of its own token and those before, faded by the gates of the tokens between."""
    checked(query, key, value, "scaled_dot", None, None, 0.0)
    return gated_linear_scan(query, key, value, log_decay, real=real)[0]


def gated_linear_scan(
    query: Query,
    key: Key,
    value: Value,
    log_decay: LogDecay,
    *,
    real: Bool[Tensor, "batch keys"] | None = None,
    state: Sums | None = None,
    chunk: int = CHUNK,
) -> tuple[Valued, Sums]:
    """The same from a state on, and the state behind the last token; padding adds nothing and fades nothing."""
    if log_decay.shape[3] not in (1, key.shape[3]):
        raise InputError(
            f"{log_decay.shape[3]} gates do not fit keys of width {key.shape[3]}", f"give 1 or {key.shape[3]}"
        )
    key, value = (spread(one, query.shape[1]) for one in (key, value))
    if real is not None:
        key, log_decay = key * real[:, None, :, None], log_decay.masked_fill(~real[:, None, :, None], 0.0)
    out, state = scan(query * query.shape[3] ** -0.5, key, value, log_decay, state=state, chunk=chunk)
    return out.to(value.dtype), state


class GatedLinearShape(MechanismShape):
    """A recurrence whose state each token lets fade (Yang et al. 2024; with one gate a head, Mamba-2's): linear."""

    name: Literal["gated_linear"] = Field("gated_linear", description="how a layer attends")
    gates: Literal["feature", "head"] = Field(
        "feature", description="a gate for every feature of a key, or one for a head, as in Mamba-2"
    )
    gate_rank: int = Field(16, ge=1, le=2**20, description="rank of the map from a token to its gates of features")
    temperature: float = Field(16.0, gt=0, description="a gate is sigmoid^(1/temperature): above 1 it fades slowly")

    samples = ({"gate_rank": 3, "temperature": 1.0}, {"gates": "head"})
    abilities = Abilities(causal=True, bidirectional=False, documents=True)

    @model_validator(mode="after")
    def _rank_has_a_meaning(self) -> "GatedLinearShape":
        if self.gates == "head" and self.gate_rank != type(self).model_fields["gate_rank"].default:
            raise ConfigError(
                f"gate_rank = {self.gate_rank} has no effect with one gate a head",
                "use gates 'feature', or leave it out",
            )
        return self

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        return costs_of_sums(slot, slot.head_width, slot.head_width)

    def make(self, slot: Slot) -> "GatedLinear":
        return GatedLinear(slot, self)


class GatedLinear(ImpliedWeights):
    """`gated_linear_attention` between projections; what a head reads is normalised and gated by the token (§4.4)."""

    def __init__(self, slot: Slot, shape: GatedLinearShape) -> None:
        super().__init__(slot)
        self.shape = shape
        if shape.gates == "head":
            self.gate: nn.Module = Linear(slot.width, slot.heads)
        else:
            down = Linear(slot.width, shape.gate_rank, bias=False)
            self.gate = nn.Sequential(down, Linear(shape.gate_rank, slot.heads * slot.head_width))
        self.norm = norm("layer", slot.head_width)
        self.output_gate = Linear(slot.width, slot.heads * slot.head_width, bias=slot.bias)

    def in_heads(self, mapped: Hidden) -> LogDecay:
        """What each head has of it: [batch, heads, tokens, width ÷ heads]."""
        batch, tokens, _ = mapped.shape
        return mapped.view(batch, tokens, self.heads, -1).transpose(1, 2)

    def log_decay(self, inputs: Hidden) -> LogDecay:
        """The logarithm of every gate: [batch, heads, tokens, gates]."""
        return F.logsigmoid(widened(self.in_heads(self.gate(inputs)))) / self.shape.temperature

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        decay = told.shut(self.log_decay(inputs), self.heads)
        assert decay is not None
        given, sums = (query, memory.keys, memory.values, decay), None if state is None else state.sums
        attended, sums = gated_linear_scan(*given, real=told.real, state=sums)
        return attended, SummedState(sums)

    def finish(self, inputs: Hidden, attended: Attended) -> Hidden:
        return self.joined(self.norm(attended) * F.silu(self.in_heads(self.output_gate(inputs))))


register_mechanism(GatedLinearShape)

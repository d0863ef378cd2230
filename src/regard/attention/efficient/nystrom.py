"""Nyströmformer (Xiong et al. 2021): softmax attention rebuilt from what a few landmarks see.

    softmax(Q Kᵀ)  ≈  softmax(Q K̃ᵀ) · softmax(Q̃ K̃ᵀ)⁺ · softmax(Q̃ Kᵀ)          (eq. 13), scaled by 1/√d_k throughout

Landmarks Q̃ and K̃ are the means of as many pieces of the text (§3.2.2, "landmark selection"), here of the real
tokens alone, in pieces as equal as they can be, so any length and padding do. The pseudo-inverse ⁺ is approached in a
few steps of matrix products (eq. 14–15), each sequence and head from a start of its own, or computed by singular
values where `iterations` is None: with as many landmarks as tokens that is exact attention. Landmarks mix later
tokens in: there is no causal form.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.cache import KeyValues
from regard.attention.core import attend, checked, weights
from regard.attention.efficient.chunked import spread, widened
from regard.attention.efficient.implied import ImpliedWeights, SummedState, Told
from regard.attention.mask import Dense, Padding
from regard.attention.mechanism import Abilities, AttentionCosts, MechanismShape, register_mechanism
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value
from regard.errors import ConfigError, InputError

Square = Float[Tensor, "batch heads landmarks landmarks"]


def nystrom_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    landmarks: int,
    real: Bool[Tensor, "batch tokens"] | None = None,
    iterations: int | None = 6,
) -> Attended:
    """Attention of a text to itself through its landmarks; a text of fewer tokens has each of them for one."""
    checked(query, key, value, "scaled_dot", None, None, 0.0)
    if query.shape[2] != key.shape[2]:
        raise InputError(
            f"{query.shape[2]} queries and {key.shape[2]} keys are not of one text",
            "use another attention across texts",
        )
    if landmarks < 1:
        raise InputError(f"{landmarks} landmarks show nothing", "use 1 or more, such as 64")
    count = min(landmarks, query.shape[2])
    means, there = pieces(real, query.shape[2], count, query.device)
    seen = None if real is None else Dense(real[:, None, None].expand(-1, -1, count, -1))
    chosen = None if there is None else Padding(there.sum(dim=1))
    with torch.autocast(query.device.type, enabled=False):
        wide = widened(query).dtype
        landmark_query, landmark_key = (
            torch.einsum("bmn,bhnd->bhmd", means.to(wide), one.to(wide)) for one in (query, key)
        )
        middle = weights(landmark_query, landmark_key, mask=chosen)
        if there is not None:  # a landmark that a short text lacks: beside the others, it leaves their inverse alone
            middle = torch.where(there[:, None, :, None], middle, torch.eye(count).to(middle))
        inverse = pseudo_inverse(middle, iterations)
        landmark_query, landmark_key = landmark_query.to(query.dtype), landmark_key.to(query.dtype)
        read = widened(attend(landmark_query, key, value, mask=seen))
        rebuilt = (inverse @ read).to(value.dtype)
    return weights(query, landmark_key, mask=chosen).to(value.dtype) @ rebuilt


def pseudo_inverse(matrix: Square, iterations: int | None = 6) -> Square:
    """Moore and Penrose's: approached in so many steps from a matrix between 0 and 1, or by singular values."""
    if iterations is None:
        exact: Square = torch.linalg.pinv(matrix)
        return exact
    found = matrix.mT / (matrix.sum(dim=2).amax(dim=2) * matrix.sum(dim=3).amax(dim=2))[..., None, None]
    one = torch.eye(matrix.shape[2], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ found
        found = found @ (13 * one - product @ (15 * one - product @ (7 * one - product))) / 4
    return found


def pieces(
    real: Bool[Tensor, "batch tokens"] | None, tokens: int, landmarks: int, device: torch.device
) -> tuple[Float[Tensor, "#batch landmarks tokens"], Bool[Tensor, "batch landmarks"] | None]:
    """What averages each piece of a text into its landmark; which landmarks each text has, where some may lack one."""
    given = torch.ones(1, tokens, dtype=torch.bool, device=device) if real is None else real
    texts = given.sum(dim=1, keepdim=True)
    counts = texts.clamp(max=landmarks)
    piece = (given.cumsum(dim=1) - 1) * counts // texts.clamp(min=1)
    order = torch.arange(landmarks, device=device)
    belongs = (piece[:, None] == order[:, None]) & given[:, None]
    means = belongs / belongs.sum(dim=2, keepdim=True).clamp(min=1)
    return means, None if real is None else order < counts


def convolved(
    value: Value, kernel: Float[Tensor, "kv_heads 1 taps 1"], real: Bool[Tensor, "batch keys"] | None = None
) -> Value:
    """Values mixed with their neighbours, each head by weights of its own: added to what attention reads (§3.2.3)."""
    value = value if real is None else value * real[:, None, :, None]
    return F.conv2d(value, kernel.to(value.dtype), padding=(kernel.shape[2] // 2, 0), groups=value.shape[1])


class NystromShape(MechanismShape):
    """Softmax attention rebuilt from what landmarks see, Nyströmformer (Xiong et al. 2021): linear in the length."""

    name: Literal["nystrom"] = Field("nystrom", description="how a layer attends")
    landmarks: int = Field(64, ge=1, le=2**20, description="pieces of a text whose means stand for it")
    inverse: Literal["iterative", "exact"] = Field(
        "iterative", description="the pseudo-inverse: six steps towards it, as in the paper, or by singular values"
    )
    convolution: int = Field(
        33, ge=0, le=2**20, description="neighbours whose values are added, by weights of each head; 0: none"
    )

    samples = ({"landmarks": 3, "convolution": 3}, {"landmarks": 3, "convolution": 0, "inverse": "exact"})
    abilities = Abilities()
    borrowing: ClassVar[Mapping[str, object]] = {"convolution": 0}

    @field_validator("convolution")
    @classmethod
    def _has_a_middle(cls, convolution: int) -> int:
        if convolution and convolution % 2 == 0:
            raise ConfigError(
                f"a convolution over {convolution} tokens has no middle", f"use {convolution + 1}, or 0 for none"
            )
        return convolution

    def costs(self, slot: Slot, tokens: int) -> AttentionCosts:
        count = min(self.landmarks, tokens)
        steps = 4 * 6 * count**3 / tokens if self.inverse == "iterative" else 0  # not those of singular values
        through = 4 * count * slot.head_width + count**2 * (slot.head_width + slot.head_width) / tokens
        means = 2 * count * slot.head_width
        work = (
            2 * slot.heads * (through + means + steps) + 2 * slot.key_value_heads * self.convolution * slot.head_width
        )
        return AttentionCosts(work, 0, None)

    def make(self, slot: Slot) -> "Nystrom":
        return Nystrom(slot, self)


class Nystrom(ImpliedWeights):
    """`nystrom_attention` between projections, and the values of a token's neighbours beside it."""

    def __init__(self, slot: Slot, shape: NystromShape) -> None:
        super().__init__(slot)
        self.shape = shape
        self.neighbours: nn.Parameter | None = None
        if shape.convolution:
            self.neighbours = nn.Parameter(torch.empty(slot.key_value_heads, 1, shape.convolution, 1))
            bound = shape.convolution**-0.5  # as PyTorch draws a convolution, which the paper's code leaves as it is
            nn.init.uniform_(self.neighbours, -bound, bound)

    def read(
        self, inputs: Hidden, query: Query, memory: KeyValues, told: Told, state: SummedState | None
    ) -> tuple[Attended, SummedState | None]:
        given, steps = (query, memory.keys, memory.values), 6 if self.shape.inverse == "iterative" else None
        attended = nystrom_attention(*given, landmarks=self.shape.landmarks, real=told.real, iterations=steps)
        if self.neighbours is not None:
            attended = attended + spread(convolved(memory.values, self.neighbours, told.real), self.heads)
        return attended, None


register_mechanism(NystromShape)

"""Ways to choose tokens, each a frozen value: `Greedy()`, `Sample(temperature=0.8, top_p=0.9)`, `Beam(5)`."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.decoding.filters import temperature, top_k, top_p
from regard.errors import InputError


@dataclass(frozen=True)
class Greedy:
    """The most likely token every time; ties to the lower id."""

    def choose(self, logits: RowLogits, draws: Float[Tensor, "rows"]) -> RowIds:
        """The first of the largest of each row; `max` finds it faster than `argmax`."""
        return logits.max(dim=-1).indices


@dataclass(frozen=True)
class Sample:
    """Drawn from the distribution after temperature, then top-k, then top-p.

    Every sequence has random numbers of its own, from the seed and its place in the call: what stands beside it in
    a batch, and whether that finishes earlier, changes nothing.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    first: int = 0
    """The place of the first sequence among all: texts decoded in several batches go on counting."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise InputError(
                f"temperature {self.temperature} is not a number above 0", "use greedy decoding for the limit at 0"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top-k {self.top_k} keeps no token", "use 1 or more, or leave it out")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top-p {self.top_p} is not a probability above 0", "use one in (0, 1]")

    def filtered(self, logits: RowLogits) -> RowLogits:
        """The logits of what may be drawn, `-inf` elsewhere."""
        logits = temperature(logits.double(), self.temperature)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            logits = top_k(logits, self.top_k)
        return logits if self.top_p is None else top_p(logits, self.top_p)

    def choose(self, logits: RowLogits, draws: Float[Tensor, "rows"]) -> RowIds:
        """The token in whose slice of [0, 1) each row's draw falls, slices in id order."""
        probabilities = self.filtered(logits).double().softmax(dim=-1)
        upto = probabilities.cumsum(dim=-1)
        point = draws.to(upto)[:, None] * upto[:, -1:]
        chosen: Int[Tensor, "rows"] = torch.searchsorted(upto, point, right=True).squeeze(-1)
        last = (probabilities > 0).long() * torch.arange(probabilities.shape[-1], device=upto.device)
        return torch.minimum(chosen, last.max(dim=-1).values)  # rounding must not reach past the last allowed token


@dataclass(frozen=True)
class Beam:
    """The `size` best sequences kept side by side; a finished one scores `Σ log p / lengthᵅ`, α the length penalty.

    The length is the number of generated tokens, the end included. Ties go to the better beam, then the lower id.
    """

    size: int = 5
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a beam of {self.size} holds nothing", "use 1 or more")
        if not math.isfinite(self.length_penalty):
            raise InputError(f"a length penalty of {self.length_penalty} ranks nothing", "use a number, such as 1")


Strategy = Greedy | Sample | Beam

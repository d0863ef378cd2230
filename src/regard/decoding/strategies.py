"""Ways to choose tokens, each a frozen value: `Greedy()`, `Sample(temperature=0.8, top_p=0.9)`, `Beam(5)`.

A strategy is a tuple of filters and a way to choose among what they leave; `constraints` are filters, or texts that
become some, which hold for this strategy only.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.decoding.constraints import Constraint
from regard.decoding.filters import Filter, MinP, Temperature, TopK, TopP
from regard.decoding.penalties import RepetitionPenalty
from regard.errors import InputError


@dataclass(frozen=True)
class Greedy:
    """The most likely token every time; ties to the lower id."""

    constraints: tuple[Constraint, ...] = ()

    @property
    def filters(self) -> tuple[Filter, ...]:
        """None of its own."""
        return ()

    def choose(self, scores: RowLogits, draws: Float[Tensor, "rows"]) -> RowIds:
        """The first of the largest of each row; `max` finds it faster than `argmax`."""
        return scores.max(dim=-1).indices


@dataclass(frozen=True)
class Sample:
    """Drawn from the distribution after repetition penalty, temperature, top-k, top-p, min-p, in this order.

    Every sequence has random numbers of its own, from the seed and its place in the call: what stands beside it in
    a batch, and whether that finishes earlier, changes nothing.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    seed: int = 0
    first: int = 0
    """The place of the first sequence among all: texts decoded in several batches go on counting."""
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise InputError(
                f"temperature {self.temperature} is not a number above 0", "use greedy decoding for the limit at 0"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top-k {self.top_k} keeps no token", "use 1 or more, or leave it out")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top-p {self.top_p} is not a probability above 0", "use one in (0, 1]")
        if self.min_p is not None and not 0 < self.min_p <= 1:
            raise InputError(
                f"min-p {self.min_p} is not a share above 0 of the likeliest token's chance", "use one in (0, 1]"
            )
        RepetitionPenalty(self.repetition_penalty)  # refuses what is none

    @property
    def filters(self) -> tuple[Filter, ...]:
        """What is done to the scores before a token is drawn."""
        found: list[Filter] = []
        if self.repetition_penalty != 1:
            found.append(RepetitionPenalty(self.repetition_penalty))
        found.append(Temperature(self.temperature))
        found += [] if self.top_k is None else [TopK(self.top_k)]
        found += [] if self.top_p is None else [TopP(self.top_p)]
        found += [] if self.min_p is None else [MinP(self.min_p)]
        return tuple(found)

    def choose(self, scores: RowLogits, draws: Float[Tensor, "rows"]) -> RowIds:
        """The token in whose slice of [0, 1) each row's draw falls, slices in id order."""
        probabilities = scores.double().softmax(dim=-1)
        upto = probabilities.cumsum(dim=-1)
        point = draws.to(upto)[:, None] * upto[:, -1:]
        chosen: Int[Tensor, "rows"] = torch.searchsorted(upto, point, right=True).squeeze(-1)
        last = (probabilities > 0).long() * torch.arange(probabilities.shape[-1], device=upto.device)
        return torch.minimum(chosen, last.max(dim=-1).values)  # rounding must not reach past the last allowed token


@dataclass(frozen=True)
class Beam:
    """The `size` best sequences kept side by side; a finished one scores `Σ log p / lengthᵅ`, α the length penalty.

    The length is the number of generated tokens, the end included. Ties go to the better beam, then the lower id.

    With `diversity_penalty` the beam is searched in groups, as many as beams if `groups` does not say (Vijayakumar et
    al. 2016): one after the other at every step, and a token costs a group the penalty for every time that the groups
    before it have just chosen the same one. This decides what is kept; scores are without it.
    """

    size: int = 5
    length_penalty: float = 1.0
    diversity_penalty: float = 0.0
    groups: int | None = None
    n_best: int | None = None
    """How many answers `Model.run` gives, best first; the best alone if it is not said."""
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a beam of {self.size} holds nothing", "use 1 or more")
        if not math.isfinite(self.length_penalty):
            raise InputError(f"a length penalty of {self.length_penalty} ranks nothing", "use a number, such as 1")
        if not 0 <= self.diversity_penalty < math.inf:
            raise InputError(
                f"a diversity penalty of {self.diversity_penalty} is no cost", "use 0 for none, or such as 0.5"
            )
        if self.n_best is not None and not 1 <= self.n_best <= self.size:
            raise InputError(f"a beam of {self.size} does not hold {self.n_best} answers", f"use 1 to {self.size}")
        self._check_groups()

    def _check_groups(self) -> None:
        if self.groups is None:
            return
        if not self.diversity_penalty:
            raise InputError(
                f"{self.groups} groups have no effect without a diversity penalty", "give one, or leave them out"
            )
        if self.groups < 2 or self.size % self.groups:
            fitting = ", ".join(str(count) for count in range(2, self.size + 1) if self.size % count == 0)
            raise InputError(
                f"a beam of {self.size} does not part into {self.groups} groups",
                f"use {fitting}" if fitting else "use a wider beam",
            )

    @property
    def filters(self) -> tuple[Filter, ...]:
        """None of its own."""
        return ()

    @property
    def parts(self) -> int:
        """How many groups are searched apart."""
        if not self.diversity_penalty:
            return 1
        return self.size if self.groups is None else self.groups


@dataclass(frozen=True)
class Contrastive:
    """Of the `top_k` most likely tokens the one with the largest `(1 − α) p − α s` (Su et al. 2022, §3.2).

    α is `penalty_alpha`, and 0 is greedy.

    `s` is the largest cosine between the vector that the token would have and those of all tokens before: what is too
    alike is a repetition. Ties go to the more likely token, then the lower id.
    """

    top_k: int = 4
    penalty_alpha: float = 0.6
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise InputError(f"contrastive search among {self.top_k} tokens chooses none", "use 1 or more")
        if not 0 <= self.penalty_alpha <= 1:
            raise InputError(
                f"penalty_alpha {self.penalty_alpha} is no share", "use one in [0, 1]; 0 is greedy decoding"
            )

    @property
    def filters(self) -> tuple[Filter, ...]:
        """None of its own."""
        return ()


Strategy = Greedy | Sample | Beam | Contrastive

"""What is asked for and what has come of it: texts to be gone on with, each by a strategy and to a limit of its own."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.axes import RowIds
from regard.decoding.counter_random import seed_of
from regard.decoding.filters import NOTHING, Filter, Generated
from regard.decoding.hypothesis import Stop
from regard.decoding.row_sampling import Kinds, SamplingParameters
from regard.decoding.strategies import Greedy, Sample
from regard.layers.triton_kernel import size_above


@dataclass(frozen=True)
class RowRequest:
    """A prompt, a source where the model reads one, and how to go on."""

    prompt: tuple[int, ...]
    strategy: Greedy | Sample
    stop: Stop
    number: int = 0
    """Which text of its call it is: what it draws goes by that."""
    source: tuple[int, ...] | None = None
    filters: tuple[Filter, ...] = ()
    """What is done to the scores before the strategy's temperature; each runs on the device."""

    @property
    def length(self) -> int:
        """Tokens that it may come to."""
        return len(self.prompt) + self.stop.max_new_tokens


def kinds_of(requests: list[RowRequest]) -> Kinds:
    """What they ask for together; a top-k up to the next power of two, for every other one is another graph."""
    sampled = [one.strategy for one in requests if isinstance(one.strategy, Sample)]
    counts = [one.top_k for one in sampled]
    most = None if None in counts or not counts else size_above(max(one for one in counts if one is not None))
    some = any(one is not None for one in counts) or len(sampled) < len(requests)
    if most is None and some and sampled:
        most = 2**62  # some rows have a top-k and some have none: every score is ranked
    nucleus = any(one.top_p is not None and one.top_p < 1 for one in sampled)
    smallest = any(one.min_p is not None for one in sampled)
    return Kinds(bool(sampled), most, nucleus, smallest)


@dataclass(eq=False)
class Rows:
    """What is known of every row while it is decoded: numbers on the device, in memory that never moves."""

    ids: Int[Tensor, "rows"]
    """The token that the next step reads."""
    going: Bool[Tensor, "rows"]
    written: Int[Tensor, "rows"]
    limits: Int[Tensor, "rows"]
    seeds: Int[Tensor, "rows"]
    temperature: Float[Tensor, "rows"]
    top_k: Int[Tensor, "rows"]
    top_p: Float[Tensor, "rows"]
    min_p: Float[Tensor, "rows"]
    ends: Int[Tensor, "rows ends"]
    """The tokens that end a text."""
    read: Int[Tensor, "rows"]
    """Tokens of the prompt."""
    text: Int[Tensor, "rows room"]
    """The prompt and what was written, no id behind it; a last column is for rows that are done and step on."""
    likely: Float[Tensor, "rows room"]
    """What the model gave each written token, at its place in the text."""
    lost: Int[Tensor, "rows"]
    """The first place where the filters left nothing to choose."""

    @classmethod
    def allocate(cls, rows: int, room: int, ends: int, device: torch.device) -> "Rows":
        """Rows that do nothing yet, of texts of at most so many tokens."""
        whole = torch.zeros(rows, dtype=torch.long, device=device)
        wide = torch.ones(rows, dtype=torch.float64, device=device)
        return cls(
            ids=whole,
            going=torch.zeros(rows, dtype=torch.bool, device=device),
            written=whole.clone(),
            limits=whole.clone(),
            seeds=whole.clone(),
            temperature=wide,
            top_k=whole + 1,
            top_p=wide.clone(),
            ends=torch.full((rows, ends), NOTHING, device=device),
            min_p=wide.clone(),
            read=whole.clone(),
            text=torch.full((rows, room + 1), NOTHING, device=device),
            likely=torch.zeros(rows, room + 1, dtype=torch.float64, device=device),
            lost=whole - 1,
        )

    @property
    def asked(self) -> SamplingParameters:
        """What they ask for."""
        return SamplingParameters(self.temperature, self.top_k, self.top_p, self.min_p)

    @property
    def generated(self) -> Generated:
        """What filters are shown."""
        return Generated(self.text, self.read, self.limits)

    def part(self, rows: int) -> "Rows":
        """The first so many of these same rows."""
        return Rows(*(one[:rows] for one in self._tensors()))

    def copy(self) -> "Rows":
        """The same in memory of its own."""
        return Rows(*(one.clone() for one in self._tensors()))

    def restore(self, other: "Rows") -> None:
        """Write what is known of others over these."""
        for own, new in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(new)

    def move(self, rows: RowIds, places: RowIds) -> None:
        """Copy these rows into the places of others; those they leave are done."""
        for one in self._tensors():
            one.index_copy_(0, places, one[rows])
        self.going.index_fill_(0, rows, False)

    def put(self, requests: list[RowRequest], places: RowIds) -> None:
        """Let these rows begin."""
        device, ends, room = places.device, self.ends.shape[1], self.text.shape[1]
        strategies = [one.strategy for one in requests]
        sampled = [one if isinstance(one, Sample) else None for one in strategies]
        new: dict[str, list[int] | list[float] | list[bool] | list[list[int]]] = {
            "ids": [one.prompt[-1] for one in requests],
            "going": [True] * len(requests),
            "written": [0] * len(requests),
            "limits": [one.stop.max_new_tokens for one in requests],
            "seeds": [
                0 if own is None else seed_of(own.seed, own.first + one.number)
                for own, one in zip(sampled, requests, strict=True)
            ],
            "temperature": [1.0 if one is None else one.temperature for one in sampled],
            "top_k": [1 if one is None else one.top_k or 2**62 for one in sampled],
            "top_p": [1.0 if one is None or one.top_p is None else one.top_p for one in sampled],
            "min_p": [0.0 if one is None or one.min_p is None else one.min_p for one in sampled],
            "ends": [[*one.stop.eos_ids, *[NOTHING] * (ends - len(one.stop.eos_ids))] for one in requests],
            "read": [len(one.prompt) for one in requests],
            "text": [[*one.prompt, *[NOTHING] * (room - len(one.prompt))] for one in requests],
            "lost": [-1] * len(requests),
        }
        for name, values in new.items():
            held: Tensor = getattr(self, name)
            held.index_copy_(0, places, torch.tensor(values, dtype=held.dtype).to(device))

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, one.name) for one in fields(self)]

"""Any Stepper for the row engine: of its state nothing is asked but that rows can be selected.

Exact attention's rows stand in memory that never moves (models/in_place.py). The states of recurrent networks, of
linear attention, of windows with sinks are values: rows that come together are read together and make a group, and
each group is stepped as the plain loop steps a batch.

    rows      0   1   2   3   4        2 has left and nobody has come for it
    groups    a   a       b   a        the step of a reads the tokens 0 1 4, that of b token 3
    logits    a0  a1  0   b0  a2       in the rows' own places

Who has left is told by the host and selected away; nothing is asked of the device. Groups are not joined: rows that
come one by one are stepped one after the other.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs, Padded
from regard.models.in_place import InPlaceDecoder
from regard.models.network import Network
from regard.models.shared_head import first_alike


@runtime_checkable
class RowState(Protocol):
    """What is kept of rows that come and go."""

    lengths: Int[Tensor, "rows"]
    """How many tokens each row has read."""
    most: int
    reach: int

    @property
    def room(self) -> int:
        """Tokens that every row has room for."""
        ...

    def part(self, rows: int) -> "RowState":
        """The first so many of these same rows."""
        ...

    def move(self, rows: Sequence[int], places: Sequence[int]) -> None:
        """Let these rows stand in the places of others."""
        ...

    def expect(self, left: Mapping[int, int]) -> None:
        """How many more tokens each row may read, at most; a row that is not named has left."""
        ...

    def forget(self, rows: Sequence[int]) -> None:
        """Let nothing of these rows be left, where what is behind a text is looked at with a weight of 0."""
        ...


R = TypeVar("R", bound=RowState)


@runtime_checkable
class RowStepper(Protocol[R]):
    """What the row engine asks of a model."""

    @property
    def model(self) -> Any:
        """Whose rows they are."""
        ...

    def allocate(self, rows: int, room: int, memory_room: int = 0) -> R:
        """So many rows with nobody in them."""
        ...

    def admit(self, inputs: Inputs, state: R, rows: Sequence[int]) -> None:
        """Let these rows begin with these sources and prompts, all but the last token of which is read."""
        ...

    def step(self, ids: RowIds, state: R) -> tuple[RowLogits, R]:
        """One token further in every row; the state is spent."""
        ...


def rows_of(model: Network) -> RowStepper[Any]:
    """The model's decoder in place, or its rows in groups where it has none."""
    stepper: RowStepper[Any] = GroupedRows(model) if model.in_place_unsupported() else model.in_place()
    return stepper


def can_be_replayed(stepper: RowStepper[Any]) -> bool:
    """Whether a graph of a step can be replayed: nothing in it moves."""
    return isinstance(stepper, InPlaceDecoder)


@dataclass(eq=False)
class Group:
    """Rows that were admitted together, in the order of their state's."""

    state: Any
    rows: list[int]
    at: RowIds
    """The same, on the device."""

    def keep(self, kept: Sequence[int]) -> None:
        """Only those at these places of the state."""
        self.rows = [self.rows[place] for place in kept]
        self.state = self.state.select(torch.tensor(kept, device=self.at.device))
        self.at = torch.tensor(self.rows, device=self.at.device)


@dataclass(eq=False)
class GroupedState:
    """The states of all groups, and how far their rows may go."""

    lengths: Int[Tensor, "rows"]
    room: int
    groups: list[Group] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    most: int = 0
    reach: int = 0

    def part(self, rows: int) -> "GroupedState":
        """The first so many of these same rows."""
        return replace(self, lengths=self.lengths[:rows])

    def move(self, rows: Sequence[int], places: Sequence[int]) -> None:
        """Only their names change."""
        to = dict(zip(rows, places, strict=True))
        for group in self.groups:
            group.rows = [to.get(row, row) for row in group.rows]
            group.at = torch.tensor(group.rows, device=group.at.device)
        left = {to.get(row, row): count for row, count in self.left.items()}
        self.left.clear()
        self.left.update(left)
        self.lengths[list(places)] = self.lengths[list(rows)]

    def expect(self, left: Mapping[int, int]) -> None:
        """Who is not named has left."""
        self.left.clear()
        self.left.update(left)
        self.drop()

    def forget(self, rows: Sequence[int]) -> None:
        """A group's state is its own, and goes with it."""

    def drop(self) -> None:
        """Let go of the rows that may read no more."""
        for group in self.groups:
            kept = [place for place, row in enumerate(group.rows) if self.left.get(row, 0)]
            if 0 < len(kept) < len(group.rows):
                group.keep(kept)
            elif not kept:
                group.rows = []
        self.groups[:] = [group for group in self.groups if group.rows]


class GroupedRows:
    """A network's rows in groups. It does not keep the network alive: what is kept beside a model goes with it."""

    def __init__(self, model: Network) -> None:
        self._model = weakref.ref(model)

    @property
    def model(self) -> Network:
        """Whose rows they are."""
        found = self._model()
        assert found is not None, "the model is gone"
        return found

    def allocate(self, rows: int, room: int, memory_room: int = 0) -> GroupedState:
        """So many rows with nobody in them; room is made as a group is read."""
        return GroupedState(torch.zeros(rows, dtype=torch.long, device=self.model.device), room)

    def admit(self, inputs: Inputs, state: GroupedState, rows: Sequence[int]) -> None:
        """A group of their own; what is asked for more than once is read once."""
        device, prompts = self.model.device, inputs.tokens.rows()
        sources = None if inputs.source is None else inputs.source.rows()
        begun = zip(prompts, prompts if sources is None else sources, strict=True)
        first, alone = first_alike(begun)
        tokens = Padded.of([prompts[row] for row in alone], side="left").to(device)
        source = None if sources is None else Padded.of([sources[row] for row in alone]).to(device)
        read = self.model.start(Inputs(tokens, source))
        if len(alone) < len(first):
            read = read.select(torch.tensor(first, device=device))
        at = torch.tensor(list(rows), device=device)
        state.groups.append(Group(read, list(rows), at))
        state.lengths.index_copy_(0, at, (inputs.tokens.lengths - 1).to(device))

    def step(self, ids: RowIds, state: GroupedState) -> tuple[RowLogits, GroupedState]:
        """One token further in every group; what stands in a row with nobody in it is nothing."""
        state.drop()
        found: RowLogits | None = None
        for group in state.groups:
            if group.rows == list(range(len(ids))):
                found, group.state = self.model.step(ids, group.state)
                continue
            logits, group.state = self.model.step(ids[group.at], group.state)
            found = logits.new_zeros(len(ids), logits.shape[1]) if found is None else found
            found.index_copy_(0, group.at, logits)
        for row in state.left:
            state.left[row] -= 1
        state.lengths.add_(1)
        assert found is not None, "nobody is in any row"
        return found, state

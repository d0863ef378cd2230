"""Many texts decoded side by side in place: rows are admitted, stepped and retired, each by what it was asked for.

    admit    a prompt is read at once and its keys and values go into a free row
    step     so many tokens further in every row; on a GPU a replayed graph, nothing asked of the host in between
    retire   who is done is read back, every few steps, and leaves; the others move together where that halves the work

How many rows a step is made for is a power of two, and how many keys it looks at one of a few sizes, so that few graphs
are captured. `Model.run` decodes through this, and so may whoever has texts coming and going.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.data.batching import Inputs, Padded
from regard.decoding.beam import check_likely, nothing_left
from regard.decoding.cuda_graph import Replays
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.kept_engines import KeptEngines
from regard.decoding.requests import RowRequest, Rows, kinds_of
from regard.decoding.row_groups import RowStepper, can_be_replayed, rows_of
from regard.decoding.row_step import step_rows
from regard.errors import InputError
from regard.models.in_place import reach_of, rounded
from regard.models.network import Network

TOGETHER = 16
"""Steps between two looks at who is done."""
ENDS = 8
"""Tokens that may end a text, at most."""


@dataclass(frozen=True)
class Capacity:
    """What an engine has memory for."""

    rows: int
    room: int
    """Tokens of a row, prompt and what is written."""
    source: int = 0
    """Tokens of a source."""

    def holds(self, other: "Capacity") -> bool:
        """Whether what the other has memory for fits here."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(own >= one for own, one in pairs) and bool(self.source) == bool(other.source)

    def joined(self, other: "Capacity") -> "Capacity":
        """Enough for the other; for both unless that is far more: many short texts and one long are few tokens."""
        both = Capacity(*(max(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))
        return both if both.tokens <= 2 * max(self.tokens, other.tokens) else other

    @property
    def tokens(self) -> int:
        """Of all rows."""
        return self.rows * (self.room + self.source)


class RowEngine:
    """Rows of memory, and who is in them."""

    def __init__(self, stepper: RowStepper[Any], capacity: Capacity) -> None:
        self.stepper, self.capacity = stepper, capacity
        device = stepper.model.device
        self.state = stepper.allocate(capacity.rows, rounded(capacity.room), capacity.source)
        self.rows = Rows.allocate(capacity.rows, capacity.room, ENDS, device)
        self.held: list[RowRequest | None] = [None] * capacity.rows
        self.reached = [0] * capacity.rows
        """No row's text is longer: prompt and steps, told without asking the device."""
        self.replays = Replays() if device.type == "cuda" and can_be_replayed(stepper) else None

    @property
    def free(self) -> list[int]:
        """Rows that nobody is in."""
        return [row for row, request in enumerate(self.held) if request is None]

    @property
    def busy(self) -> bool:
        """Whether anybody is in any row."""
        return any(request is not None for request in self.held)

    @torch.inference_mode()
    def admit(self, requests: Sequence[RowRequest]) -> None:
        """Give each of these a row; there must be as many free, and each must fit."""
        places = self.free[: len(requests)]
        if len(places) < len(requests):
            raise InputError(f"{len(requests)} texts come to {len(places)} free rows", "admit no more than `free`")
        if not requests:
            return
        self._require_same_filters(requests)
        for one in requests:
            self._require_fit(one)
        at = torch.tensor(places, device=self.rows.ids.device)
        prompts = Padded.of([one.prompt for one in requests])
        sources = [one.source for one in requests if one.source is not None]
        source = Padded.of(sources).to(at.device) if sources else None
        self.stepper.admit(Inputs(prompts, source), self.state, places)
        self.rows.put(list(requests), at)
        for place, one in zip(places, requests, strict=True):
            self.held[place], self.reached[place] = one, len(one.prompt) - 1

    @torch.inference_mode()
    def step(self, count: int = TOGETHER) -> None:
        """So many steps in every row; fewer where no row may write so many more."""
        asked = [one for one in self.held if one is not None]
        if not asked:
            return
        left = self._left()
        count = min(count, max(left.values()))
        self.state.expect(left)
        rows = self._bucket(max(left) + 1)
        reach = min(reach_of(max(self.reached) + count), self.state.room)
        state, kinds, part = self.state.part(rows), kinds_of(asked), self.rows.part(rows)
        filters = asked[0].filters

        def work() -> None:
            state.most, state.reach = 0, reach  # what is looked at goes by this, and not by how far a row has got
            step_rows(self.stepper, state, part, kinds, filters)

        def undo() -> None:
            part.restore(before)
            state.lengths.copy_(lengths)

        key = rows, reach, kinds, filters
        if self.replays is not None and key not in self.replays:
            before, lengths = part.copy(), state.lengths.clone()
            self.replays.capture(key, work, undo)
        for _ in range(count):
            work() if self.replays is None else self.replays.replay(key)
        for row, one in enumerate(self.held):
            self.reached[row] += count if one is not None else 0

    @torch.inference_mode()
    def retire(self) -> list[tuple[RowRequest, Hypothesis]]:
        """Who is done, with what was written; their rows are free.

        Of one whose logits were no numbers, or who had nothing to choose, it is raised; the others are told of next.
        """
        going = self.rows.going.tolist()
        leaving = [row for row, one in enumerate(self.held) if one is not None and not going[row]]
        if not leaving:
            return []
        at = torch.tensor(leaving, device=self.rows.ids.device)
        told = (self.rows.written, self.rows.text, self.rows.likely, self.rows.lost)
        counts, text, likely, lost = (one[at].cpu() for one in told)
        found = []
        for index, row in enumerate(leaving):
            request, written = self.held[row], int(counts[index])
            assert request is not None
            own = slice(len(request.prompt), len(request.prompt) + written)
            try:
                check_likely(likely[index, own])
                if lost[index] >= 0:
                    raise nothing_left(int(lost[index]))
            except InputError:
                self.state.forget([row])
                self._free([row])
                raise
            ids, scores = text[index, own].tolist(), tuple(likely[index, own].tolist())
            found.append((request, Hypothesis(tuple(ids), sum(scores), (row,) * written, scores, self.path)))
        self._free(leaving)
        self._compact()
        return found

    def _free(self, rows: Sequence[int]) -> None:
        """Nobody is in these rows any more."""
        for row in rows:
            self.held[row], self.reached[row] = None, 0
        self.state.lengths.index_fill_(0, torch.tensor(rows, device=self.rows.ids.device), 0)
        self.state.expect(self._left())

    @property
    def path(self) -> str:
        """How steps are made, in a word."""
        if not can_be_replayed(self.stepper):
            return "rows"
        return "graph" if self.replays is not None else "in place"

    def clear(self) -> None:
        """Let go of everybody."""
        self.held, self.reached = [None] * self.capacity.rows, [0] * self.capacity.rows
        self.rows.going.zero_()
        self.state.lengths.zero_()
        self.state.expect({})

    def _compact(self) -> None:
        """Bring those in high rows into free low ones, where a step is then made for fewer rows."""
        live = [row for row, one in enumerate(self.held) if one is not None]
        if not live:
            return
        bucket = self._bucket(len(live))
        if bucket >= self._bucket(live[-1] + 1):
            return
        moving = [row for row in live if row >= bucket]
        places = [row for row in range(bucket) if self.held[row] is None][: len(moving)]
        device = self.rows.ids.device
        rows, to = torch.tensor(moving, device=device), torch.tensor(places, device=device)
        self.state.move(moving, places)
        self.rows.move(rows, to)
        self.state.lengths.index_fill_(0, rows, 0)
        for row, place in zip(moving, places, strict=True):
            self.held[place], self.reached[place] = self.held[row], self.reached[row]
            self.held[row], self.reached[row] = None, 0

    def _bucket(self, rows: int) -> int:
        """How many rows a step is made for: a power of two, or all."""
        return min(1 << (rows - 1).bit_length(), self.capacity.rows)

    def _left(self) -> dict[int, int]:
        """How many more tokens each row that somebody is in may write, at most."""
        held = {row: one for row, one in enumerate(self.held) if one is not None}
        return {row: one.stop.max_new_tokens - (self.reached[row] - len(one.prompt) + 1) for row, one in held.items()}

    def _require_fit(self, one: RowRequest) -> None:
        room, source, limit = self.capacity.room, len(one.source or ()), self.stepper.model.config.position_limit
        if not one.prompt:
            raise InputError(
                "a prompt of no tokens has nothing to go on from", "begin it with the token that begins texts"
            )
        if one.length > room:
            raise InputError(
                f"a text of {len(one.prompt)} tokens and {one.stop.max_new_tokens} new ones does not fit into rows of "
                f"{room}",
                "make an engine with more room, or ask for fewer",
            )
        if limit is not None and one.length > limit:  # the last token is read too, while others go on
            raise InputError(
                f"a text of {len(one.prompt)} tokens and {one.stop.max_new_tokens} new ones is more than the {limit} "
                "positions that the model has",
                "ask for fewer",
            )
        if source > self.capacity.source or bool(source) != bool(self.capacity.source):
            raise InputError(
                f"a source of {source} tokens does not fit into rows with room for {self.capacity.source} of one",
                "make an engine with room for the source, or give the text one where the model reads it",
            )
        if len(one.stop.eos_ids) > ENDS:
            raise InputError(f"{len(one.stop.eos_ids)} tokens end a text", f"give {ENDS} at most")

    def _require_same_filters(self, requests: Sequence[RowRequest]) -> None:
        """Beside each other and beside those who are there: a step is made for all of them."""
        there = [one.filters for one in (*self.held, *requests) if one is not None]
        other = next((one for one in there if one != there[0]), None)
        if other is not None:
            raise InputError(
                f"a text with the filters {other} stands beside others with {there[0]}",
                "admit it when those have left, or to an engine of its own",
            )


KEPT: KeptEngines[RowEngine, Capacity] = KeptEngines()


def decode(model: Network, requests: Sequence[RowRequest]) -> list[Hypothesis]:
    """What is written to each request, in their order. The memory and the graphs are kept with the model."""
    if not requests:
        return []
    wanted = Capacity(
        1 << (len(requests) - 1).bit_length(),
        rounded(max(one.length for one in requests)),
        max(len(one.source or ()) for one in requests),
    )
    with KEPT.taken(model, wanted, lambda space: RowEngine(rows_of(model), space)) as engine:
        asked = [replace(one) for one in requests]  # the same request may be there twice
        engine.admit(asked)
        places = {id(one): place for place, one in enumerate(asked)}
        found: dict[int, Hypothesis] = {}
        while engine.busy:
            engine.step()
            found |= {places[id(request)]: hypothesis for request, hypothesis in engine.retire()}
    return [found[place] for place in range(len(requests))]

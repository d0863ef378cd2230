"""How an answer is written, for the page: every step's candidates under other settings, and the tree of a beam.

The logits of the steps are recorded once; what temperature, top-k and top-p make of them is computed anew from all of
them, not only from the likeliest. A path is forced by its ids, so that going on from an alternative reads exactly what
stood there.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.api.exploring.reading import ExploredText
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import ordered, watch_beam, watch_steps
from regard.decoding.filters import Generated, Renormalized
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.decoding.trace import BeamTree, BeamWatch, StepWatch, likeliest
from regard.errors import InputError
from regard.tasks.explaining import finished, words
from regard.views.decoding_page import story
from regard.views.decoding_tree import path, tree_svg
from regard.views.exploring.recorded import PageQuestion
from regard.views.figure import printable

CANDIDATES = 8
"""Of every step."""
PATHS = 4
"""Recorded paths that a reading keeps."""
MOST_STEPS = 200


class OfPath(PageQuestion):
    """A path: the ids it begins with, and how it goes on; and under which settings its steps are shown."""

    forced: tuple[int, ...] = ()
    written: Literal["greedy", "sample"] = "greedy"
    seed: int = Field(0, ge=0)
    temperature: float = Field(1.0, gt=0, le=10)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    new_tokens: int | None = Field(None, ge=1, le=MOST_STEPS)

    @property
    def drawn(self) -> Sample:
        """The settings as a strategy."""
        return Sample(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)


class OfBeam(PageQuestion):
    """A beam search."""

    beams: int = Field(4, ge=1, le=16)
    length_penalty: float = Field(1.0, ge=-5, le=5)
    forced: tuple[int, ...] = ()
    new_tokens: int | None = Field(None, ge=1, le=MOST_STEPS)


@dataclass(eq=False)
class LogitWatch(StepWatch):
    """Keeps the scores of every step as the strategy's own filters found them."""

    scores: list[Tensor] = field(default_factory=list)
    model: list[Tensor] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """What keeping it takes: of a large vocabulary more than the text's."""
        return sum(one.numel() * one.element_size() for one in [*self.scores, *self.model])

    def told(self, logits: Tensor, generated: Generated, chosen: int) -> None:
        """The same, and what came of the model's own filters."""
        first = Generated(generated.ids[:1], generated.prompt_lengths[:1], generated.limit[:1])
        scores = logits[:1].double()
        for one in self.filters:
            scores = one(scores, first)
        self.scores.append(scores)
        self.model.append(logits[:1].double().softmax(dim=-1))
        self.ids.append(chosen)


def path_record(reading: ExploredText, asked: OfPath) -> dict[str, Any]:
    """The steps of a path, each with its likeliest candidates, by the model alone and under the settings asked for."""
    model = reading.model
    watch = _recorded(reading, asked)
    tokenizer = model.tokenizer
    nothing = Generated(torch.zeros(1, 0, dtype=torch.long), torch.zeros(1).long(), torch.ones(1).long())
    steps = []
    for token, scores, own in zip(watch.ids, watch.scores, watch.model, strict=True):
        settled = scores
        for one in asked.drawn.filters:
            settled = one(settled, nothing)
        shares = settled.softmax(dim=-1)[0]
        listed = likeliest(own[0], CANDIDATES)
        listed = listed if token in listed else [*listed, token]
        steps.append(
            {
                "token": tokenizer.token_text(token),
                "id": token,
                "left": int((shares > 0).sum()),
                "candidates": [
                    {
                        "id": id,
                        "token": tokenizer.token_text(id),
                        "model": float(own[0, id]),
                        "share": float(shares[id]),
                    }
                    for id in listed
                ],
            }
        )
    ids = [*asked.forced, *watch.ids]
    return {
        "forced": [{"id": one, "token": tokenizer.token_text(one)} for one in asked.forced],
        "steps": steps,
        "vocabulary": watch.scores[0].shape[-1] if watch.scores else 0,
        "output": tokenizer.decode([one for one in ids if one != tokenizer.eos_id]),
    }


def _recorded(reading: ExploredText, asked: OfPath) -> LogitWatch:
    """The path's logits: those that are kept, or those of a decoding now."""
    settings = () if asked.written == "greedy" else (asked.seed, asked.temperature, asked.top_k, asked.top_p)
    key = ("path", asked.forced, asked.written, asked.new_tokens, settings)
    kept = reading.kept
    if key not in kept:
        while sum(one[0] == "path" for one in kept) >= PATHS:
            del kept[next(one for one in kept if one[0] == "path")]
        kept[key] = _decoded(reading, asked)
    found: LogitWatch = kept[key]
    return found


@torch.no_grad()
def _decoded(reading: ExploredText, asked: OfPath) -> LogitWatch:
    model = reading.model
    task = model.writer
    strategy = task.strategy(model, Greedy() if asked.written == "greedy" else asked.drawn)
    assert isinstance(strategy, Greedy | Sample)
    inputs, stepper = _begun(reading, asked.forced), task.stepper(model)
    stop, filters = task.limits(model, stepper, inputs, _limit(reading, asked.new_tokens))
    watch = LogitWatch(tuple(one for one in ordered(filters, strategy) if not isinstance(one, Renormalized)), str)
    watch_steps(stepper, inputs, strategy, stop, filters, watch)
    return watch


def _limit(reading: ExploredText, asked: int | None) -> int | None:
    """How many tokens are written: as many as the reading's answer, where nobody says."""
    if asked is not None or not reading.model.task.continues:
        return asked
    return reading.new_tokens or 20


def _begun(reading: ExploredText, forced: tuple[int, ...]) -> Inputs:
    """What the model reads, and the ids that stand there already."""
    model = reading.model
    if len(forced) > MOST_STEPS:
        raise InputError(
            f"{len(forced):,} tokens were chosen already", f"choose up to {MOST_STEPS}, or read them as text"
        )
    if any(one >= model.module.config.vocabulary or one < 0 for one in forced):
        raise InputError(f"one of {list(forced)[:8]} is no token", f"use 0 to {model.module.config.vocabulary - 1}")
    inputs = model.writer.begun(model, [reading.text]).to(model.device)
    if not forced:
        return inputs
    row = [*inputs.tokens.rows()[0], *forced]
    return Inputs(Padded.of([row], side=inputs.tokens.side), inputs.source).to(model.device)


@torch.no_grad()
def beam_record(reading: ExploredText, asked: OfBeam) -> dict[str, Any]:
    """The tree as a picture, with what happened in sentences, and the ids that lead to every branch."""
    model = reading.model
    task, strategy = model.writer, Beam(asked.beams, asked.length_penalty)
    chosen = task.strategy(model, strategy)
    assert isinstance(chosen, Beam)
    inputs, stepper = _begun(reading, asked.forced), task.stepper(model)
    stop, filters = task.limits(model, stepper, inputs, _limit(reading, asked.new_tokens))
    watch = BeamWatch(model.tokenizer.token_text, chosen)
    found = watch_beam(stepper, inputs, chosen, stop, filters, watch)
    ended = finished(watch, found, lambda one: model.tokenizer.decode(list(task.written(model, one))))
    tree = BeamTree(reading.text, words(chosen), chosen.size, chosen.length_penalty, tuple(watch.branches), ended)
    paths = {
        one.number: [*asked.forced, *(tree.branches[node - 1].id for node in path(tree, one.number))]
        for one in tree.branches
    }
    return {
        "svg": tree_svg(tree),
        "story": [printable(one) for one in story(tree)],
        "answers": [asdict(one) for one in tree.finished],
        "paths": paths,
        "tokens": {one.number: one.token for one in tree.branches},
    }

"""Runs small enough for tests: a real translator of letters, and a model of one number whose course is known."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from regard.data.batching import Batch, Inputs, Padded
from regard.data.corpus import corpus
from regard.data.objectives import SourceToTarget
from regard.data.stream import BatchStream, Position, by_length
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.task import held_out
from regard.tasks.translation import train_tokenizer
from regard.training.loop import Run
from regard.training.plan import TrainingPlan
from regard.training.reports import Listener, Report
from regard.training.trainable import Loss, TokenPrediction


@dataclass
class Ear:
    """A listener that remembers."""

    reports: list[Report] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __call__(self, report: Report) -> None:
        self.reports.append(report)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


# A real model on a small corpus

LETTERS = corpus("copy", {"symbols": 5, "shortest": 2, "longest": 6, "held_out": 23})
TOKENIZER = train_tokenizer(LETTERS, 270, 53)
HOW = SourceToTarget(TOKENIZER)
VALID = [HOW.batch(batch) for batch in by_length(HOW.encode(held_out(LETTERS, "valid")), HOW, 256)]
PLAN = {
    "steps": 9,
    "learning_rate": 3e-3,
    "warmup": 3,
    "schedule": "cosine",
    "evaluate_every": 4,
    "save_every": 3,
    "keep": 3,
    "batch_tokens": 128,
}


def real(folder: Path, *, listener: Listener | None = None, seed: int = 7, **plan: object) -> Run:
    """A tiny translator with dropout, so that the random state matters."""
    torch.manual_seed(seed)
    shape = TransformerConfig(vocabulary=TOKENIZER.size, width=16, heads=2, layers=1, feedforward_width=11, dropout=0.2)
    whole = TrainingPlan.model_validate(PLAN | plan)
    batches = BatchStream(LETTERS, HOW, whole.batch_tokens)
    return Run(
        TokenPrediction(Transformer(shape), label_smoothing=0.1), batches, VALID, whole, folder, listener or Ear()
    )


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[dict[str, float]]:
    """The metrics that must be equal in two runs: all but the speed."""
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines(folder)]


def states(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "state").iterdir())


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit: the best weights, the last state, the recorded losses."""
    files = ["model.safetensors", *(f"state/step-9/{name}.safetensors" for name in ("model", "optimizer", "random"))]
    for name in files:
        first, second = load_file(one / name), load_file(other / name)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), name
    assert losses(one) == losses(other)


# A model of one number, whose course is known


class Climber(nn.Module):
    """One number that training pushes up by the learning rate at every step; validation likes it best at 0.31."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(()))


@dataclass
class Climb:
    module: Climber
    fails_at: float = math.inf

    def loss(self, batch: Batch) -> Loss:
        place = self.module.place
        if float(place.detach()) > self.fails_at:
            return Loss(place * math.nan, 3)
        return Loss(-place * 3 if self.module.training else (place - 0.31) ** 2 * batch.count, batch.count)


BATCH = Batch(Inputs(Padded.of([[1, 2, 3]])), torch.tensor([[5, 6, 7]]))


@dataclass(frozen=True)
class Same:
    """The same batches for ever."""

    batches: tuple[Batch, ...] = (BATCH,)

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        number = position.batch
        while True:
            yield self.batches[number % len(self.batches)], Position(0, number + 1)
            number += 1


def climb(folder: Path, **plan: object) -> Run:
    fixed = {"steps": 7, "learning_rate": 0.1, "warmup": 0, "schedule": "constant", "weight_decay": 0.0}
    fixed |= {"evaluate_every": 1, "save_every": 1}
    return Run(Climb(Climber()), Same(), [BATCH], TrainingPlan.model_validate(fixed | plan), folder, Ear())

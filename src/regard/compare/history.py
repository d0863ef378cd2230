"""From the plain RNN to the Transformer: what each rung of the ladder can do, and what it takes.

Four things are measured of every trained rung: exact match by the length of the source (figure 2 of Bahdanau et al.
2014), the gradient that reaches a source token by its distance, operations that must wait for each other with the time
a token takes, and what training took. `Summary` has the numbers and the sentences that they say.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.api.model import Model
from regard.compare import rungs, sentences
from regard.compare.bootstrap import band
from regard.compare.chain import sequential_operations
from regard.compare.climb import Climb, Entry, Measure
from regard.compare.gradients import gradient_norms
from regard.compare.speed import seconds_per_token
from regard.data.corpus import Pair
from regard.data.objectives import SourceToTarget
from regard.devices import device_in_words
from regard.tasks.pairs import open_corpus
from regard.tasks.task import held_out

DISTANCES = (2, 4, 8, 16, 30, 50, 70, 100, 130, 160, 200)
"""Tokens that are read and written from a source token to the one that needs it."""
GRADIENT_ROWS = 16
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
BATCH_TOKENS = 4096
BUCKETS = 9
"""Into how many groups of lengths the held-out rows are put, three in each third."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    distances: Sequence[int] = DISTANCES
    gradient_rows: int = GRADIENT_ROWS
    lengths: Sequence[int] = LENGTHS
    batch_tokens: int = BATCH_TOKENS
    most_examples: int | None = None


def measures(scale: Scale) -> dict[str, Measure]:
    """What every rung is asked."""
    return {
        "quality": lambda model: quality(model, scale.most_examples),
        "gradients": lambda model: gradients(model, scale),
        "operations": lambda model: [sequential_operations(model.module, length) for length in scale.lengths],
        "time": lambda model: timed(model, scale),
    }


def quality(model: Model, most: int | None = None) -> dict[str, list[Any]]:
    """Of every held-out row: its length, whether the answer is right, and the share of its letters that are."""
    assert model.data is not None
    pairs: list[Pair] = held_out(open_corpus(model.data), "test", most)
    answers = model.run([pair.source for pair in pairs])
    return {
        "length": [len(pair.source.split()) for pair in pairs],
        "exact": [int(answer == pair.target) for answer, pair in zip(answers, pairs, strict=True)],
        "letters": [round(letters_right(answer, pair.target), 4) for answer, pair in zip(answers, pairs, strict=True)],
    }


def letters_right(answer: str, target: str) -> float:
    """The share of the target's letters that stand at their place in the answer."""
    expected, found = target.split(), answer.split()
    return sum(one == other for one, other in zip(expected, found, strict=False)) / len(expected)


def gradients(model: Model, scale: Scale) -> dict[str, list[float]]:
    """The norms at the scale's distances, in rows so long that the largest is among them: of the network with weights
    as they are drawn, which is what learning has to begin with, and of the trained one.
    """
    length = max(scale.distances) // 2
    assert model.data is not None
    pairs = rungs.pairs_of(length, scale.gradient_rows, model.data.options)
    how = SourceToTarget(model.tokenizer)
    places = {rungs.distance(place, length): place for place in range(length)}
    asked = [(places[one], rungs.needed(places[one], length)) for one in scale.distances]
    inputs = how.batch(how.encode(pairs)).inputs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = model.module.config.build()
    return {"drawn": gradient_norms(drawn, inputs, asked), "trained": gradient_norms(model.module, inputs, asked)}


def timed(model: Model, scale: Scale) -> dict[str, Any]:
    """Microseconds for a token, forward and backward, at every length, and where."""
    found = [1e6 * seconds_per_token(model.module, length, scale.batch_tokens) for length in scale.lengths]
    return {"microseconds": [round(one, 4) for one in found], "device": device_in_words(model.device)}


@dataclass(frozen=True)
class Share:
    """The right answers among rows of some lengths, with a bootstrap band of 95 %."""

    shortest: int
    longest: int
    rows: int
    exact: float
    low: float
    high: float
    letters: float

    @property
    def middle(self) -> float:
        """Where it is drawn."""
        return (self.shortest + self.longest) / 2

    def record(self) -> dict[str, Any]:
        """For a program."""
        return dict(vars(self))


def shares(found: Mapping[str, list[Any]], ranges: Sequence[tuple[int, int]], seed: int = 0) -> list[Share]:
    """For every range of lengths that has rows."""
    result = []
    for number, (shortest, longest) in enumerate(ranges):
        inside = [place for place, length in enumerate(found["length"]) if shortest <= length <= longest]
        if inside:
            exact = [found["exact"][place] for place in inside]
            letters = [found["letters"][place] for place in inside]
            low, high = band(exact, seed=seed + number)
            share, of_letters = sum(exact) / len(exact), sum(letters) / len(letters)
            result.append(Share(shortest, longest, len(inside), share, low, high, of_letters))
    return result


def ranges_of(shortest: int, longest: int, parts: int) -> list[tuple[int, int]]:
    """All lengths in so many parts of nearly the same size, or one part for each where there are fewer."""
    count = longest - shortest + 1
    parts = min(parts, count)
    ends = [shortest + count * part // parts for part in range(parts + 1)]
    return [(first, after - 1) for first, after in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Rung:
    """What is known of one rung."""

    key: str
    rate: float
    buckets: list[Share]
    thirds: list[Share]
    gradients: dict[int, float]
    """Where training begins."""
    gradients_trained: dict[int, float]
    operations: dict[int, int]
    microseconds: dict[int, float]
    training: dict[str, Any]

    @property
    def name(self) -> str:
        """What people read."""
        return rungs.NAMES[self.key]

    def record(self) -> dict[str, Any]:
        """For a program."""
        return {
            "rung": self.key,
            "name": self.name,
            "learning_rate": self.rate,
            "thirds": [one.record() for one in self.thirds],
            "buckets": [one.record() for one in self.buckets],
            "gradient_norm": self.gradients,
            "gradient_norm_trained": self.gradients_trained,
            "sequential_operations": self.operations,
            "microseconds_per_token": self.microseconds,
            **self.training,
        }


@dataclass(frozen=True)
class History:
    """The whole ladder, measured."""

    rungs: list[Rung]
    task: str
    budget: str
    timed_on: str
    batch_tokens: int

    def sentences(self) -> dict[str, str]:
        """One under each panel."""
        named = {one.key: one for one in self.rungs}
        return {
            "quality": sentences.on_quality(
                {key: [(one.shortest, one.longest, one.exact) for one in rung.thirds] for key, rung in named.items()}
            ),
            "gradients": sentences.on_gradients(
                {key: rung.gradients for key, rung in named.items()},
                {key: rung.gradients_trained for key, rung in named.items()},
            ),
            "time": sentences.on_time(
                {key: rung.operations for key, rung in named.items()},
                {key: rung.microseconds for key, rung in named.items()},
            ),
            "cost": sentences.on_cost({key: rung.training for key, rung in named.items()}),
        }

    def record(self) -> dict[str, Any]:
        """For a program."""
        return {
            "task": self.task,
            "budget": self.budget,
            "timed_on": self.timed_on,
            "batch_tokens": self.batch_tokens,
            "rungs": [one.record() for one in self.rungs],
            "sentences": self.sentences(),
        }


def climb(entries: Sequence[Entry], found: Mapping[str, Mapping[str, Any]], scale: Scale) -> History:
    """The numbers of a climb, put in order."""
    plan, table = entries[0].recipe.training, entries[0].recipe.given
    shortest, longest = (int(table.options[key]) for key in ("shortest", "longest"))
    made = []
    for entry in entries:
        one = found[entry.name]
        made.append(
            Rung(
                entry.name,
                entry.recipe.training.learning_rate,
                shares(one["quality"], ranges_of(shortest, longest, BUCKETS)),
                shares(one["quality"], ranges_of(shortest, longest, 3)),
                dict(zip(scale.distances, one["gradients"]["drawn"], strict=True)),
                dict(zip(scale.distances, one["gradients"]["trained"], strict=True)),
                dict(zip(scale.lengths, one["operations"], strict=True)),
                dict(zip(scale.lengths, one["time"]["microseconds"], strict=True)),
                one["training"],
            )
        )
    task = f"{table.corpus}: rows of {shortest} to {longest} letters, one token each"
    budget = f"{plan.steps:,} steps of up to {plan.batch_tokens:,} places, the same batches for all"
    devices = " and ".join(dict.fromkeys(str(found[entry.name]["time"]["device"]) for entry in entries))
    return History(made, task, budget, devices, scale.batch_tokens)


def history(climbing: Climb, scale: Scale | None = None) -> History:
    """Train what is not trained, measure what is not measured."""
    scale = scale or Scale()
    return climb(climbing.entries, climbing.run(measures(scale)), scale)


def ladder(changes: list[str] | None = None) -> list[Entry]:
    """All rungs."""
    return [rungs.rung(name, None, changes) for name in rungs.MODELS]

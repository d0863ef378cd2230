"""Any recipes of one task, each with several values of a key if asked for and with several seeds, side by side."""

import itertools
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.api.model import Model
from regard.compare.climb import Climb, Entry
from regard.errors import ConfigError, InputError
from regard.tasks.own_data import own_examples
from regard.tasks.recipe import read_recipe
from regard.tasks.task import task_of
from regard.training.journal import read_metrics

MOST = 12
"""What one figure can tell apart."""
_AWKWARD = re.compile(r"[^\w.=+-]+")


@dataclass(frozen=True)
class Contestant:
    """A recipe with its values, trained with one of the seeds."""

    name: str
    """What its runs with all seeds share."""
    seed: int
    entry: Entry


@dataclass(frozen=True)
class Spread:
    """A figure over seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The middle of them."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Of the sample; unknown of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def record(self) -> dict[str, Any]:
        """For a program."""
        return {"mean": self.mean, "sd": self.deviation, "values": list(self.values)}


@dataclass(frozen=True)
class Compared:
    """What is known of a recipe, over its seeds."""

    name: str
    figures: Mapping[str, Spread]
    """The task's on held-out data, and what training took."""
    losses: Mapping[int, Spread]
    """In validation, by the step."""

    def record(self) -> dict[str, Any]:
        """For a program."""
        figures = {name: one.record() for name, one in self.figures.items()}
        losses = {step: one.record() for step, one in self.losses.items()}
        return {"name": self.name, **figures, "validation_losses": losses}


@dataclass(frozen=True)
class Comparison:
    """All of them."""

    task: str
    data: str
    seeds: int
    metrics: tuple[str, ...]
    compared: list[Compared]

    def record(self) -> dict[str, Any]:
        """For a program."""
        return {
            "task": self.task,
            "data": self.data,
            "seeds": self.seeds,
            "metrics": list(self.metrics),
            "recipes": [one.record() for one in self.compared],
        }


def contestants(names: Sequence[str], over: Sequence[str], seeds: int, changes: Sequence[str]) -> list[Contestant]:
    """Every recipe with every value and every seed; what cannot be compared is refused before anything is trained."""
    choices = [_values(one) for one in over]
    if len(names) * len(choices) == 0 and len(names) < 2:
        raise InputError(
            f"recipe {names[0]!r} alone is compared with nothing",
            "name another, or give several values of a key, such as model.positions=rotary,alibi",
        )
    found = []
    for name in names:
        for chosen in itertools.product(*choices):
            called = ", ".join([*([Path(name).stem] if len(names) > 1 else []), *chosen])
            for seed in range(seeds):
                seeded = [f"training.seed={seed}"] if seeds > 1 else []
                recipe = read_recipe(name, [*changes, *chosen, *seeded])
                folder = _AWKWARD.sub("-", called) + (f"-seed{seed}" if seeds > 1 else "")
                found.append(Contestant(called, seed, Entry(folder, recipe)))
    _refuse(names, found)
    return found


def _values(over: str) -> list[str]:
    """`a.b=c,d` as the changes `a.b=c` and `a.b=d`."""
    key, equals, text = over.partition("=")
    values = [value for value in _parted(text) if value]
    if not equals or not key.strip():
        raise InputError(f"{over!r} names no key to compare values of", "write it as table.key=value,value")
    if len(values) < 2:
        count = "one value" if values else "no value"
        raise InputError(f"{over!r} has {count}, which is compared with nothing", f"give several: {key}=A,B")
    return [f"{key.strip()}={value}" for value in values]


def _parted(text: str) -> list[str]:
    """Values between commas; those inside brackets, as a mechanism with options has them, part nothing.

    >>> _parted('exact, {name = "longformer", window = 64}')
    ['exact', '{name = "longformer", window = 64}']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _refuse(names: Sequence[str], found: Sequence[Contestant]) -> None:
    first = found[0].entry.recipe
    for name in names:
        other = read_recipe(name)
        if other.task.name != first.task.name:
            raise InputError(
                f"{names[0]} is of task {first.task.name!r} and {name} of task {other.task.name!r}, which have no "
                f"figure in common",
                "compare recipes of one task",
            )
    called = list(dict.fromkeys(one.name for one in found))
    if len(called) > MOST:
        raise InputError(f"{len(called)} recipes cannot be told apart in one figure", f"compare at most {MOST}")
    for one in found:
        _ = one.entry.recipe.given  # there are data
        task = task_of(one.entry.recipe.task)
        try:
            if one.entry.recipe.model.begins_in is None:
                task.check_shape(one.entry.recipe.model)
            task.check_metric(one.entry.recipe)
        except ConfigError as error:
            raise ConfigError(f"{one.name}: {error.problem}", error.remedy) from error


def compare(given: Sequence[Contestant], climbing: Climb) -> Comparison:
    """Train what is not trained, measure what is not measured."""
    found = climbing.run({"held_out": measured})
    names = list(dict.fromkeys(one.name for one in given))
    compared = []
    metrics: dict[str, None] = {}
    for name in names:
        runs = [one for one in given if one.name == name]
        held = [found[one.entry.name]["held_out"]["metrics"] for one in runs]
        took = [found[one.entry.name]["training"] for one in runs]
        metrics |= dict.fromkeys(held[0])
        figures = {key: Spread(tuple(float(one[key]) for one in held)) for key in held[0]}
        for key in ("validation_loss", "parameters", "tokens_per_second", "seconds", "peak_bytes"):
            values = tuple(float(one[key]) for one in took if one.get(key) is not None)
            if values:
                figures[key] = Spread(values)
        losses = _losses([climbing.folder / one.entry.name for one in runs])
        compared.append(Compared(name, figures, losses))
    data = dict.fromkeys(found[one.entry.name]["held_out"]["data"] for one in given)
    task, seeds = given[0].entry.recipe.task.name, 1 + max(one.seed for one in given)
    return Comparison(task, " and ".join(data), seeds, tuple(metrics), compared)


def measured(model: Model) -> dict[str, Any]:
    """The task's figures on held-out data of the model's own."""
    assert model.recipe is not None
    examples, name = own_examples(model.task, model.recipe)
    return {"data": name, "examples": len(examples), "metrics": model.evaluate(examples)}


def _losses(folders: Sequence[Path]) -> dict[int, Spread]:
    """In validation, at the steps that all runs have."""
    runs = [
        {int(line["step"]): line["validation_loss"] for line in read_metrics(folder) if "validation_loss" in line}
        for folder in folders
    ]
    return {step: Spread(tuple(run[step] for run in runs)) for step in runs[0] if all(step in run for run in runs)}

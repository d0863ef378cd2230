"""What a recipe reads, before anything is trained: how much there is, how long it is, what is in it, what is cut."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.data.corpus import Examples, Split
from regard.tasks.files import settle
from regard.tasks.recipe import Recipe, change_recipe, read_recipe
from regard.tasks.task import EVERY_SPLIT, Task, task_of
from regard.text.pretrained import open_any
from regard.text.tokenizer import Tokenizer

MOST = 5_000
"""Examples of a split that are tokenised; of data without end, so many are looked at."""
SHOWN = 3


@dataclass(frozen=True)
class Lengths:
    """Of one part of the examples, in tokens."""

    part: str
    shortest: int
    mean: float
    median: int
    most: int
    """What nine in ten are no longer than."""
    longest: int


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    split: str
    examples: int | None
    """None: data without end."""
    measured: int
    """Examples whose tokens were counted."""
    lengths: tuple[Lengths, ...]
    cut: tuple[str, ...]
    """What is not read as it stands, and why."""


@dataclass(frozen=True)
class DataReport:
    """All a recipe reads."""

    task: str
    source: str
    notes: tuple[str, ...]
    vocabulary: int
    splits: tuple[SplitReport, ...]
    examples: tuple[dict[str, str], ...]

    def record(self) -> dict[str, Any]:
        """For a program."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """For people."""
        found = [f"{self.task}, from {self.source}; a vocabulary of {self.vocabulary:,} tokens", *self.notes]
        for one in self.splits:
            count = "examples without end" if one.examples is None else f"{one.examples:,} examples"
            part = "" if one.measured == one.examples else f"; tokens of the first {one.measured:,}"
            found.append(f"{one.split}: {count}{part}")
            found += [
                f"  {each.part}: {each.shortest:,} to {each.longest:,} tokens, mean {each.mean:,.1f}, "
                f"median {each.median:,}, nine in ten at most {each.most:,}"
                for each in one.lengths
            ]
            found += [f"  {sentence}" for sentence in one.cut]
        for number, example in enumerate(self.examples, start=1):
            found.append(f"example {number}")
            found += [f"  {part}: {text}" for part, text in example.items()]
        return found


def report_data(
    recipe: str | Recipe, *, changes: list[str] | None = None, data: Sequence[str | Path] | None = None
) -> DataReport:
    """Read a recipe's data as training would, learn its tokenizer, and tell what there is."""
    files = None if data is None else [str(one) for one in data]
    asked = change_recipe(recipe, changes, files) if isinstance(recipe, Recipe) else read_recipe(recipe, changes, files)
    plan, said = settle(asked)
    table = plan.given
    task = task_of(plan.task)
    found = task.open(plan)
    begun = plan.model.begins_in
    tokenizer = task.tokenizer(plan, found) if begun is None else task.adopt(open_any(Path(begun)), str(begun))
    splits = tuple(_split(plan, task, found, split, tokenizer) for split in EVERY_SPLIT if found.size(split) != 0)
    examples = tuple(
        {part: " ".join(text.split())[:200] for part, text in task.shown(one).items()}
        for one in _first(found, "train", SHOWN)
    )
    names = table.corpus or " and ".join([table.train] if isinstance(table.train, str) else table.train or ())
    return DataReport(task.name, names, (*said, *task.describe(plan, found)), tokenizer.size, splits, examples)


def _first(data: Examples, split: Split, most: int) -> list[Any]:
    size = data.size(split)
    return [data.example(split, index) for index in islice(range(most if size is None else size), most)]


def _split(plan: Recipe, task: Task[Any], data: Examples, split: Split, tokenizer: Tokenizer) -> SplitReport:
    examples = _first(data, split, MOST)
    parts: dict[str, list[str]] = {}
    for one in examples:
        for part, text in task.shown(one).items():
            parts.setdefault(part, []).append(text)
    counted = {part: [len(ids) for ids in tokenizer.encode_batch(texts)] for part, texts in parts.items()}
    lengths = tuple(_lengths(part, counts) for part, counts in counted.items())
    return SplitReport(split, data.size(split), len(examples), lengths, tuple(task.cuts(plan, examples, tokenizer)))


def _lengths(part: str, counts: Sequence[int]) -> Lengths:
    ranked = sorted(counts)
    return Lengths(part, ranked[0], fmean(ranked), ranked[len(ranked) // 2], ranked[-1 - len(ranked) // 10], ranked[-1])

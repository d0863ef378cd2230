"""Texts with a label each, and batches of them for a classifier.

    text     a label, a blank, the text on each line
    tsv      text, tab, label on each line
    jsonl    {"text": …, "label": …} on each line

`auto` goes by the name of the file: .jsonl and the like, .tsv, else text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.batching import Batch, Inputs, Padded
from regard.data.corpus import Pair
from regard.data.objectives import Example, Objective
from regard.data.reading import read_lines
from regard.data.sources import JSON_NAMES, read_pairs, read_records
from regard.errors import ConfigError, FileError, InputError, choose

MOST_LABELS = 10_000
"""More different ones are a sign that the columns are the wrong way round."""


def read_labelled(path: Path, format: str = "auto") -> list[Pair]:
    """The texts of a file, each with its label as the target."""
    name = path.name.lower().removesuffix(".gz")
    if format == "auto":
        format = "jsonl" if name.endswith(JSON_NAMES) else "tsv" if name.endswith(".tsv") else "text"
    if format == "tsv":
        return read_pairs(path, "tsv")
    if format == "jsonl":
        return [Pair(text, label) for text, label in read_records(path, ("text", "label"))]
    if format != "text":
        raise ConfigError(f"format {format!r} has no labels", "use text, tsv or jsonl")
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        label, _, text = line.partition(" ")
        if not label.strip() or not text.strip():
            raise FileError(f"{path}, line {number} is not a label and a text", "write a label, a blank, the text")
        pairs.append(Pair(text, label))
    return pairs


def labels_of(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The different labels, in order."""
    found = sorted({pair.target for pair in pairs})
    if not 2 <= len(found) <= MOST_LABELS:
        raise ConfigError(
            f"the training data have {len(found)} different labels", f"give between 2 and {MOST_LABELS:,} of them"
        )
    return tuple(found)


@dataclass(frozen=True)
class Labelling(Objective):
    """`[CLS] text [SEP]`, its label to predict; of a text that is longer than the window, what fits in."""

    labels: tuple[str, ...] = ()
    window: int = 256

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """Texts as ids and labels as their places among the labels."""
        rows = self.sources([pair.source for pair in pairs])
        places = [self._place(pair.target, number) for number, pair in enumerate(pairs, start=1)]
        return [Example(ids, [place]) for ids, place in zip(rows, places, strict=True)]

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with their special tokens."""
        room = self.window - self.tokenizer.added()
        if room < 1:
            raise ConfigError(
                f"a window of {self.window} tokens has no room for a text between its {self.tokenizer.added()} "
                "special tokens",
                "raise data.window",
            )
        return [self.tokenizer.apply_template(ids[:room])[0] for ids in super().sources(texts)]

    def cost(self, example: Example) -> int:
        """The text with its special tokens."""
        return len(example.source)

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Texts side by side; the one column of targets has their labels."""
        source = Padded.of([example.source for example in examples], fill=self.tokenizer.pad_id)
        return Batch(Inputs(source), Padded.of([example.target for example in examples]).ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Texts side by side."""
        return Inputs(Padded.of(self.sources(sources), fill=self.tokenizer.pad_id))

    def _place(self, label: str, number: int) -> int:
        if label not in self.labels:
            raise InputError(
                f"example {number}: label {label[:40]!r} is not one the model knows", choose(label, self.labels[:20])
            )
        return self.labels.index(label)

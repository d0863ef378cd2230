"""Texts with a label each, and batches of them for a classifier.

    text     a label, a blank, the text on each line
    tsv      text, tab, label on each line; with `auto`, also the other way round
    csv      a header, then rows; columns by name
    jsonl    {"text": …, "label": …} on each line

`auto` goes by a file's name and by what it holds (see `tables.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.batching import Batch, Inputs, Padded
from regard.data.corpus import Pair
from regard.data.objectives import Example, Objective
from regard.data.reading import read_lines
from regard.data.tables import TABLES, look, read_columns
from regard.errors import ConfigError, FileError, InputError, changing, choose

LABELLED = ("text", "label")
MOST_LABELS = 10_000
"""More different ones are a sign that the columns are the wrong way round."""
SEVERAL = 20
"""Examples of which more than half cannot have a label of their own."""


def read_labelled(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> list[Pair]:
    """The texts of a file, each with its label as the target."""
    if format not in ("auto", "text", *TABLES):
        raise ConfigError(f"format {format!r} has no labels", "use text, tsv, csv or jsonl")
    layout = look(path, LABELLED, format, columns)
    if layout.format != "text":
        return [Pair(*texts) for _, texts in read_columns(path, LABELLED, layout)]
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
    if len(found) == 1:
        raise ConfigError(
            f"every one of the {len(pairs):,} training examples has the label {found[0][:40]!r}",
            "give examples of two labels or more",
        )
    if len(found) > MOST_LABELS or (len(pairs) >= SEVERAL and len(found) > len(pairs) / 2):
        raise ConfigError(
            f"the {len(pairs):,} training examples have {len(found):,} different labels, such as {found[0][:40]!r}",
            f"say which column has the labels with {changing('data.columns.label', 'NAME')}",
        )
    return tuple(found)


@dataclass(frozen=True)
class Labelling(Objective):
    """`[CLS] text [SEP]`, its label to predict; of a text that is longer than the window, what fits in."""

    labels: tuple[str, ...] = ()
    window: int = 256
    round_to: int = 1
    """Texts are padded to a multiple of so many tokens, or to the window."""

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
        """The text with its special tokens, rounded up."""
        return self._rounded(len(example.source))

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Texts side by side; the one column of targets has their labels."""
        source = self._padded([example.source for example in examples])
        return Batch(Inputs(source), Padded.of([example.target for example in examples]).ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Texts side by side."""
        return Inputs(self._padded(self.sources(sources)))

    def _padded(self, rows: list[list[int]]) -> Padded:
        return Padded.of(rows, fill=self.tokenizer.pad_id, least=max(self._rounded(len(row)) for row in rows))

    def _rounded(self, tokens: int) -> int:
        return max(tokens, min(-(-tokens // self.round_to) * self.round_to, self.window))

    def _place(self, label: str, number: int) -> int:
        if label not in self.labels:
            raise InputError(
                f"example {number}: label {label[:40]!r} is not one the model knows", choose(label, self.labels[:20])
            )
        return self.labels.index(label)

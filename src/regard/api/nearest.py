"""Lines nearest in meaning to a query: by the cosine of one vector for each (Reimers & Gurevych 2019, §3).

However long a file is, a few hundred of its lines are in memory, and the best so far.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch.nn import functional as F

from regard.data.columnar import columnar_format, read_texts_of_rows
from regard.data.reading import each_line
from regard.data.tables import look, read_columns
from regard.errors import InputError
from regard.tasks.generation import TOGETHER
from regard.tasks.sentence_embedding import SentenceEmbeddingTable, sentence_vectors
from regard.tasks.task import Loaded

SORTED = 16 * TOGETHER
"""Lines of which those of like length are read together."""


@dataclass(frozen=True)
class Nearest:
    """A line, where it stands, and the cosine of its vector with the query's."""

    line: int
    score: float
    text: str


@dataclass(frozen=True)
class Searched:
    """What was found, best first, in how many lines, and what is to be known of how."""

    found: tuple[Nearest, ...]
    lines: int
    cut: int
    """Lines of which only a beginning was read."""
    notes: tuple[str, ...] = ()


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text that are not blank, or the texts of a table, with their numbers."""
    kind = columnar_format(path)
    layout = look(path, ("text",))
    if kind is not None:
        yield from ((number, texts[0]) for number, texts in read_texts_of_rows(path, kind, ("text",), layout.columns))
    elif layout.format != "text":
        yield from ((number, texts[0]) for number, texts in read_columns(path, ("text",), layout))
    else:
        yield from ((number, line) for number, line in enumerate(each_line(path), start=1) if line.strip())


def pooling_of(model: Loaded, pooling: str | None) -> tuple[SentenceEmbeddingTable, tuple[str, ...]]:
    """How one vector is made of a text, and what to say of it where the model was not trained for that."""
    options, config = model.task.options, model.module.config
    if config.reads_source:
        raise InputError("this model reads a source to write a target, and has no vector of a text", "use an encoder")
    notes: tuple[str, ...] = ()
    if not isinstance(options, SentenceEmbeddingTable):
        options = SentenceEmbeddingTable.model_validate({})
        kind = (
            "a decoder, whose tokens see only what is before them" if config.decodes else "an encoder for another task"
        )
        notes = (f"this model is {kind}: a text's vector is the {pooling or 'mean'} of its tokens' last layer",)
    if pooling is not None:
        options = options.model_copy(update={"pooling": pooling})
    if config.position_limit is not None and options.max_seq_length is None:
        options = options.model_copy(update={"max_seq_length": config.position_limit})
    return options, notes


@torch.no_grad()
def nearest(
    model: Loaded, lines: Iterable[tuple[int, str]], query: str, count: int = 10, pooling: str | None = None
) -> Searched:
    """The `count` lines nearest to the query; equals in the order of the lines."""
    if not query.strip():
        raise InputError("the query is empty", "say what to look for")
    options, notes = pooling_of(model, pooling)
    wanted = F.normalize(sentence_vectors(model, options, [query]).float(), dim=-1)[0]
    best: list[tuple[float, int, str]] = []
    seen = cut = 0
    stream = iter(lines)
    while group := list(islice(stream, SORTED)):
        seen += len(group)
        group.sort(key=lambda entry: len(entry[1]))
        for first in range(0, len(group), TOGETHER):
            rows = group[first : first + TOGETHER]
            cut += _cut(model, options, [text for _, text in rows])
            vectors = F.normalize(sentence_vectors(model, options, [text for _, text in rows]).float(), dim=-1)
            scores = (vectors @ wanted).tolist()
            found = [(score, -number, text) for score, (number, text) in zip(scores, rows, strict=True)]
            best = heapq.nlargest(count, [*best, *found], key=lambda entry: entry[:2])
    return Searched(tuple(Nearest(-number, score, text) for score, number, text in best), seen, cut, notes)


def _cut(model: Loaded, options: SentenceEmbeddingTable, texts: list[str]) -> int:
    """How many are longer than what is read; a token has at least one character, or is one of a few bytes."""
    if options.max_seq_length is None:
        return 0
    room = options.max_seq_length - model.tokenizer.added()
    longer = [text for text in texts if len(text.encode()) > room]
    return sum(len(ids) > room for ids in model.tokenizer.encode_batch(longer)) if longer else 0

"""The questions a page may ask, each with its fields, and their answers as JSON; unknown fields are refused."""

import base64
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.errors import InputError
from regard.inspection.heads import MEASURES, measure_heads
from regard.inspection.maps import labels
from regard.inspection.pooled import pool, pooled_map, within
from regard.views.exploring.exports import OfExport, export_record
from regard.views.exploring.recorded import OfLayer, PageQuestion, ShownRecording
from regard.views.look import steps_seen
from regard.views.records import steps_record, word_attention_record
from regard.views.word_attention import word_attention
from regard.views.words import merge_words

THUMB = 40
"""Cells of a small map, along each side."""
WINDOW = 256
"""Cells of a map, along each side."""
LISTED = 256
"""Keys of a row whose scores are told: those of the largest weights."""
MEASURED, FEWEST_ROWS = 2**22, 32
"""Weights of a layer that its measures are made of; of longer texts fewer rows are looked at."""
MOST_MERGED = 1024
"""Tokens of a text whose whole map of words is made at once."""
MOST_ROWS = 64
"""Rows answered at once."""


class OfHead(OfLayer):
    """One head."""

    head: int = Field(ge=0)


class OfRows(OfHead):
    """Some rows of one head."""

    rows: Annotated[list[int], Field(min_length=1, max_length=MOST_ROWS)]


class OfRow(OfHead):
    """One row of one head, and one of the keys it meets: that of the largest weight, if none is named."""

    row: int = Field(ge=0)
    key: int | None = Field(None, ge=0)


class OfLooks(PageQuestion):
    """A word of the text."""

    word: str


class OfWindow(OfHead):
    """Rows and columns of one head, from … up to."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    words: bool = False


def packed(numbers: NDArray[Any], kind: str) -> dict[str, Any]:
    """An array as JSON: little-endian numbers in base64, and their shape."""
    data = base64.b64encode(np.ascontiguousarray(numbers).astype(f"<{kind}").tobytes()).decode("ascii")
    return {"type": kind, "shape": list(numbers.shape), "data": data}


def thumbs(reading: ShownRecording, asked: OfLayer) -> dict[str, Any]:
    """Small maps of all heads of a layer."""
    seen = reading.part(asked.part)
    trace = seen.trace(asked.layer)
    size = len(trace.places()), len(range(*trace.real_keys().indices(trace.calls[-1].keys)))
    found = pooled_map(seen, asked.layer, (0, size[0]), (0, size[1]), THUMB, most=2**21)
    return {"largest": float(found.cells.max(initial=0.0)), "cells": packed(_shades(found.cells), "u1")}


def rows(reading: ShownRecording, asked: OfRows) -> dict[str, Any]:
    """The exact weights of some rows."""
    found = reading.part(asked.part).weights(asked.layer, asked.head, asked.rows)
    return {"weights": packed(found.float().cpu().numpy(), "f4")}


def window(reading: ShownRecording, asked: OfWindow) -> dict[str, Any]:
    """A part of a head's map, in as many cells as a screen has."""
    seen = reading.part(asked.part)
    seen.trace(asked.layer, asked.head)  # refuses a head that is not there
    if asked.words:
        cells = _pooled_words(reading, asked)
        read = rows = asked.rows[1] - asked.rows[0]
    else:
        found = pooled_map(seen, asked.layer, asked.rows, asked.columns, WINDOW)
        cells, read, rows = found.cells[asked.head], found.rows_read, found.rows
    largest = float(cells.max(initial=0.0))
    return {"largest": largest, "cells": packed(_shades(cells), "u1"), "rows_read": read, "rows": rows}


def _pooled_words(reading: ShownRecording, asked: OfWindow) -> NDArray[Any]:
    """The same between words."""
    seen = reading.part(asked.part)
    names = labels(seen, asked.layer, reading.tokenizer)
    if max(map(len, names)) > MOST_MERGED:
        raise InputError(
            f"a map of words is drawn of up to {MOST_MERGED:,} tokens, and here are {max(map(len, names)):,}",
            "show it by tokens, or look at its lines",
        )
    pieces = seen.weights(asked.layer, asked.head).abs().float().cpu().numpy()[None]
    merged = merge_words(pieces, *names)[0][0]
    return pool(
        merged, within(asked.rows, len(merged), "rows"), within(asked.columns, merged.shape[1], "columns"), WINDOW
    )


def steps(reading: ShownRecording, asked: OfRow) -> dict[str, Any]:
    """The four steps of one row: every score, or those of the largest weights, and the vectors of one key."""
    seen, tokenizer = reading.part(asked.part), reading.tokenizer
    found = steps_seen(seen, tokenizer, layer=asked.layer, head=asked.head, row=asked.row)
    record = steps_record(found)
    key = int(found.weights.argmax()) if asked.key is None else asked.key
    if key >= len(found.keys):
        raise InputError(f"the row meets {len(found.keys)} keys and none is {key}", f"use 0 to {len(found.keys) - 1}")
    listed = sorted({key, *np.argsort(-found.weights, kind="stable")[:LISTED].tolist()})
    vectors = {"query": found.query, "key": found.key[key], "value": found.values[key], "output": found.output}
    scaled = found.scaled[found.allowed]
    return {
        **record,
        "keys": [{**record["keys"][at], "place": at, "bias": float(found.bias[at])} for at in listed],
        "count": len(found.keys),
        "at": key,
        "vectors": {name: vector.tolist() for name, vector in vectors.items()},
        "dotted": found.dotted,
        "largest": float(scaled.max()) if len(scaled) else 0.0,
        "sum": float(found.exponentials.sum()),
    }


def _shades(cells: NDArray[Any]) -> NDArray[Any]:
    """Square roots of the shares of the largest, in 255 steps: small weights can still be told from none."""
    largest = max(float(cells.max(initial=0.0)), 1e-30)
    shades: NDArray[Any] = np.rint(255 * np.sqrt(cells / largest))
    return shades


def measures(reading: ShownRecording, asked: PageQuestion) -> dict[str, Any]:
    """What kind of head each head is, on this text."""
    special, seen = [*reading.tokenizer.special_ids.values()], reading.part(asked.part)
    weights = max(seen.trace(layer).heads * seen.trace(layer).calls[-1].keys for layer in seen.layers)
    most = max(MEASURED // weights, FEWEST_ROWS)
    found = measure_heads(seen, special, most)
    heads = [
        {"layer": one.layer, "head": one.head, "character": one.character}
        | {name: getattr(one, name) for name in MEASURES}
        for one in found
    ]
    rows = max(len(seen.trace(layer).places()) for layer in seen.layers)
    return {"heads": heads, "rows": rows, "rows_read": min(rows, most)}


def looks(reading: ShownRecording, asked: OfLooks) -> dict[str, Any]:
    """Where a word of the text looks: all heads together, and the head that looks at each other word most."""
    return word_attention_record(word_attention(reading.part(asked.part), reading.tokenizer, asked.word))


Answers = dict[str, tuple[type[PageQuestion], Callable[[Any, Any], dict[str, Any]]]]
"""By what is asked: the fields of the question, and what answers it."""

OF_RECORDINGS: Answers = {
    "thumbs": (OfLayer, thumbs),
    "rows": (OfRows, rows),
    "window": (OfWindow, window),
    "measures": (PageQuestion, measures),
    "steps": (OfRow, steps),
    "looks": (OfLooks, looks),
    "export": (OfExport, export_record),
}

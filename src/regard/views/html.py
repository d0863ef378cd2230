"""A run's attention as one HTML file: nothing is fetched, nothing installed, it opens from a disk.

    page = AttentionPage("Le 3 mars → March 3", (LayerTop(…), …))
    save_html(page, Path("attention.html"))

A page keeps the k largest weights of each row: 2,000 tokens, 2 layers of 4 heads and k = 16 are 1.4 MB, where all
weights would be 85 MB. It says how much of the attention that is, and bounds what it does not keep: a weight that is
not among the largest is at most the smallest of them.

The file's data is JSON in a `<script type="application/json">`:

    tokens    the lists of token texts, each once
    layers    name, kind, heads, k, rows and columns (numbers of token lists), shown (a sentence),
              index and weight: base64 of little-endian integers, [heads, rows, k]; a weight is weight / 65535

The programs and styles beside this file, in assets/, draw it; `assets/page.js` says which does what.
"""

import base64
import html
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError, InputError
from regard.files import write_text
from regard.views.figure import printable
from regard.views.special import left_out_in_words

KINDS = ("self", "masked self", "cross")
SUFFIXES = (".html", ".htm")
WEIGHT_STEPS = 65535
"""A weight of 1, as the file holds it: weights are rounded to 1/65535."""
MOST_NARROW_COLUMNS = 65536
"""Up to so many columns a column's number takes two bytes, beyond it four."""

_PROGRAMS = ("weights", "colours", "lines", "axes", "map", "text", "sheet", "page")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_EXPORTED = re.compile(r"^export ", re.MULTILINE)  # what the explorer imports, here stands in one program
_BYTES_A_TOKEN = 24  # its text, quoted and escaped, and a comma: generous for one list of rows and one of columns
_BYTES_OF_THE_PAGE = 80_000


@dataclass(frozen=True, eq=False)
class LayerTop:
    """The largest weights of a layer: for each head and row k columns and their weights, largest first.

    In kinds "self" and "masked self" row i is token i looking at all tokens, or at those up to itself; in "cross" it is
    the token that was written at that step, looking at the text that was read.
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    index: NDArray[Any]
    weight: NDArray[Any]
    kind: str
    special_share: float | None = None
    """Where special tokens are left out: how much of the attention was theirs."""

    def __post_init__(self) -> None:
        self._check_names()
        self._check_shapes()
        self._check_numbers()

    @property
    def heads(self) -> int:
        """How many heads the layer has."""
        return int(self.index.shape[0])

    @property
    def largest(self) -> int:
        """How many weights of each row are kept."""
        return int(self.index.shape[2])

    def _check_names(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"a layer of kind {self.kind!r} is unknown", f"use one of: {', '.join(KINDS)}")
        if self.kind != "cross" and self.rows != self.columns:
            raise InputError(
                f"{self.name}: {len(self.rows)} rows and {len(self.columns)} columns of {self.kind!r} attention differ",
                "pass the same tokens twice; where the rows look at another text the kind is 'cross'",
            )

    def _check_shapes(self) -> None:
        shape = self.index.shape
        if shape != self.weight.shape or len(shape) != 3 or 0 in shape or shape[1] != len(self.rows):
            raise InputError(
                f"{self.name}: index {list(shape)} and weight {list(self.weight.shape)} for {len(self.rows)} rows",
                "pass both as [heads, rows, k], none of them 0",
            )
        if shape[2] > len(self.columns):
            raise InputError(
                f"{self.name}: {shape[2]} weights a row are more than its {len(self.columns)} columns",
                f"keep at most {len(self.columns)}",
            )

    def _check_numbers(self) -> None:
        index, weight = self.index, self.weight
        if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= len(self.columns):
            raise InputError(
                f"{self.name}: columns of type {index.dtype} from {index.min()} to {index.max()}",
                f"pass whole numbers from 0 to {len(self.columns) - 1}",
            )
        ordered = np.sort(index, axis=2)
        if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
            raise InputError(f"{self.name}: a row names the same column twice", "name each of its k columns once")
        if not bool((weight >= -1e-3).all()) or not bool((weight <= 1 + 1e-3).all()):
            raise InputError(
                f"{self.name}: weights from {weight.min():.4g} to {weight.max():.4g} are not between 0 and 1",
                "a page shows softmax weights; draw others to a .png",
            )
        if bool((np.diff(weight, axis=2) > 1e-6).any()):
            raise InputError(f"{self.name}: the weights of a row rise", "pass them with the largest first")
        later = index > np.arange(len(self.rows))[:, None]
        if self.kind == "masked self" and bool((weight[later] > 1e-6).any()):
            raise InputError(f"{self.name}: a row of masked attention looks at a later token", "use the kind 'self'")


@dataclass(frozen=True, eq=False)
class AttentionPage:
    """What a page shows; it opens with the layer named in `opens_with`, else the first that crosses, else the first."""

    title: str
    layers: tuple[LayerTop, ...]
    note: str = ""
    opens_with: str = ""

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if not names:
            raise InputError("a page of no layers shows nothing", "pass at least one layer")
        if self.opens_with and self.opens_with not in names:
            raise InputError(f"no layer is named {self.opens_with!r}", f"use one of: {', '.join(names)}")

    @property
    def first(self) -> int:
        """The place of the layer that the page opens with."""
        names = [layer.name for layer in self.layers]
        crossing = [at for at, layer in enumerate(self.layers) if layer.kind == "cross"]
        return names.index(self.opens_with) if self.opens_with else next(iter(crossing), 0)


def largest_weights(weights: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns and weights, `[heads, rows, k]` each, of the k largest in `[heads, rows, columns]`, largest first."""
    k = min(k, weights.shape[-1])
    chosen = np.argpartition(-weights, k - 1, axis=-1)[..., :k]
    found = np.take_along_axis(weights, chosen, axis=-1)
    order = np.lexsort((chosen, -found), axis=-1)
    return np.take_along_axis(chosen, order, axis=-1), np.take_along_axis(found, order, axis=-1)


def largest_k(layers: int, heads: int, rows: int, budget: int = 1_800_000) -> int:
    """How many weights of each row a page of `budget` bytes has room for; more than a row has need not be kept."""
    entry = (2 if rows <= MOST_NARROW_COLUMNS else 4) + 2
    room = budget - _BYTES_OF_THE_PAGE - _BYTES_A_TOKEN * rows
    k = room * 3 // 4 // (layers * heads * rows * entry)
    if k < 1:
        needed = _BYTES_OF_THE_PAGE + _BYTES_A_TOKEN * rows + layers * heads * rows * entry * 4 // 3
        raise InputError(
            f"{layers} layers of {heads} heads and {rows} rows take {needed:,} bytes, one weight a row, not {budget:,}",
            "show fewer layers or rows, or raise the budget",
        )
    return k


def shown_in_words(layer: LayerTop) -> str:
    """How much of a layer's attention the page holds, from the weights themselves."""
    special = "" if layer.special_share is None else " " + left_out_in_words(layer.special_share)
    if layer.largest >= len(layer.columns):
        return "Every weight is shown." + special
    sums = layer.weight.sum(axis=2, dtype=np.float64)
    sums = sums[sums > 0]  # a row that may look at nothing has nothing to show
    share = 100 * float(np.minimum(sums, 1).mean()) if sums.size else 100.0
    part = f"{share:.0f}" if share < 99 or share > 99.995 else f"{share:.1f}"
    which = "the largest weight" if layer.largest == 1 else f"the {layer.largest} largest weights"
    return f"Shown: {which} of each row, on average {part} % of its attention.{special}"


def page_html(page: AttentionPage) -> str:
    """The whole file."""
    assets = files("regard.views").joinpath("assets")
    read = {name: assets.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css")}
    programs = [_EXPORTED.sub("", assets.joinpath(f"{name}.js").read_text(encoding="utf-8")) for name in _PROGRAMS]
    parts = {
        "title": html.escape(printable(page.title)),
        "note": html.escape(printable(page.note)),
        "style": read["page.css"],
        "data": _json(_data(page)),
        "program": "\n".join(programs),
    }
    return _PLACE.sub(lambda place: parts[place.group(1)], read["page.html"])


def save_html(page: AttentionPage, path: Path) -> None:
    """Write the page beside its name, flush it, rename it: a crash leaves the old file or the new."""
    check_html_name(path)
    write_text(path, page_html(page))


def check_html_name(path: Path) -> None:
    """Refuse a name that does not end in .html or .htm before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} does not look like a web page", f"end the name in one of: {', '.join(SUFFIXES)}")
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        raise FileError(f"cannot write {path}: it is a folder", "choose a name that is not taken")


def _data(page: AttentionPage) -> dict[str, Any]:
    """What the page's programs read."""
    lists = list(dict.fromkeys(_both(page.layers)))
    places = {tokens: at for at, tokens in enumerate(lists)}
    return {
        "first": page.first,
        "tokens": lists,
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "heads": layer.heads,
                "k": layer.largest,
                "rows": places[layer.rows],
                "columns": places[layer.columns],
                "shown": shown_in_words(layer),
                "index": _base64(layer.index, "<u2" if len(layer.columns) <= MOST_NARROW_COLUMNS else "<u4"),
                "weight": _base64(np.rint(np.clip(layer.weight.astype(np.float64), 0, 1) * WEIGHT_STEPS), "<u2"),
            }
            for layer in page.layers
        ],
    }


def _both(layers: Iterable[LayerTop]) -> Iterable[tuple[str, ...]]:
    for layer in layers:
        yield layer.rows
        yield layer.columns


def _base64(numbers: NDArray[Any], kind: str) -> str:
    return base64.b64encode(numbers.astype(kind).tobytes()).decode("ascii")


def _json(value: Any) -> str:
    """JSON in plain ASCII without `<`: whatever a token spells, it cannot end the element it stands in."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")

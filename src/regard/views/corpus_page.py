"""Heads on a file of text as one page that stands alone, as a table and as a record.

The page keeps every row that is shown whole, its weights rounded to thousandths; a head is chosen in it.
"""

import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.files import write_text
from regard.inspection.corpus_heads import CorpusHead, CorpusReport, CorpusRow
from regard.views.columns import aligned
from regard.views.figure import label, printable
from regard.views.html import check_html_name

_PLACE = re.compile(r"\{\{(\w+)\}\}")
LARGEST = 10_000_000
"""Bytes of a page."""
NAMED = 3
"""Edges that the table names of each head."""
MEANING = (
    "The strongest edges are what a head can do; the rows drawn from every tenth of its rows are what it does. "
    "The first token and special tokens are left out of a row’s strength, not of its weights."
)


def corpus_record(found: CorpusReport) -> dict[str, Any]:
    """Every number, for programs."""
    heads = [
        {
            "layer": one.layer,
            "head": one.head,
            "rows": one.rows,
            "mean": one.mean,
            "bounds": one.bounds,
            "strongest": [_row(row) for row in one.strongest],
            "deciles": [[_row(row) for row in part] for part in one.deciles],
        }
        for one in found.heads
    ]
    return {"texts": found.texts, "tokens": found.tokens, "heads": heads}


def _row(row: CorpusRow) -> dict[str, Any]:
    kept = {"text": row.text, "row": row.row, "key": row.key, "strength": row.strength, "token": row.token}
    return kept | {"keys": row.keys, "weights": [round(float(one), 5) for one in row.weights]}


def corpus_text(found: CorpusReport) -> str:
    """A row for each head: how strong its rows are, and its strongest edges."""
    rows = [["head", "rows", "mean", "median", "strongest edges"]]
    for one in found.heads:
        edges = ", ".join(
            f"{label(row.token)} → {label(row.keys[row.key])} {row.strength:.2f}" for row in one.strongest[:NAMED]
        )
        rows.append(
            [f"{one.layer}, head {one.head}", f"{one.rows:,}", f"{one.mean:.2f}", f"{one.bounds[4]:.2f}", edges]
        )
    said = f"{found.texts:,} texts, {found.tokens:,} tokens. Strength: a row's largest weight."
    return "\n".join([said, "", *aligned(rows, left=(0, 4)), "", MEANING])


def save_corpus_page(found: CorpusReport, path: Path, title: str) -> None:
    """Write the page; refused where it would be larger than a page should be."""
    check_html_name(path)
    page = corpus_page(found, title)
    if len(page.encode()) > LARGEST:
        raise InputError(
            f"{len(found.heads)} heads make a page of {len(page.encode()):,} bytes, more than {LARGEST:,}",
            "name one layer, or read shorter windows",
        )
    write_text(path, page)


def corpus_page(found: CorpusReport, title: str) -> str:
    """The whole file."""
    assets = files("regard.views").joinpath("assets")
    parts = {
        "title": html.escape(printable(title)),
        "note": html.escape(f"{found.texts:,} texts, {found.tokens:,} tokens. {MEANING}"),
        "data": _json(_data(found)),
        "program": assets.joinpath("corpus.js").read_text(encoding="utf-8"),
    }
    page = assets.joinpath("corpus.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place.group(1)], page)


def _data(found: CorpusReport) -> dict[str, Any]:
    """Lists of tokens once, and rows that name them by number."""
    lists: dict[tuple[str, ...], int] = {}

    def packed(row: CorpusRow) -> list[Any]:
        number = lists.setdefault(row.keys, len(lists))
        thousandths = [round(1000 * float(one)) for one in row.weights]
        return [row.text, row.row, row.key, round(row.strength, 3), row.token, number, thousandths]

    def shown(one: CorpusHead) -> dict[str, Any]:
        parts = [[packed(row) for row in part] for part in one.deciles]
        strongest = [packed(row) for row in one.strongest]
        name = f"{one.layer}, head {one.head}"
        return {
            "name": name,
            "mean": round(one.mean, 3),
            "bounds": one.bounds,
            "strongest": strongest,
            "deciles": parts,
        }

    heads = [shown(one) for one in found.heads]
    return {"heads": heads, "tokens": list(lists)}


def _json(value: Any) -> str:
    """JSON in ASCII without `<`: whatever a token spells, it cannot end the element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")

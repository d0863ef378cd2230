"""A comparison as one HTML file without scripts: the table, the picture, what it shows, and the numbers as JSON.

The picture is an SVG inside the file; the numbers are in a `<script type="application/json" id="numbers">`, which a
browser does not run.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.files import write_text
from regard.views.comparison import ComparisonPanel
from regard.views.figure import printable, rendered
from regard.views.html import check_html_name

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class ComparisonPage:
    """What a page shows."""

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    panels: Sequence[ComparisonPanel]
    record: Any
    """The numbers, for a program."""


def comparison_html(page: ComparisonPage, figure: Figure) -> str:
    """The whole file."""
    assets = files("regard.views").joinpath("assets")
    picture = base64.b64encode(rendered(figure, "svg")).decode("ascii")
    numbers = json.dumps(page.record, ensure_ascii=True).replace("<", "\\u003c")
    body = [
        f'<div class="wide"><table><thead>{_row(page.header, "th")}</thead>',
        f"<tbody>{''.join(_row(row, 'td') for row in page.rows)}</tbody></table></div>",
        f'<img alt="{_text(page.title)}" src="data:image/svg+xml;base64,{picture}">',
        *(f"<h2>{_text(panel.title)}</h2><p>{_text(panel.sentence)}</p>" for panel in page.panels if panel.sentence),
        f'<script type="application/json" id="numbers">{numbers}</script>',
    ]
    parts = {
        "title": _text(page.title),
        "note": _text(page.note),
        "style": assets.joinpath("comparison.css").read_text(encoding="utf-8"),
        "body": "\n".join(body),
    }
    template = assets.joinpath("derivation.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place.group(1)], template)


def save_comparison(page: ComparisonPage, figure: Figure, path: Path) -> None:
    """Write the page beside its name, flush it, rename it."""
    check_html_name(path)
    write_text(path, comparison_html(page, figure))


def _row(cells: Iterable[str], kind: str) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return html.escape(printable(text))

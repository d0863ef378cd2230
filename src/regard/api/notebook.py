"""How our objects look in a notebook: a small table, and a page of its own in a frame."""

import html
import sys
from collections.abc import Mapping

HEIGHT = 720
"""Of a page, in pixels."""


def table(title: str, facts: Mapping[str, object]) -> str:
    """A name and its value in each row."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"


def frame(page: str) -> str:
    """A whole page inside another: its programs and styles do not meet those around it, and nothing is fetched."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" loading="lazy" title="Attention" '
        f'style="width:100%;height:{HEIGHT}px;border:1px solid #8884"></iframe>'
    )


def running() -> bool:
    """Whether this is a notebook."""
    ipython = sys.modules.get("IPython")  # there wherever a notebook runs
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def display(shown: object) -> None:
    """Show HTML, or a widget, in the notebook this runs in."""
    ipython = sys.modules["IPython"]
    ipython.display.display(ipython.display.HTML(shown) if isinstance(shown, str) else shown)

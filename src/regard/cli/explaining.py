"""`regard run --explain`: how an answer comes about, on the terminal, as a page or a picture, or as JSON."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.options import where
from regard.cli.output import to_json

if TYPE_CHECKING:
    from regard.api import Model
    from regard.views.decoding_text import Line


def show(model: "Model", text: str, to: Path | None, as_json: bool) -> None:
    """Decode one text and tell all that was considered."""
    from regard.api.explanation import check_explanation
    from regard.decoding.strategies import Beam

    if to is not None:
        check_explanation(to, beam=isinstance(model.decoding.chosen(), Beam))
    found = model.explain(text)
    if to is not None:
        found.save(to)
    if as_json:
        seed = {} if model.decoding.seed is None else {"seed": model.decoding.seed}
        file = {} if to is None else {"file": str(to)}
        print(to_json({"input": text, **found.to_dict(), **seed, **where(model), **file}), flush=True)
    elif to is not None:
        print(f"{found.output}\n{to} shows how it came about")
    else:
        _print(found.lines())


def _print(lines: "Iterable[Line]") -> None:
    """Coloured on a terminal, plain in a pipe."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(Text(line.text, style=line.style))

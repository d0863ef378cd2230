"""`regard look`: what the model attends to, as a picture, a page, or numbers."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError


def look(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[str, typer.Argument(help="The text the model reads.")],
    target: Annotated[str | None, typer.Option(help="The answer to look at; the model's own if absent.")] = None,
    to: Annotated[Path, typer.Option(help="A picture, .png or .svg, or a page to explore, .html.")] = Path(
        "attention.png"
    ),
    layer: Annotated[str | None, typer.Option(help="Such as decoder.1.cross; the clearest if absent.")] = None,
    head: Annotated[int | None, typer.Option(help="One head alone; all and their mean if absent.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Pieces merged back into words.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="The four steps of one row, with the numbers.")] = False,
    row: Annotated[int | None, typer.Option(help="The row whose steps are shown; 0, the first, if absent.")] = None,
) -> None:
    """Draw what the model attends to: the heads of a layer and the alignment they make together.

    Example: `regard look runs/demo "de: 3 mars 2021" --to attention.png`, the same `--to attention.html` to explore,
    or `--steps --row 2` for the four steps of the third written token.
    """
    from regard import api
    from regard.views.look import check_name, draw_seen, save_steps, steps_seen
    from regard.views.page import check_format
    from regard.views.steps import steps_text

    if row is not None and not steps:
        raise InputError("--row has no effect without --steps", "add --steps or leave it out")
    if steps and words:
        raise InputError("--words has no effect with --steps: the steps are of one piece", "use one of them")
    check_format(to) if steps else check_name(to)
    loaded = api.load(model)
    seen = loaded.look(text, target=target, values=steps)
    if steps:
        record = steps_seen(seen, loaded.tokenizer, layer=layer, head=head or 0, row=row or 0)
        save_steps(record, to)
        typer.echo(steps_text(record))
        typer.echo(f"{to} shows the four steps of {record.token!r} in {record.title}")
        return
    shown = draw_seen(seen, loaded.tokenizer, to, layer=layer, head=head, words=words)
    others = [name for name in seen.layers if not shown.startswith(name)]
    typer.echo(f"{to} shows {shown}; the other layers are {', '.join(others)}")

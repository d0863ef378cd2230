"""`regard look`: what the model attends to, as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.api import Model


def look(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[str, typer.Argument(help="The text the model reads.")],
    target: Annotated[str | None, typer.Option(help="The answer to look at; the model's own if absent.")] = None,
    to: Annotated[Path, typer.Option(help="The picture: .png or .svg.")] = Path("attention.png"),
    layer: Annotated[str | None, typer.Option(help="Such as decoder.1.cross; the clearest if absent.")] = None,
    head: Annotated[int | None, typer.Option(help="One head alone; all and their mean if absent.")] = None,
) -> None:
    """Draw what the model attends to: the heads of a layer and the alignment they make together.

    Example: `regard look runs/demo "de: 3 mars 2021" --to attention.png`
    """
    from regard import api

    shown, others = draw(api.load(model), text, to, target=target, layer=layer, head=head)
    typer.echo(f"{to} shows {shown}; the other layers are {', '.join(others)}")


def draw(
    model: "Model",
    text: str,
    to: Path,
    *,
    target: str | None = None,
    layer: str | None = None,
    head: int | None = None,
) -> tuple[str, list[str]]:
    """Run the model watched and write the picture; what it shows, and the layers it does not."""
    from regard.inspection.maps import attention_map, default_layer
    from regard.views.attention import draw_alignment_with_heads
    from regard.views.page import check_format, save_figure

    check_format(to)
    seen = model.look(text, target=target)
    chosen = layer or default_layer(seen)
    found = attention_map(seen, chosen, model.tokenizer, head)
    outcome = seen.find(None)[0].outcome
    written = model.tokenizer.decode(outcome[0].ids) if outcome else ""
    save_figure(draw_alignment_with_heads(found, note=f"{text}  →  {written}"), to)
    return found.title, [name for name in seen.layers if name != chosen]

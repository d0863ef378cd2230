"""`regard demo`: the main job on built-in data: train a translator of dates, ask it, draw what it attends to."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

EXAMPLES = (
    "de: le 3 mars 2021",
    "en: 3. Oktober 1990",
    "fr: Wednesday, July 14, 2038",
    "iso: 25 de abril de 1974",
    "it: 1969-07-20",
)
PICTURED = EXAMPLES[0]


def demo(
    out: Annotated[Path, typer.Option(help="The model folder.")] = Path("runs/demo"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's last state.")] = False,
) -> None:
    """Train a translator of dates between six languages and ISO, ask it, and draw its attention.

    A few minutes on two CPU cores, no network. Example: `regard demo`
    """
    from regard import api
    from regard.cli.progress import ProgressBar
    from regard.tasks.task import held_out
    from regard.tasks.translation import open_corpus
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.views.look import draw_seen

    keep_freed_memory()
    begun = perf_counter()
    with listening() as interrupt, ProgressBar(out) as listener:
        model = api.train("dates", out, resume=resume, listener=listener, interrupt=interrupt)
    seconds = perf_counter() - begun
    days = held_out(open_corpus(model.recipe.data), "test")
    metrics = model.evaluate(days)
    typer.echo(f"trained in {seconds:.0f} s")
    typer.echo(f"exact match on {len(days)} held-out days: {metrics['exact_match']:.1%}\n")
    for text, answer in zip(EXAMPLES, model.run(EXAMPLES), strict=True):
        typer.echo(f"  {text:<34}→  {answer}")
    picture = out / "attention.png"
    draw_seen(model.look(PICTURED), model.tokenizer, picture)
    typer.echo(f"\n{picture} shows where each written token looked in the source. Next:\n")
    typer.echo(f'  regard run {out} "es: 3 mars 2021"')
    typer.echo(f'  regard look {out} "pt: Wednesday, July 14, 2038" --to look.html')
    typer.echo(f"  regard evaluate {out}")

"""`regard demo`: the main job on built-in data: train a translator of dates, ask it, draw what it attends to."""

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Quiet

if TYPE_CHECKING:
    from regard.api import Model

RECIPE = "dates"
EXAMPLES = (
    "de: le 3 mars 2021",
    "en: 3. Oktober 1990",
    "fr: Wednesday, July 14, 2038",
    "iso: 25 de abril de 1974",
    "it: 1969-07-20",
)
PICTURED = EXAMPLES[0]


def demo(
    out: Annotated[Path, typer.Option(help="The model folder.")] = Path("runs/demo"), quiet: Quiet = False
) -> None:
    """Train a translator of dates between six languages and ISO, ask it, and draw its attention.

    A few minutes on two CPU cores, no network. Asked again, a model that is there is not trained again, and a training
    that was stopped goes on.

    Example: `regard demo`
    """
    from regard.errors import ConfigError
    from regard.tasks.pairs import open_corpus
    from regard.tasks.recipe import read_recipe
    from regard.tasks.task import held_out
    from regard.views.look import draw_seen

    begun = perf_counter()
    try:
        kept = _kept(out)
        model = kept or _train(out, quiet)
    except ConfigError as error:  # the folder is of another recipe, or of another version
        raise ConfigError(error.problem, f"remove {out} to train anew, or choose another --out") from error
    took = f"trained in {perf_counter() - begun:.0f} s"
    typer.echo(took if kept is None else f"{out} holds the trained model; remove it to train anew")
    days = held_out(open_corpus(read_recipe(RECIPE).given), "test")
    metrics = model.evaluate(days)
    typer.echo(f"exact match on {len(days)} held-out days: {metrics['exact_match']:.1%}\n")
    for text, answer in zip(EXAMPLES, model.run(EXAMPLES), strict=True):
        typer.echo(f"  {text:<34}→  {answer}")
    picture = out / "attention.png"
    draw_seen(model.look(PICTURED), model.tokenizer, picture)
    typer.echo(f"\n{picture} shows where each written token looked in the source. Next:\n")
    typer.echo(f'  regard run {out} "es: 3 mars 2021"')
    typer.echo(f'  regard look {out} "pt: Wednesday, July 14, 2038" --to look.html')
    typer.echo(f"  regard evaluate {out}")


def _kept(folder: Path) -> "Model | None":
    """The demo's model, if it was trained to its end there."""
    from regard import api
    from regard.tasks.recipe import read_recipe
    from regard.training.resume import latest

    plan, before = read_recipe(RECIPE), folder / "recipe.toml"
    finished = before.is_file() and read_recipe(str(before)) == plan and latest(folder).step >= plan.training.steps
    return api.load(folder) if finished else None


def _train(folder: Path, quiet: bool) -> "Model":
    """Train the demo's model, from the folder's last state where there is one."""
    from regard import api
    from regard.tasks.recipe import read_recipe
    from regard.training.interrupt import listening
    from regard.training.malloc import keep_freed_memory
    from regard.training.progress import ProgressBar, console

    keep_freed_memory()
    with listening() as interrupt, ProgressBar(folder, console(quiet)) as listener:
        return api.train(read_recipe(RECIPE), folder, resume=True, listener=listener, interrupt=interrupt)

"""`regard evaluate`: the task's metric, with what was measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Plugin, Precision, Quiet, where
from regard.cli.output import to_json
from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from regard.api import Model

MOST_COUNTED = 20_000
"""Training texts of which a bag of n-grams is counted: seconds."""
ENDLESS = 4000
"""Of a corpus without end, which may be of long texts."""


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Of examples, or SOURCE TARGET; the recipe's test data, or what it validates on, if absent."
        ),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="At most so many examples; if absent all, or 1000 of a built-in corpus.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Tokens a language model reads at once; its own context if absent.")
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1, help="How far apart its windows begin: fewer tell more and take longer; the window if absent."
        ),
    ] = None,
    quiet: Quiet = False,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Measure a model on data it has not seen.

    A language model reads a text in windows, and each token is predicted once: with a stride shorter than the window,
    from at least window − stride tokens before it. Beside a classifier stands a bag of n-grams, beside summaries the
    first sentence and the whole text.

    Example: `regard evaluate runs/demo`, or with files: `regard evaluate runs/multi30k-en-de test.en.gz test.de.gz`
    """
    from regard import api
    from regard.tasks.task import Measuring
    from regard.training.progress import MeasuringBar, console

    loaded = api.load(model, device, precision)
    task = loaded.task
    reading = task.reading(loaded, Measuring(window, stride))
    found, name = _examples(loaded, model, data, examples)
    try:
        with MeasuringBar(console(quiet)) as progress:
            metrics = loaded.evaluate(found, Measuring(window, stride, progress))
    except InputError as error:
        raise InputError(f"{name}: {error.problem}", error.remedy) from error
    simple, plain = _bag_of_ngrams(loaded, found), task.baselines(found)
    if as_json:
        record = {"task": task.name, "data": name, "examples": len(found), **reading, "metrics": metrics, **simple}
        typer.echo(to_json(record | plain | where(loaded)))
    else:
        _say(loaded, f"{name}, {len(found)} example{'' if len(found) == 1 else 's'}", reading, metrics, simple)
        for rule, figures in plain.items():
            shown = "  ".join(f"{metric} {value:.4f}" for metric, value in figures.items())
            typer.echo(f"the {rule.replace('_', ' ')} instead: {shown}")


def _say(
    loaded: "Model", what: str, reading: Mapping[str, Any], metrics: Mapping[str, float], simple: Mapping[str, float]
) -> None:
    """For people."""
    from regard.metrics.text import signature

    task = loaded.task
    typer.echo(f"{task.name} on {what}")
    if reading:
        typer.echo(f"windows of {reading['window']} tokens, stride {reading['stride']}")
    for metric, value in metrics.items():
        typer.echo(f"{metric}  {value:.2f}" if metric in ("bleu", "chrf") else f"{metric}  {value:.4f}")
    for accuracy in simple.values():
        typer.echo(f"a bag of n-grams, fitted to the same training texts: accuracy  {accuracy:.4f}")
    if "bleu" in metrics:
        typer.echo(f"BLEU is {signature(task.options.bleu)}")


def _bag_of_ngrams(loaded: "Model", found: Sequence[Any]) -> dict[str, float]:
    """How well a bag of n-grams that reads a classifier's training texts does, where these are at hand and not many."""
    from regard.metrics.ngrams import BagOfNgrams
    from regard.tasks.task import held_out

    recipe = loaded.recipe
    if loaded.task.name != "classification" or recipe is None or recipe.data is None:
        return {}
    try:
        opened = loaded.task.open(recipe, ["train"])
        size = opened.size("train")
        train = held_out(opened, "train", ENDLESS if size is None else min(size, MOST_COUNTED + 1))
    except RegardError:  # the files are gone, or are others by now
        return {}
    if not 0 < len(train) <= MOST_COUNTED:
        return {}
    bag = BagOfNgrams([pair.source for pair in train], [pair.target for pair in train])
    return {"bag_of_ngrams": bag.accuracy([pair.source for pair in found], [pair.target for pair in found])}


def _examples(loaded: "Model", folder: Path, data: list[Path] | None, most: int | None) -> tuple[Sequence[Any], str]:
    """What is measured on, and what to call it."""
    from regard.tasks.files import read_by_name
    from regard.tasks.own_data import own_examples

    if data:
        return loaded.task.read(data, read_by_name(loaded.data, data))[:most], " and ".join(map(str, data))
    if loaded.recipe is None or loaded.recipe.data is None:
        raise InputError(f"{folder} has no data of its own", "give a file of examples")
    return own_examples(loaded.task, loaded.recipe, most)

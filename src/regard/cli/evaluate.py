"""`regard evaluate`: the task's metric, with what was measured."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="A file of pairs, TSV or JSONL, or SOURCE TARGET; the recipe's test split if absent."),
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="At most so many examples; if absent all of DATA, 1000 of a test split.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure a model on data it has not seen.

    Example: `regard evaluate runs/demo`, or with files: `regard evaluate runs/multi30k-en-de test.en.gz test.de.gz`
    """
    from regard import api
    from regard.data.sources import read_pairs
    from regard.metrics.text import signature
    from regard.tasks.translation import held_out, open_corpus

    loaded = api.load(model)
    table = loaded.recipe.data
    if data:
        if len(data) > 2:
            raise InputError(f"{len(data)} files are given", "give one file of pairs, or SOURCE TARGET")
        pairs = read_pairs(data[0] if len(data) == 1 else (data[0], data[1]))[:examples]
        name = " and ".join(map(str, data))
    else:
        pairs = held_out(open_corpus(table, ["test"]), "test", examples or 1000)
        files = [table.test] if isinstance(table.test, str) else table.test or ()
        name = f"{table.corpus or ' and '.join(files)} (test)"
    metrics = loaded.evaluate(pairs)
    if as_json:
        record = {"task": loaded.task, "data": name, "examples": len(pairs), "metrics": metrics}
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    typer.echo(f"{loaded.task} on {name}, {len(pairs)} examples")
    for metric, value in metrics.items():
        typer.echo(f"{metric}  {value:.2f}" if metric in ("bleu", "chrf") else f"{metric}  {value:.4f}")
    if "bleu" in metrics:
        typer.echo(f"BLEU is {signature(loaded.recipe.task.bleu)}")

"""`regard evaluate`: the task's metric, with what was measured."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[
        Path | None, typer.Argument(help="A file of pairs, TSV or JSONL; the recipe's test split if absent.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="At most so many examples; if absent all of DATA, 1000 of a test split.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure a model on data it has not seen.

    Example: `regard evaluate runs/demo`
    """
    from regard import api
    from regard.data.sources import read_pairs
    from regard.tasks.translation import held_out, open_corpus

    loaded = api.load(model)
    table = loaded.recipe.data
    if data is not None:
        pairs, name = read_pairs(data)[:examples], str(data)
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
        typer.echo(f"{metric}  {value:.4f}")

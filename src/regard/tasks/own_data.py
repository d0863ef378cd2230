"""The held-out examples of a recipe's own data: what a model that was trained by it is measured on."""

from collections.abc import Sequence
from typing import Any

from regard.data.corpus import Split
from regard.tasks.recipe import Recipe
from regard.tasks.task import Task, held_out

CORPUS_EXAMPLES = 1000
"""Of a built-in corpus, which may hold out more."""


def own_examples(task: Task[Any], recipe: Recipe, most: int | None = None) -> tuple[Sequence[Any], str]:
    """The test data, where there are none the validation data, given or split off; and what to call them."""
    table = recipe.given
    split: Split = "valid" if table.test is None and table.corpus is None else "test"
    found = held_out(task.open(recipe, [split]), split, most or (CORPUS_EXAMPLES if table.corpus else None))
    files = (table.test if split == "test" else table.valid or table.train) or ()
    return found, f"{table.corpus or ' and '.join([files] if isinstance(files, str) else files)} ({split})"

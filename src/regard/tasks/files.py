"""What tasks that read files of their own have in common: which files a recipe names, and how much is read at once."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from regard.data.corpus import Split
from regard.data.sources import JSON_NAMES
from regard.data.splits import E, Splits, divided
from regard.errors import ConfigError
from regard.models.config import TransformerShape
from regard.tasks.recipe import DataTable, Recipe, Source
from regard.tasks.translation import require_there

WINDOW = 256
"""Tokens read at once where a recipe does not say."""

Divide = Callable[[Sequence[E], float], tuple[Sequence[E], Sequence[E]]]


def open_files(
    task: str,
    table: DataTable,
    splits: Collection[Split],
    read: Callable[[Path, str], list[E]],
    divide: Divide[E] = divided,
) -> Splits[E]:
    """The examples of the files that a recipe's [data] names, one file for each split."""
    if table.corpus is not None:
        raise ConfigError(
            f"[data] the built-in corpus {table.corpus!r} has pairs of texts, which task {task!r} cannot use",
            "name files: train = FILE, and valid = FILE or split = 0.9",
        )

    def examples(source: Source) -> list[E]:
        path = table.paths(source)
        if not isinstance(path, Path):
            raise ConfigError(f"[data] {path[0]} and {path[1]} are two files where task {task!r} reads one", "give one")
        require_there(path)
        return read(path, table.format)

    given: dict[Split, Source | None] = {"train": table.train, "valid": table.valid, "test": table.test}
    if table.split is not None and "valid" in splits:
        splits = {*splits, "train"}
    found = {split: examples(source) for split, source in given.items() if source and split in splits}
    train, valid, test = found.get("train", []), found.get("valid", []), found.get("test", [])
    if table.split is not None and train:
        first, last = divide(train, table.split)
        return Splits(first, last, test)
    return Splits(train, valid, test)


def window_of(recipe: Recipe) -> int:
    """How many tokens are read at once; of a model that was loaded, all that it has positions for."""
    limit = recipe.model.max_positions if recipe.model.positions == "learnt" else WINDOW
    if recipe.data is None:
        return limit
    return recipe.data.window or min(WINDOW, limit)


def read_by_name(recipe: Recipe, paths: Sequence[Path]) -> Recipe:
    """The recipe to read a user's own files by: where a name is clear, `format` goes by it.

    A file named as the recipe's own are is read as these are.
    """
    table = recipe.data
    if table is None or table.train is None or len(paths) != 1:
        return recipe
    own = table.train if isinstance(table.train, str) else table.train[0]
    if _ending(paths[0].name) in ("", _ending(own)):
        return recipe
    return recipe.model_copy(update={"data": table.model_copy(update={"format": "auto"})})


def _ending(name: str) -> str:
    """The end of a name that says what a file holds; nothing where it does not."""
    plain = name.lower().removesuffix(".gz")
    return next((ending for ending in (*JSON_NAMES, ".tsv") if plain.endswith(ending)), "")


def require_positions(shape: TransformerShape, places: int) -> None:
    """Raise ConfigError if so many tokens have no position."""
    if shape.positions == "learnt" and places > shape.max_positions:
        raise ConfigError(
            f"a window of {places} tokens reaches further than the {shape.max_positions} positions that are learnt",
            f"use data.window={shape.max_positions} or model.max_positions={places}",
        )

"""What tasks that read files of their own have in common: which files a recipe names, and how much is read at once."""

import os.path
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from regard.data.corpus import ExampleKind, Examples, Split, examples_of
from regard.data.splits import E, Splits, hold_out
from regard.data.tables import TABLES, ending
from regard.errors import ConfigError, FileError, changing
from regard.models.network import NetworkShape
from regard.tasks.data_table import DataTable, Source
from regard.tasks.recipe import Recipe

WINDOW = 256
"""Tokens read at once where a recipe does not say."""

Paths = Path | tuple[Path, Path]
Read = Callable[[Paths, str, Mapping[str, str]], Sequence[E]]
Divide = Callable[[Sequence[E], float | None, int], tuple[Sequence[E], Sequence[E]]]


def open_files(table: DataTable, splits: Collection[Split], read: Read[E], divide: Divide[E] = hold_out) -> Splits[E]:
    """The examples of the files that a recipe's [data] names; what is not in a file of its own is held out."""

    def examples(source: Source) -> Sequence[E]:
        paths = table.paths(source)
        require_there(paths)
        return read(paths, table.format, table.columns)

    given: dict[Split, Source | None] = {"train": table.train, "valid": table.valid, "test": table.test}
    if table.divided and "valid" in splits:
        splits = {*splits, "train"}
    found = {split: examples(source) for split, source in given.items() if source and split in splits}
    if table.divided and "train" in found:
        return Splits(*divide(found["train"], table.split, table.seed or 0), found.get("test", []))
    return Splits(found.get("train", []), found.get("valid", []), found.get("test", []))


def one_file(task: str, read: Callable[[Path, str, Mapping[str, str]], Sequence[E]]) -> Read[E]:
    """The same way to read, for a task whose examples are never in two files."""

    def read_one(paths: Paths, format: str, columns: Mapping[str, str]) -> Sequence[E]:
        if not isinstance(paths, Path):
            raise ConfigError(
                f"[data] {paths[0]} and {paths[1]} are two files where task {task!r} reads one",
                "give one, for instance what cat makes of them",
            )
        return read(paths, format, columns)

    return read_one


def corpus_examples(table: DataTable, kind: ExampleKind) -> Examples | None:
    """The examples of a built-in corpus that a task asks for; None where the data are files."""
    return None if table.corpus is None else examples_of(table.corpus, table.options, kind)


def require_there(paths: Paths) -> None:
    """Raise FileError, with how to say where the data are, if a recipe's file is not there."""
    for path in [paths] if isinstance(paths, Path) else paths:
        if not os.path.lexists(path):
            raise FileError(
                f"{path} does not exist",
                f"check the path, or name the folder of the data with {changing('data.folder', 'FOLDER')}",
            )


def settle(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """The recipe with what its training file shows to be the format and the columns, and a sentence on that.

    So what was found once is what every later reading goes by. Nothing is settled of two files, of a text without
    columns, and where the files to validate or to test on are of another kind.
    """
    table = recipe.given
    if table.corpus is not None or not isinstance(table.train, str) or table.format not in ("auto", *TABLES):
        return recipe, []
    path = table.paths(table.train)
    require_there(path)
    assert isinstance(path, Path)
    layout = recipe.task.layout(path, table.format, table.columns)
    others = [one for one in (table.valid, table.test) if one is not None]
    if layout.format not in TABLES or any(not isinstance(one, str) or ending(one) != ending(path) for one in others):
        return recipe, [layout.said] if layout.said else []
    update = {"format": layout.format, "columns": dict(layout.columns)} if layout.columns else {}
    settled = recipe.model_copy(update={"data": table.model_copy(update=update)})
    return settled, [layout.said] if layout.said else []


def window_of(shape: NetworkShape, data: DataTable | None) -> int:
    """How many tokens are read at once; of a model that was loaded, all that it has positions for."""
    limit = shape.position_limit or WINDOW
    if data is None:
        return limit
    return data.window or min(WINDOW, limit)


def read_by_name(table: DataTable | None, paths: Sequence[Path]) -> DataTable | None:
    """How a user's own files are read: where a name is clear, `format` goes by it.

    A file named as those that were trained on is read as these are.
    """
    if table is None or table.train is None or len(paths) != 1:
        return table
    own = table.train if isinstance(table.train, str) else table.train[0]
    if ending(paths[0]) in ("", ending(own)):
        return table
    named = {part: column for part, column in table.columns.items() if not column.isdecimal()}
    columns = named if len(named) == len(table.columns) else {}
    return table.model_copy(update={"format": "auto", "columns": columns})


def reading_of(data: DataTable | None) -> tuple[str, dict[str, str]]:
    """The format and the columns of files that are read as these data are."""
    return ("auto", {}) if data is None else (data.format, data.columns)


def require_positions(recipe: Recipe, shape: NetworkShape, places: int) -> None:
    """Raise ConfigError if so many tokens have no position."""
    if shape.position_limit is not None and places > shape.position_limit:
        more = "" if recipe.model.begins_in else f" or model.max_positions={places}"
        raise ConfigError(
            f"a window of {places} tokens reaches further than the {shape.position_limit} positions that are learnt",
            f"use data.window={shape.position_limit}{more}",
        )

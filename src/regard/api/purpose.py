"""What the model in a folder is for: by which recipe it was trained, for which task, and how it answers."""

from pathlib import Path
from typing import Any

from regard.errors import ConfigError, FileError, choose
from regard.files import read_json
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.recipe import Recipe, parse_recipe, read_recipe
from regard.tasks.task_table import TaskTable, read_task
from regard.text.registry import KINDS


def read_purpose(folder: Path) -> tuple[Recipe | None, TaskTable, str]:
    """What a folder's model was trained by, if it was trained here; what it is for; the kind of its tokenizer."""
    path = folder / "recipe.toml"
    tables = _tables(path)
    if tables.keys() - {"task", "tokenizer"}:
        recipe = read_recipe(str(path))
        return recipe, recipe.task, recipe.tokenizer.kind
    try:
        task, kind = read_task(tables["task"]), tables["tokenizer"]["kind"]
    except (KeyError, TypeError, ConfigError) as error:
        raise FileError(f"{path} does not say what the model is for", "copy it again from its folder") from error
    if kind not in (*KINDS, "pretrained"):
        raise FileError(f"{path} names a tokenizer of kind {str(kind)[:40]!r}", choose(str(kind), KINDS))
    return None, task, kind


def read_decoding(folder: Path) -> DecodingTable:
    """How a folder's model answers."""
    values = read_json(folder / "generation_config.json", "copy it again from the trained folder")
    kept = {key: value for key, value in values.items() if key in DecodingTable.model_fields}
    return DecodingTable.model_validate(kept)


def read_run(folder: Path) -> Recipe:
    """The recipe that a folder's model was trained by."""
    recipe, _, _ = read_purpose(folder)
    if recipe is None:
        raise FileError(f"{folder} holds a model that was not trained here", "give the `out` of a run")
    return recipe


def _tables(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileError(f"{path} does not exist", "the folder is not complete; train again or copy it again")
    return parse_recipe(str(path))

"""A model from a folder: one that `train` or `Model.save` wrote, Hugging Face's, or llama2.c's `.bin`."""

from pathlib import Path
from typing import Any

import torch

from regard.api.model import Model
from regard.devices import dtype_of, in_memory, usable_device
from regard.errors import ConfigError, FileError, choose
from regard.files import read_json
from regard.interop.hub import located
from regard.interop.huggingface import is_huggingface
from regard.interop.loading import open_folder, open_llama2c
from regard.layers.linear import keep_packed
from regard.models.checkpoint import load_model
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.recipe import Recipe, parse_recipe, read_recipe
from regard.tasks.task import task_of
from regard.tasks.task_table import TaskTable, read_task
from regard.text.pretrained import PretrainedTokenizer
from regard.text.registry import KINDS


def load(folder: str | Path, device: str | torch.device = "auto", precision: str = "auto") -> Model:
    """The model in a folder that `train` or `Model.save` wrote, in one of Hugging Face's, or in llama2.c's `.bin`.

    `owner/name`, where no such folder is there, is fetched from Hugging Face's hub: config, safetensors and tokenizer.
    `auto` is a GPU where there is one, and the precision of the file's weights (else float32 or bfloat16).
    """
    place, dtype = usable_device(device), dtype_of(precision)  # refused before anything is read
    model = read_model(Path(folder))
    with in_memory(f"the model in {folder}"):
        model.module.to(device=place, dtype=dtype)
    keep_packed(model.module)
    return model


def read_model(folder: Path) -> Model:
    """The same as it is in the file: on the CPU, with weights that can be trained."""
    folder = located(folder)
    if is_huggingface(folder) or folder.suffix == ".bin":
        found = open_llama2c(folder) if folder.suffix == ".bin" else open_folder(folder)
        return Model(found.module, found.tokenizer, task_of(found.task), found.decoding)
    return _load(folder)


def _load(folder: Path) -> Model:
    module = load_model(folder)
    recipe, task, kind = read_purpose(folder)
    tokenizer = (PretrainedTokenizer if kind == "pretrained" else KINDS[kind]).load(folder / "tokenizer.json")
    if tokenizer.size > module.config.vocabulary or (
        tokenizer.size != module.config.vocabulary and kind != "pretrained"
    ):
        raise FileError(
            f"{folder} has a tokenizer of {tokenizer.size} entries and a model of {module.config.vocabulary}",
            "they must come from the same training",
        )
    if isinstance(tokenizer, PretrainedTokenizer):
        tokenizer = tokenizer.of_size(module.config.vocabulary)
    values = read_json(folder / "generation_config.json", "copy it again from the trained folder")
    kept = {key: value for key, value in values.items() if key in DecodingTable.model_fields}
    return Model(module, tokenizer, task_of(task), DecodingTable.model_validate(kept), recipe)


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

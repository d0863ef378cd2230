"""A model from a folder: one that `train` or `Model.save` wrote, Hugging Face's, or llama2.c's `.bin`."""

from pathlib import Path

import torch

from regard.api.model import Model
from regard.devices import dtype_of, in_memory, usable_device
from regard.errors import FileError
from regard.files import read_json
from regard.interop.huggingface import is_huggingface
from regard.interop.loading import open_folder, open_llama2c
from regard.layers.linear import keep_packed
from regard.models.checkpoint import load_model
from regard.tasks.recipe import DecodingTable, Recipe, read_recipe
from regard.text.pretrained import PretrainedTokenizer
from regard.text.registry import KINDS


def load(folder: str | Path, device: str | torch.device = "auto", precision: str = "auto") -> Model:
    """The model in a folder that `train` or `Model.save` wrote, in one of Hugging Face's, or in llama2.c's `.bin`.

    `auto` is a GPU where there is one, and the precision of the file's weights (else float32 or bfloat16).
    """
    place, dtype = usable_device(device), dtype_of(precision)  # refused before anything is read
    model = _read(Path(folder))
    with in_memory(f"the model in {folder}"):
        model.module.to(device=place, dtype=dtype)
    keep_packed(model.module)
    return model


def _read(folder: Path) -> Model:
    if is_huggingface(folder) or folder.suffix == ".bin":
        module, tokenizer, recipe = open_llama2c(folder) if folder.suffix == ".bin" else open_folder(folder)
        return Model(module, tokenizer, recipe, recipe.decoding)
    return _load(folder)


def _load(folder: Path) -> Model:
    module = load_model(folder)
    recipe = read_run(folder)
    kind = recipe.tokenizer.kind
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
    return Model(module, tokenizer, recipe, DecodingTable.model_validate(kept))


def read_run(folder: Path) -> Recipe:
    """The recipe that a folder's model was trained by."""
    path = folder / "recipe.toml"
    if not path.is_file():
        raise FileError(f"{path} does not exist", "the folder is not complete; train again or copy it again")
    return read_recipe(str(path))

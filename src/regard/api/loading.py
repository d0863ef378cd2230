"""A model from a folder: one that `train` or `Model.save` wrote, Hugging Face's, or llama2.c's `.bin`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from regard.api.adapters import Base, base_folder, named
from regard.api.model import Model
from regard.api.purpose import read_decoding, read_purpose
from regard.devices import INT8, dtype_of, in_memory, usable_device
from regard.errors import FileError
from regard.interop.hub import located
from regard.interop.huggingface import is_huggingface
from regard.interop.loading import open_folder, open_llama2c
from regard.interop.peft import is_adapter
from regard.layers.linear import keep_int8, keep_packed
from regard.models.checkpoint import load_model
from regard.models.lora import identity, merge
from regard.tasks.task import task_of
from regard.text.pretrained import PretrainedTokenizer
from regard.text.registry import KINDS


def load(
    folder: str | Path,
    device: str | torch.device = "auto",
    precision: str = "auto",
    *,
    adapters: Mapping[str, str | Path] | None = None,
    snapshot: int | None = None,
) -> Model:
    """The model in a folder that `train` or `Model.save` wrote, in one of Hugging Face's, or in llama2.c's `.bin`.

    `owner/name`, where no such folder is there, is fetched from Hugging Face's hub: config, safetensors and tokenizer.
    `auto` is a GPU where there is one, and the precision of the file's weights (else float32, bfloat16, or int8 for
    weights rounded to 8 bits, which are fast, a little off and not trained). With `adapters`, folders by name,
    `model.adapters[name]` is the model through that adapter; all share the base's weights.
    With `snapshot` it is the model of a run as it was after that step, where `training.snapshots` names it.
    """
    place = usable_device(device)
    dtype = dtype_of(precision, place)  # both refused before anything is read
    folders = named(adapters or {})
    model = read_model(Path(folder), snapshot)
    digest = identity(merge(model.module)) if folders else ""
    with in_memory(f"the model in {folder}"):
        model.module.to(device=place, dtype=dtype)
    base = Base(model, digest)
    keep = keep_int8 if precision == INT8 else keep_packed
    keep(model.module)
    return replace(model, adapters={name: base.through(one) for name, one in folders.items()})


def read_model(folder: Path, snapshot: int | None = None) -> Model:
    """The same as it is in the file: on the CPU, with weights that can be trained."""
    folder = located(folder)
    if snapshot is not None and (is_adapter(folder) or is_huggingface(folder) or folder.suffix == ".bin"):
        raise FileError(f"{folder} is not a run that keeps snapshots of a whole model", "leave `snapshot` out")
    if folder.is_dir() and is_adapter(folder):
        base = read_model(base_folder(folder))
        return Base(base, identity(merge(base.module))).through(folder)
    if is_huggingface(folder) or folder.suffix == ".bin":
        found = open_llama2c(folder) if folder.suffix == ".bin" else open_folder(folder)
        return Model(found.module, found.tokenizer, task_of(found.task), found.decoding)
    return _load(folder, snapshot)


def _load(folder: Path, snapshot: int | None) -> Model:
    module = load_model(folder, snapshot)
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
    return Model(module, tokenizer, task_of(task), read_decoding(folder), recipe)

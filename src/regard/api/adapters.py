"""Models through adapters: one base, read once, and beside its weights what each adapter learnt.

An adapter's folder is one that `train` wrote with [model.adapter], which also says its task, or one of peft's.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from regard.api.model import Model
from regard.api.purpose import read_decoding, read_purpose
from regard.errors import ConfigError, FileError, InputError
from regard.files import read_json
from regard.interop import peft
from regard.interop.loading import TASK_OF_HEAD
from regard.models.checkpoint import CONFIG, read_own_config
from regard.models.lora import beside
from regard.models.network import NetworkConfig
from regard.tasks.task import task_of
from regard.tasks.task_table import read_task

DIGITS = 12
"""Of a digest, for a person."""


class Base:
    """A plain model, and a digest of its weights as they are in their file."""

    def __init__(self, model: Model, identity: str) -> None:
        self.model, self.identity = model, identity
        self.like = torch.empty(0, dtype=model.module.dtype, device=model.module.device)

    def through(self, folder: Path) -> Model:
        """The same model through the adapter in a folder."""
        if not peft.is_adapter(folder):
            raise FileError(
                f"{folder} is no adapter", f"give a folder with {peft.CONFIG} and {peft.WEIGHTS}, and no model"
            )
        adapter = peft.read_adapter(folder)
        if adapter.base is not None and adapter.base != self.identity:
            raise FileError(
                f"{folder} is an adapter of the base {adapter.base[:DIGITS]}…, and these weights are "
                f"{self.identity[:DIGITS]}…",
                f"name the base it was trained on: {adapter.values.get('base_model_name_or_path')}",
            )
        config = _config(adapter, self.model.module.config)
        network, lacking = beside(self.model.module, config)
        peft.install(adapter, network, lacking, self.like)
        return _with_purpose(replace(self.model, module=network, recipe=None), folder)


def base_folder(folder: Path) -> Path:
    """Where the base of an adapter is, as its folder says."""
    named = read_json(folder / peft.CONFIG, "copy it again").get("base_model_name_or_path")
    if not isinstance(named, str) or not named or not Path(named).is_dir():
        raise FileError(
            f"{folder} is an adapter of {named}, which is no folder here",
            "name the base's folder and give the adapter beside it: `adapters={NAME: FOLDER}`",
        )
    return Path(named)


def named(adapters: Mapping[str, str | Path]) -> dict[str, Path]:
    """Adapters' folders by their names."""
    for name in adapters:
        if not name:
            raise InputError("an adapter has no name", "give each a name: `adapters={NAME: FOLDER}`")
    return {name: Path(folder) for name, folder in adapters.items()}


def _config(adapter: peft.AdapterFile, base: NetworkConfig) -> NetworkConfig:
    """The base's config with the adapter's head."""
    if (adapter.folder / CONFIG).is_file():
        return read_own_config(adapter.folder)
    try:
        return peft.head_of(adapter, base)
    except ConfigError as error:
        raise FileError(f"{adapter.folder} does not fit this base: {error.problem}", error.remedy) from error


def _with_purpose(model: Model, folder: Path) -> Model:
    """What the adapter's folder says it is for, or else what its head says, or else what its base is for."""
    if (folder / "recipe.toml").is_file():
        recipe, task, _ = read_purpose(folder)
        return replace(model, task=task_of(task), decoding=read_decoding(folder), recipe=recipe)
    outputs = model.module.config.outputs
    if outputs in model.task.needs.outputs:
        return model
    return replace(model, task=task_of(read_task({"name": TASK_OF_HEAD[outputs]})))

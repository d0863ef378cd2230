"""A model in a folder: `config.json` says what it is, `model.safetensors` holds its weights. No pickles, ever."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import ConfigError, FileError, InputError
from regard.files import read_json, write_json, writing
from regard.layers.linear import in_int8
from regard.models.lora import merged_state
from regard.models.network import NETWORKS, Network, NetworkConfig
from regard.plugins import load_plugins

CONFIG, WEIGHTS = "config.json", "model.safetensors"
SNAPSHOTS = "snapshots"
"""In a run's folder: weights that were kept on purpose while it trained, `step-50.safetensors`."""
PREFIX = "regard-"
"""What config.json's `model_type` begins with; the name of the network follows."""


def save_model(folder: Path, model: Network) -> None:
    """Both files, the config first: weights without a config would be of no use. Adapters are merged."""
    if in_int8(model):
        raise InputError(
            "weights that were rounded to int8 are not those of the model", "load it in another precision to save it"
        )
    save_config(folder, model)
    save_tensors(folder / WEIGHTS, merged_state(model))


def save_config(folder: Path, model: Network) -> None:
    """What the model is."""
    name = f"{PREFIX}{model.config.name}"
    write_json(folder / CONFIG, {"model_type": name, **model.config.model_dump(exclude={"name", "vectors"})})


def is_own(values: dict[str, Any]) -> bool:
    """Whether a config.json's values are of a folder that Regard wrote."""
    return str(values.get("model_type")).startswith(PREFIX)


def read_own_config(folder: Path) -> NetworkConfig:
    """What the config.json of a folder that Regard wrote describes."""
    values = read_json(folder / CONFIG, "give the folder of a trained model; `regard train` writes one")
    kind = values.pop("model_type", None)
    if not is_own({"model_type": kind}):
        what = "does not say its model_type" if kind is None else f"describes a {kind!r} model"
        raise FileError(f"{folder / CONFIG} {what}", f"this version loads {_known()}")
    load_plugins()
    name = str(kind).removeprefix(PREFIX)
    if name not in NETWORKS:
        remedy = f"this version loads {_known()}; a network of your own is registered before its folder is loaded"
        raise FileError(f"{folder / CONFIG} describes a {kind!r} model", remedy)
    try:
        return NETWORKS[name].config.model_validate({**values, "name": name})
    except ConfigError as error:
        raise FileError(f"{folder / CONFIG} is damaged: {error.problem}", error.remedy) from error


def snapshot_file(folder: Path, step: int) -> Path:
    """Where a run keeps the weights it had after a step."""
    return folder / SNAPSHOTS / f"step-{step}.safetensors"


def snapshots_of(folder: Path) -> list[int]:
    """The steps whose weights a run kept, in order."""
    names = (path.stem.removeprefix("step-") for path in (folder / SNAPSHOTS).glob("step-*.safetensors"))
    return sorted(int(name) for name in names if name.isdecimal())


def _weights_of(folder: Path, snapshot: int | None) -> Path:
    """The file to load: the model's, or that of a step."""
    if snapshot is None:
        return folder / WEIGHTS
    steps = snapshots_of(folder)
    if snapshot not in steps:
        kept = f"it has those of {', '.join(map(str, steps))}" if steps else "train with training.snapshots=[0,50,100]"
        raise FileError(f"{folder} kept no weights of step {snapshot}", kept)
    return snapshot_file(folder, snapshot)


def load_model(folder: Path, snapshot: int | None = None) -> Network:
    """The model in this folder, on the CPU, in evaluation mode; as it was after a step whose weights were kept."""
    if not os.path.isdir(folder):  # Path.is_dir raises for a name that is too long
        raise FileError(f"{folder} is not a folder", "give the folder of a trained model, such as runs/demo")
    config = read_own_config(folder)
    with torch.device("meta"):
        model = config.build()
    file = _weights_of(folder, snapshot)
    tensors = load_tensors(file)
    check_names(model.state_dict(), tensors, file)
    model.load_state_dict(tensors, assign=True)  # the file's tensors become the parameters: no second copy
    return model.eval()


def _known() -> str:
    return ", ".join(repr(f"{PREFIX}{name}") for name in NETWORKS)


def check_names(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: Path) -> None:
    """Every tensor has its place and every place its tensor, or the first that does not is named."""
    remedy = "the config and the weights must come from the same model"
    for name, tensor in wanted.items():
        if name not in tensors:
            raise FileError(f"{source} lacks the tensor {name!r}", remedy)
        if tensors[name].shape != tensor.shape:
            shapes = f"{list(tensors[name].shape)}, the config {list(tensor.shape)}"
            raise FileError(f"{source} has {name!r} shaped {shapes}", remedy)
        if tensors[name].is_floating_point() != tensor.is_floating_point():
            kinds = f"{tensors[name].dtype}, the model needs {tensor.dtype}"
            raise FileError(f"{source} has {name!r} as {kinds}", remedy)
    for name in tensors:
        if name not in wanted:
            raise FileError(f"{source} has a tensor {name!r} this model does not know", remedy)


def save_tensors(path: Path, tensors: dict[str, Tensor], said: dict[str, str] | None = None) -> None:
    """A whole safetensors file, or none of it; `said` is what stands in it beside the tensors.

    The library writes to a file `.tmpXXXXXX` beside the one it is given, and a kill leaves it there: it gets a folder
    of its own, with a name that is known to be half-written.
    """
    with writing(path) as partial, TemporaryDirectory(prefix=f"{partial.name}-", dir=partial.parent) as room:
        written = Path(room) / WEIGHTS
        try:
            save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, written, said)
        except SafetensorError as error:  # a full disk, above all
            raise OSError(str(error)) from error
        os.replace(written, partial)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a truncated one, or one of another kind, is named."""
    if not path.is_file():
        raise FileError(f"{path} does not exist", "the folder is not complete; train again or copy it again")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} is damaged: {error}",
            "copy it again, or put the model.safetensors of its newest state/step-N in its place",
        ) from error

"""A model in a folder: `config.json` says what it is, `model.safetensors` holds its weights. No pickles, ever."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.errors import ConfigError, FileError
from regard.files import read_json, write_json, writing
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

CONFIG, WEIGHTS = "config.json", "model.safetensors"
MODEL_TYPE = "regard-transformer"


def save_model(folder: Path, model: Transformer) -> None:
    """Both files, the config first: weights without a config would be of no use."""
    save_config(folder, model)
    save_tensors(folder / WEIGHTS, model.state_dict())


def save_config(folder: Path, model: Transformer) -> None:
    """What the model is."""
    write_json(folder / CONFIG, {"model_type": MODEL_TYPE, **model.config.model_dump()})


def load_model(folder: Path) -> Transformer:
    """The model in this folder, on the CPU, in evaluation mode."""
    if not os.path.isdir(folder):  # Path.is_dir raises for a name that is too long
        raise FileError(f"{folder} is not a folder", "give the folder of a trained model, such as runs/demo")
    remedy = "give the folder of a trained model; `regard train` writes one"
    values = read_json(folder / CONFIG, remedy)
    kind = values.pop("model_type", None)
    if kind != MODEL_TYPE:
        what = "does not say its model_type" if kind is None else f"describes a {kind!r} model"
        raise FileError(f"{folder / CONFIG} {what}", f"this version loads {MODEL_TYPE!r}")
    try:
        config = TransformerConfig.model_validate(values)
    except ConfigError as error:
        raise FileError(f"{folder / CONFIG} is damaged: {error.problem}", error.remedy) from error
    with torch.device("meta"):
        model = Transformer(config)
    tensors = load_tensors(folder / WEIGHTS)
    check_names(model, tensors, folder / WEIGHTS)
    model.load_state_dict(tensors, assign=True)  # the file's tensors become the parameters: no second copy
    return model.eval()


def check_names(model: torch.nn.Module, tensors: dict[str, Tensor], source: Path) -> None:
    """Every tensor has its place and every place its tensor, or the first that does not is named."""
    wanted = model.state_dict()
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
    """The tensors of a safetensors file; a truncated or foreign one is named."""
    if not path.is_file():
        raise FileError(f"{path} does not exist", "the folder is not complete; train again or copy it again")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} is damaged: {error}",
            "copy it again, or put the model.safetensors of its newest state/step-N in its place",
        ) from error

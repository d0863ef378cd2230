"""`regard.doctor`: the laws that a correct model obeys, on any model there is."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from regard.api.loading import read_model
from regard.api.model import Model
from regard.devices import INT8, dtype_of, in_memory, usable_device
from regard.errors import InputError
from regard.inspection.doctor import Checkup, chosen_laws, examine
from regard.inspection.laws import Examined
from regard.interop.hub import located


def doctor(
    model: Model | nn.Module | str | Path,
    *,
    only: Sequence[str] | None = None,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    precision: str | None = None,
    told: Callable[[str], None] | None = None,
) -> Checkup:
    """Examine a model by every law, or by those named in `only`: measured number, tolerance, and what breaks it.

    The model is a folder, a loaded Model, a Network, or an nn.Module of your own with `forward(inputs)` and, if it
    decodes, `start`, `step` and `extend`. What a model does not have is not applicable, and said. `folder` is that of
    a loaded model, whose weights are then compared with its file. `told` hears the name of each law as it begins.
    """
    chosen_laws([only] if isinstance(only, str) else only)  # an unknown one is refused before anything is read
    if isinstance(model, str | Path):
        if folder is not None:
            raise InputError(f"folder = {folder} has no effect beside the folder {model}", "leave it out")
        path, place = Path(model), usable_device(device or "auto")
        dtype_of(precision or "auto", place)  # likewise
        if precision == INT8:
            raise InputError("weights in int8 obey no law of training, and are not the file's", "use another precision")
        loaded = read_model(path)
        with in_memory(f"the model in {path}"):
            loaded.to(place, precision or "auto")
        known = Examined.of(loaded.module, located(path), loaded.tokenizer)
        return examine(known, str(model), _names(only), told)
    if device is not None or precision is not None:
        raise InputError(
            "device and precision have no effect on a model that is there already", "move it with `model.to`"
        )
    where = None if folder is None else Path(folder)
    if isinstance(model, Model):
        return examine(Examined.of(model.module, where, model.tokenizer), repr(model), _names(only), told)
    return examine(Examined.of(model, where), type(model).__name__, _names(only), told)


def _names(only: Sequence[str] | None) -> Sequence[str] | None:
    return [only] if isinstance(only, str) else only

"""What of a model a run keeps on the disk, and as which file its best one is written."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from regard.models.checkpoint import WEIGHTS, load_tensors, save_tensors


class Filing:
    """All of the model, as `model.safetensors`. Derive from it to keep less, or to write it otherwise."""

    name = WEIGHTS

    def kept(self, module: nn.Module) -> dict[str, Tensor]:
        """What a state holds of a module."""
        found: dict[str, Tensor] = module.state_dict()
        return found

    def restore(self, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """Copy it back in its place: an optimizer holds these very parameters."""
        module.load_state_dict(tensors)

    def write(self, path: Path, tensors: dict[str, Tensor]) -> None:
        """The model that others load."""
        save_tensors(path, tensors)

    def read(self, path: Path) -> dict[str, Tensor]:
        """And back."""
        return load_tensors(path)


WHOLE = Filing()

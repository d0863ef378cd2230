"""The tensors of a folder's safetensors, in one file or in shards, read one by one. A pickle is never opened.

A tensor that is read is the file itself, mapped: its pages are loaded when they are used, and are there once. What has
to be changed is copied from a mapping of its own, whose pages are given back when the copy is made.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from regard.errors import FileError
from regard.files import read_json
from regard.models.checkpoint import WEIGHTS

INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.bin")
LONGEST_NAME = 255
"""Bytes of a file's name that systems allow."""
BLOCK = 2**22
"""Numbers compared at a time."""


class Tensors:
    """Tensors by name; the files are open as long as this is used inside `opened`."""

    def __init__(self, handles: dict[Path, Any]) -> None:
        self._handles = handles
        self.places = {name: path for path, handle in handles.items() for name in handle.keys()}  # noqa: SIM118
        """Which file each tensor is in."""

    def read(self, name: str) -> torch.Tensor:
        """A tensor as it is in its file."""
        with _named(self.places[name]):
            tensor: torch.Tensor = self._handles[self.places[name]].get_tensor(name)
            return tensor

    def copy(self, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """What a function makes of a tensor; nothing of the file stays in memory."""
        with _named(self.places[name]), safe_open(self.places[name], framework="pt") as handle:
            tensor = handle.get_tensor(name)
            made = change(tensor)
            mapped = made.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            return made.clone() if mapped else made

    def equal(self, name: str, other: str) -> bool:
        """Whether two tensors are the same, compared a part at a time."""
        shape = self._slice(name).get_shape()
        if shape != self._slice(other).get_shape():
            return False
        rows = shape[0] if shape else 1
        step = max(1, BLOCK * rows // max(1, torch.Size(shape).numel()))
        for first in range(0, rows, step):
            parts = [self._part(one, first, first + step) for one in (name, other)]
            if not torch.equal(*parts):
                return False
        return True

    def _slice(self, name: str) -> Any:
        return self._handles[self.places[name]].get_slice(name)

    def _part(self, name: str, first: int, last: int) -> torch.Tensor:
        def cut(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[first:last] if tensor.dim() else tensor

        return self.copy(name, cut)


@contextmanager
def opened(folder: Path) -> Iterator[Tensors]:
    """The tensors of a folder, whose files stay open inside the block."""
    with ExitStack() as stack:
        handles: dict[Path, Any] = {}
        for path in _files(folder):
            with _named(path):
                handles[path] = stack.enter_context(safe_open(path, framework="pt"))
        yield Tensors(handles)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What the library says of a damaged file, as a sentence that names it."""
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is damaged: {error}", "copy it again") from error


def _files(folder: Path) -> list[Path]:
    """The files that hold the weights."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _shards(folder)
    pickled = next((name for name in PICKLES if (folder / name).exists()), None)
    if pickled is not None:
        raise FileError(
            f"{folder / pickled} is a pickle, which can run any program when it is opened",
            "convert it where you trust it: transformers' from_pretrained(FOLDER).save_pretrained(OTHER)",
        )
    raise FileError(
        f"{folder} has no {WEIGHTS}", "give the folder of a trained model, with config.json and model.safetensors"
    )


def _shards(folder: Path) -> list[Path]:
    """The files the index names, each inside the folder and there."""
    shards = read_json(folder / INDEX, "copy it again").get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise FileError(f"{folder / INDEX} has no weight_map of names", "copy it again")
    found = []
    for name in sorted(set(shards.values())):
        if Path(name).name != name or not 0 < len(name.encode(errors="replace")) <= LONGEST_NAME:
            raise FileError(
                f"{folder / INDEX} names {name[:80]!r}, outside its folder", "copy it from its source again"
            )
        if not (folder / name).is_file():
            raise FileError(f"{folder} lacks {name}, which its index names", "copy it again")
        found.append(folder / name)
    return found

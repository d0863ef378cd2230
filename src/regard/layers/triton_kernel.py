"""Kernels of our own for a GPU, written in Triton: compiled when first started, and used only where they are right.

Every one has a way without it, by PyTorch's own operators, and that way is what it means. Where Triton is missing, a
compiler fails or a small example comes out wrong, that way is taken and a warning says so. `REGARD_WITHOUT`, names
with commas between, leaves kernels out: what each is worth is measured so. No shape is chosen by the clock.
"""

import os
import warnings
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from inspect import unwrap
from typing import Any

import torch

NAMES = ("attention", "norm", "gate", "product", "head", "choice", "draw")
"""What can be left out; without `attention` a step goes the long way through the layers."""

_right: dict[tuple[str, torch.device, torch.dtype], bool] = {}


class TritonKernel:
    """A function in Triton's language; `tl` of its file is that language from the moment it is compiled."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = unwrap(function)  # of what checks shapes in tests nothing may be compiled

    @cached_property
    def compiled(self) -> Any:
        """For every type and size anew, when first started with them."""
        self.function.__globals__["tl"] = import_module("triton.language")
        return import_module("triton").jit(self.function)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.compiled[grid]


def available() -> bool:
    """Whether Triton is here: it comes with PyTorch for GPUs."""
    return find_spec("triton") is not None


def left_out(name: str) -> bool:
    """Whether somebody asked for this kernel not to be used."""
    return name in os.environ.get("REGARD_WITHOUT", "").split(",")


def tried() -> dict[str, bool]:
    """Which kernels have been tried so far, for numbers of which type, and whether they came out right."""
    return {f"{name}, {dtype}, {device}": right for (name, device, dtype), right in _right.items()}


def runs(name: str, device: torch.device, dtype: torch.dtype, example: Callable[[], tuple[Any, Any]]) -> bool:
    """Whether the kernel of this name is used for numbers of this type: it is here, and its example comes out right.

    The example gives what the kernel finds and what is right; it is tried once for every device and type.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"  # on a CPU, as the tests do
    if not (device.type == "cuda" or interpreted) or left_out(name) or not available():
        return False
    key = name, device, dtype
    if key not in _right:
        _right[key] = _comes_out(name, dtype, example)
    return _right[key]


def _comes_out(name: str, dtype: torch.dtype, example: Callable[[], tuple[Any, Any]]) -> bool:
    near = 1e-5 if dtype in (torch.float32, torch.float64) else 0.03
    try:
        with torch.no_grad():
            found, expected = (one.double() for one in example())
            if torch.allclose(found, expected, rtol=near, atol=near * float(expected.abs().max())):
                return True
            reason = f"it is off by {float((found - expected).abs().max()):.2g}"
    except Exception as error:  # whatever a compiler says where it cannot
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(f"the kernel {name!r} is not used for {dtype}: {reason}", RuntimeWarning, stacklevel=2)
    return False


def size_above(number: int, least: int = 1) -> int:
    """The next power of two: what Triton makes blocks of."""
    return max(least, 1 << (number - 1).bit_length())

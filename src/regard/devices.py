"""Where a model computes and in what numbers: `device` and `precision` mean the same wherever they can be given."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.errors import InputError, choose

REFUSALS = ("allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")
"""What a RuntimeError says that means memory."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
INT8 = "int8"
"""The precision of weights that are rounded to 8 bits; what is computed with them has a type of its own."""


def usable_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name, once it has been asked for a number; `auto` is a GPU where there is one."""
    there = torch.cuda.is_available()
    try:
        device = torch.device(("cuda" if there else "cpu") if name == "auto" else name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device {str(name)!r} cannot be used here", "use auto, cpu or cuda" if there else "use auto or cpu"
        ) from error
    return device


def dtype_of(precision: str, device: torch.device) -> torch.dtype | None:
    """The type of a precision's numbers; None for `auto`, which leaves weights in the type they have.

    Beside weights of 8 bits everything else is float32 on a CPU, whose product of these gives that, else bfloat16.
    """
    if precision == "auto":
        return None
    if precision == INT8:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if precision not in PRECISIONS:
        raise InputError(f"precision {precision!r} is unknown", choose(str(precision), ["auto", *PRECISIONS, INT8]))
    return PRECISIONS[precision]


@contextmanager
def in_memory(what: str) -> Iterator[None]:
    """Say of what does not fit in memory that it does not; any other error is left as it is."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(one in str(error) for one in REFUSALS):
            raise InputError(f"{what} does not fit in memory", "make it smaller, or use another device") from error
        raise


def device_in_words(device: torch.device) -> str:
    """A GPU by its name, a CPU with the threads that are used."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type} ({threads} thread{'' if threads == 1 else 's'})"

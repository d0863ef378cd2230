"""The most memory that was held while something ran: of a GPU what tensors took, of a CPU what the process held.

A CPU's is the high-water mark of the resident set, which Linux can set back (proc(5), `clear_refs`); elsewhere it is
not known. What an allocator keeps of what was freed before would be counted too, so it is given back first.
"""

import ctypes
import ctypes.util
import gc
from contextlib import suppress
from pathlib import Path

import torch

_FORGET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def begin_peak(device: torch.device) -> int | None:
    """Begin to watch; the bytes that are held now, or None where it cannot be known."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(ctypes.util.find_library("c")).malloc_trim(0)
    try:
        _FORGET.write_text("5")
    except OSError:
        return None
    return _resident("VmRSS")


def peak(device: torch.device) -> int | None:
    """The most bytes that were held since `begin_peak`."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    return _resident("VmHWM") if _FORGET.exists() else None


def _resident(key: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0]) * 1024
    return None

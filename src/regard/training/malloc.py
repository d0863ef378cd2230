"""Keeping freed memory: glibc gives large tensors back to the system at every step and faults them in again.

Called by the commands that train or measure, never on import: it holds on to about a gigabyte for shorter steps.
"""

import ctypes
import ctypes.util

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep what is freed; False where the C library is another one."""
    try:
        mallopt = ctypes.CDLL(ctypes.util.find_library("c")).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 256 << 20}
    answers = [mallopt(name, value) for name, value in settings.items()]  # all are told, whatever the first says
    return answers == [1] * len(settings)

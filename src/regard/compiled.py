"""Numba's compiled functions, kept between runs: what was kept and cannot be read is compiled anew.

A disk that was full or a process that was killed leaves half a file, of which Numba would raise whatever half a pickle
raises. Where there is no room to keep the code, the function is compiled in every run.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core import caching

Compiled = Callable[..., Any]
_FunctionCache: Any = caching.FunctionCache


class MendingCache(_FunctionCache):  # type: ignore[misc]
    """Files of a function's code: a broken one is as good as none."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for these types, or None."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # of half a pickle anything may come
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code, where there is room."""
        with suppress(OSError):
            super().save_overload(sig, data)


def cached_njit(function: Compiled, options: dict[str, Any]) -> Compiled:
    """The function compiled when it is first called, without Python's lock, and kept."""
    part: Compiled = numba.njit(function, cache=True, nogil=True, **options)
    setattr(part, "_cache", MendingCache(function))  # noqa: B010
    return part

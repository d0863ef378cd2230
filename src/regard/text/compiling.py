"""Numba compiles a kernel when it is first called, and keeps it: whoever waits is told what for.

with announcing(print):
    tokenizer = BpeTokenizer.train(texts, 8000)     # compiling the tokenizer's learner, once: …
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_TELL: ContextVar[Callable[[str], None] | None] = ContextVar("tell", default=None)


@contextmanager
def announcing(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside the block `tell` gets a sentence before something is compiled."""
    before = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(before)


def announce(kernel: Any, what: str, seconds: int) -> None:
    """Say that a kernel of Numba's is going to be compiled, unless one is kept; `seconds` is how long that takes."""
    tell = _TELL.get()
    if tell is not None and not is_kept(kernel):
        tell(f"compiling {what}, once: about {seconds} s")


def is_kept(kernel: Any) -> bool:
    """Whether an earlier process left it compiled from its file as it is, or this one has compiled it."""
    if kernel.signatures:
        return True
    source = Path(kernel.py_func.__code__.co_filename)
    kept = Path(kernel.stats.cache_path).glob(f"{source.stem}.{kernel.py_func.__name__}-*.nbi")
    return any(index.stat().st_mtime >= source.stat().st_mtime for index in kept)

"""Threads of Word2Vec's kernel that wait for each other: a little while awake, then asleep.

The kernel runs without Python's lock, once on each of as many threads as there are parts of the work, and the parts
meet after every step of a block, thousands of times a second. Whoever waits looks again and again, since the others
are nearly there; but if one of them was put aside for another program, the core is left to it. A meeting is one
number that counts all arrivals so far.
"""

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int64
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from regard.compiled import cached_njit

LOOKS = 2000
"""Before a waiting thread sleeps: some tens of microseconds, a part of the time that a block takes."""
BROKEN_OFF = 2**62
"""Arrivals that never come about: nobody waits any more."""


class Meeting(NamedTuple):
    """How often anybody has arrived so far, and where the system's function lies that sleeps."""

    arrivals: Int64[np.ndarray, "1"]
    sleep: int


def new_meeting() -> Meeting:
    """Nobody has arrived yet."""
    if sys.platform == "win32":
        sleep = ctypes.windll.kernel32.Sleep  # milliseconds
    else:
        sleep = ctypes.CDLL(None).usleep  # microseconds
    return Meeting(np.zeros(1, np.int64), ctypes.cast(sleep, ctypes.c_void_p).value or 0)


def share_out(work: Callable[[int], object], parts: int, meeting: Meeting) -> None:
    """Do every part of the work at once, each on a thread of its own; what stops one of them stops all."""
    failures: list[BaseException] = []

    def attempt(part: int) -> None:
        try:
            work(part)
        except BaseException as failure:
            failures.append(failure)
            meeting.arrivals[0] = BROKEN_OFF

    threads = [Thread(target=attempt, args=(part,)) for part in range(parts)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C, or no thread to be had: those who wait for others must not wait for ever
        meeting.arrivals[0] = BROKEN_OFF
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if failures:
        raise failures[0]


@intrinsic
@no_type_check
def _add(typing: Any, address: Any, number: Any) -> Any:
    """Add to the number at an address, as one act for all threads; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", where, arguments[1], "seq_cst")

    return types.int64(types.uintp, types.int64), generate


@intrinsic
@no_type_check
def _look(typing: Any, address: Any) -> Any:
    """The number at an address as it is now; whatever was written before it is then seen too."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(where, "seq_cst", 8)

    return types.int64(types.uintp), generate


@intrinsic
@no_type_check
def _pause(typing: Any) -> Any:
    """Tell the core that this is waiting, where it has a word for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", [], kind), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
@no_type_check
def _call(typing: Any, function: Any, number: Any) -> Any:
    """Call the function at an address with one number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.uintp, types.int32), generate


@partial(cached_njit, options={"_nrt": False})
@no_type_check
def meet(meeting: Meeting, arrivals: int) -> bool:
    """Arrive, and wait until so many have; false when the work was broken off."""
    address = np.uintp(meeting.arrivals.ctypes.data)
    seen, looks = _add(address, 1) + 1, 0
    while seen < arrivals:
        looks += 1
        if looks < LOOKS:
            _pause()
        else:
            _call(np.uintp(meeting.sleep), np.int32(1))
        seen = _look(address)
    return seen < BROKEN_OFF

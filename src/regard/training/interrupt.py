"""Stopping a run without losing anything: the step is finished, its state saved, and only then it stops.

A run looks at its `Interrupt` after every step; any thread may ask. The command line listens to signals (`listening`),
and `regard.train` to Ctrl-C where nobody else does (`at_keyboard`).
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = "\nfinishing this step and saving; once more to stop at once\n"
AT_ONCE = "\nregard: stopped at once; a training that has saved a state goes on from it when it is resumed\n"


class Stopped(Exception):  # noqa: N818  (nothing is wrong)
    """A run that stopped because it was asked to, with everything saved."""

    def __init__(self, step: int, folder: Path, number: int) -> None:
        super().__init__(f"stopped after step {step}, which is saved in {folder}")
        self.step = step
        self.folder = folder
        self.code = 128 + number
        """What a process that ends by this signal exits with."""


class Interrupt:
    """A wish to stop that a run can see."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that asked, once something has."""
        self.heeded = False
        """Whether a run is looking: before its first step there is nothing to save."""

    def ask(self, number: int = signal.SIGINT) -> None:
        """Stop after the step that is under way."""
        self.number = int(number)

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """While a run is looking."""
        self.heeded = True
        try:
            yield
        finally:
            self.heeded = False


@contextmanager
def listening() -> Iterator[Interrupt]:
    """Ctrl-C and SIGTERM ask the `Interrupt`; a second one, or one before the first step, ends at once.

    Outside the main thread, where Python allows no handlers, only `ask` does.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def hear(number: int, frame: FrameType | None) -> None:
        if interrupt.heeded and interrupt.number is None:
            interrupt.ask(number)
            os.write(2, PATIENCE.encode())  # a signal may come in the middle of a print
            return
        if interrupt.number is not None:  # raising could end in a library that makes another error of it
            cursor = "\x1b[?25h" if os.isatty(2) else ""  # a progress bar has hidden it
            os.write(2, f"{cursor}{AT_ONCE}".encode())
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # another one needs nobody's help
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    before = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def at_keyboard() -> Iterator[Interrupt | None]:
    """Ctrl-C in anybody's program: the first asks, and is a `KeyboardInterrupt` when all is saved; a second at once.

    None outside the main thread, and where the program listens to Ctrl-C itself.
    """
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield None
        return
    interrupt = Interrupt()

    def hear(number: int, frame: FrameType | None) -> None:
        if not interrupt.heeded or interrupt.number is not None:
            raise KeyboardInterrupt
        interrupt.ask(number)
        os.write(2, PATIENCE.encode())

    signal.signal(signal.SIGINT, hear)
    try:
        yield interrupt
    except Stopped as stopped:
        raise KeyboardInterrupt(f"{stopped}; `resume=True` goes on from it") from None
    finally:
        signal.signal(signal.SIGINT, usual)

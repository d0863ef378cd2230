"""Batches prepared ahead of the step, by a thread beside the one that trains.

Same batches, same positions, same order as the stream it wraps: only when they are made changes. The thread waits when
`depth` batches are ready, ends when the iterator is closed or forgotten, and what it trips over is raised where its
batch would have come. Where there is a GPU, batches wait in pinned memory, so that sending them does not stop it.
"""

import atexit
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event, Thread, current_thread
from weakref import WeakSet

import torch

from regard.data.batching import Batch
from regard.data.stream import Batches, Position


@dataclass(frozen=True)
class _Raised:
    """The end of a stream: what it raised, or None where it simply ended."""

    error: BaseException | None


_Item = tuple[Batch, Position] | _Raised


@dataclass(frozen=True)
class Prefetch:
    """A stream whose next `depth` batches are made while the last one is used."""

    batches: Batches
    depth: int = 4

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """Batches from here on, each with the position after it; the thread begins with the first one asked for."""
        worker = _Worker(self.batches, position, self.depth)
        try:
            while True:
                item = worker.ready.get()
                if isinstance(item, _Raised):
                    if item.error is not None:
                        raise item.error
                    return
                yield item
        finally:
            worker.end()


class _Worker:
    """A thread with the queue it fills. The thread does not hold its worker, so that whoever reads may vanish."""

    def __init__(self, batches: Batches, position: Position, depth: int) -> None:
        self.ready: Queue[_Item] = Queue(depth)
        self.stop = Event()
        self.thread = Thread(
            target=_prepare, args=(batches, position, self.ready, self.stop), name="batches ahead", daemon=True
        )
        _WORKERS.add(self)
        self.thread.start()

    def end(self) -> None:
        """Tell the thread to stop and wait until it has."""
        self.stop.set()
        with suppress(Empty):
            self.ready.get_nowait()  # it may be waiting for room
        if current_thread() is not self.thread:  # as when that very thread collects the garbage that held the reader
            self.thread.join()


_WORKERS: "WeakSet[_Worker]" = WeakSet()


@atexit.register
def _end_all() -> None:
    """A thread that still runs when the interpreter is taken down would take the process with it."""
    for worker in list(_WORKERS):
        worker.end()


def _prepare(batches: Batches, position: Position, ready: "Queue[_Item]", stop: Event) -> None:
    """Put what the stream gives into the queue until told to stop."""
    pinned = torch.cuda.is_available()
    try:
        for batch, after in batches.start(position):
            item: _Item = (batch.pinned() if pinned else batch, after)
            if stop.is_set():
                return
            ready.put(item)
            if stop.is_set():
                return
        ready.put(_Raised(None))
    except BaseException as error:
        ready.put(_Raised(error))

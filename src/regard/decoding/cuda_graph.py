"""Work on a GPU captured once and replayed: a step of decoding is a few hundred kernels, and starting them one by one
takes longer than they do.

A graph holds on to the addresses of all it reads and writes, so what it works on may not move and what it goes by may
not come from the host. Graphs share one pool of memory: they never run at the same time.
"""

import threading
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from regard.decoding.filters import holding

MOST = 128
"""Graphs of an engine: what has not been asked for longest goes."""


class Replays:
    """Pieces of work by their key, captured when first asked for."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Hashable, list[Tensor]]]] = {}
        """Each with what it reads that nobody else need keep: of the key what is asked with, and ids."""
        self._pool = torch.cuda.graph_pool_handle()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._graphs

    def __len__(self) -> int:
        return len(self._graphs)

    def capture(self, key: Hashable, work: Callable[[], None], undo: Callable[[], None]) -> None:
        """Keep this work under its key. It is done once before, and undone: libraries set themselves up at first."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
            undo()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with _capturing, holding() as held, torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        if len(self._graphs) == MOST:
            del self._graphs[next(iter(self._graphs))]
        self._graphs[key] = graph, (key, held)

    def replay(self, key: Hashable) -> None:
        """Do it again."""
        last = self._graphs[key] = self._graphs.pop(key)
        last[0].replay()


_capturing = threading.Lock()
"""PyTorch captures on one stream; what other threads do meanwhile on theirs is their own affair."""

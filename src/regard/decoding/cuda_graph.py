"""Work on a GPU captured once and replayed: a step of decoding is a few hundred kernels, and starting them one by one
takes longer than they do.

A graph holds on to the addresses of all it reads and writes, so what it works on may not move and what it goes by may
not come from the host. Graphs share one pool of memory: they never run at the same time.
"""

from collections.abc import Callable, Hashable

import torch


class Replays:
    """Pieces of work by their key, captured when first asked for."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
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
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        self._graphs[key] = graph

    def replay(self, key: Hashable) -> None:
        """Do it again."""
        self._graphs[key].replay()

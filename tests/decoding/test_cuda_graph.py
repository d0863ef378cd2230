"""What is kept of graphs: the last that were asked for, with all that they read. The device is a stand-in here."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from regard.decoding import cuda_graph
from regard.decoding.cuda_graph import Replays
from regard.decoding.filters import Generated, Suppressed, _moved, apply, on


class Graph:
    """Remembers how often it was replayed."""

    replayed = 0

    def replay(self) -> None:
        self.replayed += 1


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch):
    stream = type("Stream", (), {"wait_stream": lambda self, other: None})
    for name, value in {
        "graph_pool_handle": lambda: (0, 0),
        "Stream": stream,
        "stream": lambda one: nullcontext(),
        "current_stream": stream,
        "CUDAGraph": Graph,
        "graph": lambda *told, **also: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


def test_what_was_not_asked_for_longest_goes(monkeypatch):
    monkeypatch.setattr(cuda_graph, "MOST", 3)
    replays, done = Replays(), []
    for key in "abc":
        replays.capture(key, lambda key=key: done.append(key), lambda: done.append("undone"))
    assert done == ["a", "undone", "a", "b", "undone", "b", "c", "undone", "c"]
    replays.replay("a")
    replays.capture("d", lambda: None, lambda: None)
    assert [key for key in "abcd" if key in replays] == ["a", "c", "d"]
    assert len(replays) == 3


def test_a_graph_holds_on_to_the_ids_that_its_filters_read():
    """Their cache has room for some: what a graph reads must not go when others come."""
    replays, scores = Replays(), torch.zeros(1, 7)
    generated = Generated(torch.zeros(1, 1, dtype=torch.long), torch.ones(1).long(), torch.ones(1).long())
    ids = weakref.ref(on(scores.device, (3, 5)))
    replays.capture("key", lambda: apply((Suppressed((3, 5)),), scores, generated), lambda: None)
    _moved.cache_clear()
    gc.collect()
    assert ids() is not None
    del replays
    gc.collect()
    assert ids() is None

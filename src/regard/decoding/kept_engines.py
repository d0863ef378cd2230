"""Engines kept with the models they decode: their memory and graphs are made once, and go when the model goes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from regard.models.network import Network

E = TypeVar("E")


@dataclass
class Kept(Generic[E]):
    """An engine, what its graphs were captured of, and whether anybody uses it."""

    engine: E
    weights: tuple[int, ...]
    lock: threading.Lock


class KeptEngines(Generic[E]):
    """One engine of a kind for every model."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[Network, Kept[E]] = WeakKeyDictionary()

    @contextmanager
    def taken(self, model: Network, fits: Callable[[E], bool], make: Callable[[E | None], E]) -> Iterator[E]:
        """The model's engine, ours meanwhile; one of our own where somebody else is using it.

        Where it does not fit, or the weights have moved, `make` gives another; it is shown the one before it.
        """
        weights = _places(model)
        kept = self.of.get(model)
        if kept is not None and not kept.lock.acquire(blocking=False):
            yield make(None)
            return
        if kept is None or kept.weights != weights or not fits(kept.engine):
            before = kept.engine if kept is not None and kept.weights == weights else None
            self.of.pop(model, None)
            made = make(before)
            kept = Kept(made, _places(model), threading.Lock())  # an engine may move the weights together
            kept.lock.acquire()
            self.of[model] = kept
        try:
            yield kept.engine
        finally:
            kept.lock.release()


def _places(model: Network) -> tuple[int, ...]:
    """Where the weights are, by which graphs go."""
    return tuple(one.data_ptr() for one in model.parameters()) if model.device.type == "cuda" else ()

"""Engines kept with the models they decode: their memory and graphs are made once, and go when the model goes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

from regard.models.network import Network

Same = TypeVar("Same")  # not Self, which the shape checker of the tests cannot read in a method


@runtime_checkable
class Space(Protocol):
    """What an engine has memory for."""

    def holds(self: Same, other: Same) -> bool:
        """Whether what the other has memory for fits here."""
        ...

    def joined(self: Same, other: Same) -> Same:
        """Enough for the other, and for both where that is not much more."""
        ...


E = TypeVar("E")
C = TypeVar("C", bound=Space)


@dataclass
class Kept(Generic[E, C]):
    """An engine and what it holds, what its graphs were captured of, and whether anybody uses it."""

    engine: E
    space: C
    weights: tuple[object, ...]
    lock: threading.Lock


class KeptEngines(Generic[E, C]):
    """One engine of a kind for every model."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[Network, Kept[E, C]] = WeakKeyDictionary()

    @contextmanager
    def taken(self, model: Network, wanted: C, make: Callable[[C], E]) -> Iterator[E]:
        """The model's engine, ours meanwhile; one of our own where somebody else is using it.

        Where it does not hold what is wanted, or the weights have moved, it goes and `make` gives another. Where
        decoding is broken off it goes as well: what is half done, or no number, is nobody's to begin with.
        """
        kept = self.of.get(model)
        if kept is not None and not kept.lock.acquire(blocking=False):
            yield _made(make, wanted)
            return
        if kept is None or kept.weights != _places(model) or not kept.space.holds(wanted):
            if kept is not None and kept.weights == _places(model):
                wanted = kept.space.joined(wanted)
            self.of.pop(model, None)
            kept = None  # its memory goes before there is more
            kept = Kept(_made(make, wanted), wanted, _places(model), threading.Lock())  # who makes one may move weights
            kept.lock.acquire()
            self.of[model] = kept
        try:
            yield kept.engine
        except BaseException:
            self.of.pop(model, None)
            raise
        finally:
            kept.lock.release()


_making = threading.Lock()


def _made(make: Callable[[C], E], space: C) -> E:
    """One at a time: weights are moved together there."""
    with _making:
        return make(space)


def _places(model: Network) -> tuple[object, ...]:
    """Of which type the weights are, and where, by which graphs go; elsewhere nothing is made of them."""
    places = (one.data_ptr() for one in model.parameters()) if model.device.type == "cuda" else ()
    return (model.dtype, model.device, *places)

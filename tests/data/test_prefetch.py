"""Batches made ahead: the same ones in the same order, errors passed on, and no thread left behind."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import pytest
import torch

from regard.data import prefetch, stream
from regard.data.batching import Batch, Inputs, Padded
from regard.data.corpus import Pair, corpus
from regard.data.objectives import Continuation, SourceToTarget
from regard.data.prefetch import Prefetch
from regard.data.sources import PairList
from regard.data.stream import Batches, BatchStream, Position
from regard.errors import ConfigError, InputError
from regard.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a"], 260)
depths = pytest.mark.parametrize("depth", [1, 2, 7])


@pytest.fixture(autouse=True)
def _no_thread_is_left(monkeypatch):
    monkeypatch.setattr(stream, "POOL", 16)
    before = threading.active_count()
    yield
    gc.collect()
    assert threading.active_count() == before


def batch(number: int) -> Batch:
    return Batch(Inputs(Padded.of([[number]])), torch.tensor([[number]]))


@dataclass
class Counting:
    """Batches that are their own number; it remembers how far it got, and stops or fails where it is told to."""

    fails: int | None = None
    ends: int | None = None
    made: list[int] = field(default_factory=list)
    progress: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        number = position.batch
        while number != self.ends:
            if number == self.fails:
                raise InputError("this one is bad", "leave it out")
            self.made.append(number)
            self.progress.release()
            number += 1
            yield batch(number - 1), Position(0, number)


def seen(batches: Batches, count: int, position: Position | None = None) -> list[tuple[object, ...]]:
    reading = batches.start(position or Position())
    found = []
    for one, after in islice(reading, count):
        source = None if one.inputs.source is None else one.inputs.source.rows()
        found.append((source, one.inputs.tokens.rows(), one.targets.tolist(), after))
    reading.close()
    return found


@depths
@pytest.mark.parametrize("kind", [SourceToTarget, Continuation])
@pytest.mark.parametrize("data", ["endless", "finite"])
def test_the_same_batches_and_positions_come_in_the_same_order_from_anywhere(depth, kind, data):
    pairs = PairList([Pair("x" * (7 * index % 11 + 1), "y" * (index % 5 + 1)) for index in range(37)])
    source = corpus("copy", {"longest": 6, "held_out": 3}) if data == "endless" else pairs
    plain = BatchStream(source, kind(TOKENIZER), tokens=64, seed=3)
    wanted = seen(plain, 23)
    assert seen(Prefetch(plain, depth), 23) == wanted
    for place in (0, 3, 11, 21):
        assert seen(Prefetch(plain, depth), 22 - place, wanted[place][-1]) == wanted[place + 1 :]


def test_it_is_a_stream_of_batches_too():
    assert isinstance(Prefetch(Counting()), Batches)
    assert seen(Prefetch(Prefetch(Counting(), 2), 3), 5) == seen(Counting(), 5)


@depths
def test_batches_are_made_before_they_are_asked_for_and_never_more_than_fit(depth):
    source = Counting()
    reading = Prefetch(source, depth).start(Position())
    assert source.made == []
    next(reading)
    for _ in range(depth + 2):  # the one that was taken, those in the queue, and the one that waits for room
        assert source.progress.acquire(timeout=60)
    assert not source.progress.acquire(timeout=0.1)
    assert source.made == list(range(depth + 2))
    reading.close()


@depths
@pytest.mark.parametrize("place", [0, 1, 5])
def test_what_goes_wrong_is_raised_after_the_batches_before_it(depth, place):
    reading = Prefetch(Counting(fails=place), depth).start(Position())
    assert [after.batch for _, after in islice(reading, place)] == list(range(1, place + 1))
    with pytest.raises(InputError, match="this one is bad; leave it out"):
        next(reading)
    assert list(reading) == []


def test_data_that_cannot_be_trained_on_are_refused_as_without_it():
    with pytest.raises(ConfigError, match=r"raise training\.batch_tokens"):
        next(Prefetch(BatchStream(PairList([Pair("x" * 99, "y")]), SourceToTarget(TOKENIZER), 20)).start(Position()))


@depths
def test_a_stream_that_ends_ends(depth):
    assert [after.batch for _, after in Prefetch(Counting(ends=5), depth).start(Position())] == [1, 2, 3, 4, 5]


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "batches ahead"]


@depths
@pytest.mark.parametrize("taken", [1, 2, 9])
def test_closing_ends_the_thread(depth, taken):
    reading = Prefetch(Counting(), depth).start(Position())
    for _ in range(taken):
        next(reading)
    assert len(workers()) == 1
    reading.close()
    assert workers() == []


def test_forgetting_ends_the_thread():
    reading = Prefetch(Counting()).start(Position())
    next(reading)
    assert len(workers()) == 1
    del reading
    gc.collect()
    assert workers() == []


def test_a_consumer_that_fails_ends_the_thread():
    def train() -> None:
        for _ in Prefetch(Counting()).start(Position()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    gc.collect()
    assert workers() == []


def test_garbage_collected_by_the_thread_itself_does_no_harm():
    """A circle that holds the iterator may be found by a collection in the very thread that serves it."""
    collect, collected = threading.Event(), threading.Event()

    @dataclass
    class Collecting:
        def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
            yield batch(0), Position(0, 1)
            collect.wait(60)
            gc.collect()
            collected.set()
            yield batch(1), Position(0, 2)

    class Circle:
        pass

    gc.disable()
    try:
        circle = Circle()
        circle.itself, circle.reading = circle, Prefetch(Collecting()).start(Position())
        next(circle.reading)
        gone = weakref.ref(circle)
        worker = workers()[0]
        del circle
        collect.set()
        assert collected.wait(60)
        worker.join(60)
        assert gone() is None
        assert not worker.is_alive()
    finally:
        gc.enable()


def test_a_program_ends_with_an_iterator_still_open():
    program = """
from regard.data import prefetch
from regard.data.prefetch import Prefetch
from regard.data.corpus import corpus
from regard.data.objectives import SourceToTarget
from regard.data.stream import BatchStream, Position
from regard.text.tokenizer import Tokenizer
import regard.data
reading = Prefetch(BatchStream(corpus("copy", {}), SourceToTarget(Tokenizer.train(["a"], 260)), 64)).start(Position())
next(reading)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_where_there_is_a_gpu_batches_are_pinned_on_the_way(monkeypatch):
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(prefetch.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: (asked.append(tensor), tensor)[1])
    plain = BatchStream(corpus("copy", {"held_out": 3}), SourceToTarget(TOKENIZER), tokens=64)
    reading = Prefetch(plain).start(Position())
    first, _ = next(reading)
    reading.close()
    source = first.inputs.source
    assert source is not None
    parts = (first.targets, first.inputs.tokens.ids, first.inputs.tokens.lengths, source.ids, source.lengths)
    assert all(any(part is one for one in asked) for part in parts)

"""Contestants in processes of their own that take turns: what one does to its process, no other one feels.

Each process, one for every precision, builds its work once and then does it when asked. `regard train` tells the
allocator to keep freed memory and a script with a peer in it does not; so peers run as their users run them, and once
more with that advantage.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from regard.bench.timing import Timed, Work, settle
from regard.training.malloc import keep_freed_memory

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Task:
    """Something to do over and over, how many tokens it makes or reads, and the size of the model that does it."""

    work: Work
    tokens: int
    parameters: int


Build = Callable[[Any, str], Task]
"""From a case and a precision to a task; called in the contestant's process."""


@dataclass(frozen=True)
class Contestant:
    """A name, how its task is built, whether its process keeps freed memory, and its precisions if not all of them."""

    name: str
    build: Build
    keeps_memory: bool
    precisions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Done:
    """A task done once: how long it took, what it was, and the most memory its process held: a GPU's where it uses one.

    Of a CPU it is all that was resident while it worked, from after the building on; None where nobody tells.
    """

    milliseconds: float
    tokens: int
    parameters: int
    peak_bytes: int | None = None
    cpu_milliseconds: float | None = None
    """Of the process, all its threads together: on a machine that others use too it says more than time."""


@dataclass(frozen=True)
class Result:
    """What a contestant did of one case in one precision."""

    contestant: str
    precision: str
    tokens: int
    parameters: int
    timed: Timed
    peak_bytes: int | None = None
    cpu_milliseconds: float | None = None


def compete(
    contestants: Sequence[Contestant],
    case: object,
    *,
    rounds: int = 5,
    warm_up: int = 1,
    precisions: Sequence[str] = PRECISIONS,
) -> list[Result]:
    """Every contestant in every precision once per round."""
    with _processes(contestants, precisions) as asked:
        return _rounds(asked, contestants, case, range(-warm_up, rounds), precisions)


def compete_in_each(
    contestants: Sequence[Contestant], cases: Sequence[Any], *, rounds: int, precisions: Sequence[str]
) -> Iterator[list[Result]]:
    """The same for one case after the other in the same processes, which may keep what they build and compile.

    They build for the first case side by side: compiling takes minutes, and nobody is timed meanwhile.
    """
    with _processes(contestants, precisions) as asked:
        _prepare(asked, contestants, cases[0], precisions)
        for case in cases:
            yield _rounds(asked, contestants, case, range(-1, rounds), precisions)


Asked = Callable[[Contestant, object, str], "Future[Done]"]
"""Has a contestant do a case in a precision once, in its process."""


@contextmanager
def _processes(contestants: Sequence[Contestant], precisions: Sequence[str]) -> Iterator[Asked]:
    with ExitStack() as stack:
        entries = _entries(contestants, precisions)
        pools = {(one.name, precision): stack.enter_context(_process(one)) for one, precision in entries}
        yield lambda one, case, precision: pools[one.name, precision].submit(_do, one.build, case, precision)


def _entries(contestants: Sequence[Contestant], precisions: Sequence[str]) -> list[tuple[Contestant, str]]:
    return [(one, precision) for one in contestants for precision in one.precisions or precisions]


def _prepare(asked: Asked, contestants: Sequence[Contestant], case: object, precisions: Sequence[str]) -> None:
    for done in [asked(one, case, precision) for one, precision in _entries(contestants, precisions)]:
        done.result()


def _rounds(
    asked: Asked, contestants: Sequence[Contestant], case: object, turns: range, precisions: Sequence[str]
) -> list[Result]:
    entries = _entries(contestants, precisions)
    found: dict[tuple[str, str], list[Done]] = {(one.name, precision): [] for one, precision in entries}
    for turn in turns:
        for one, precision in entries:
            done = asked(one, case, precision).result()
            if turn >= 0:
                found[one.name, precision].append(done)
    return [_result(name, precision, times) for (name, precision), times in found.items()]


def _result(name: str, precision: str, times: Sequence[Done]) -> Result:
    timed = Timed(name, tuple(one.milliseconds for one in times))
    peak = max((one.peak_bytes for one in times if one.peak_bytes is not None), default=None)
    used = [one.cpu_milliseconds for one in times if one.cpu_milliseconds is not None]
    used_cpu = statistics.median(used) if used else None
    return Result(name, precision, times[-1].tokens, times[-1].parameters, timed, peak, used_cpu)


def _process(contestant: Contestant) -> ProcessPoolExecutor:
    prepare = keep_freed_memory if contestant.keeps_memory else None
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=prepare)


_tasks: dict[tuple[object, str], Task] = {}  # of this process


def _do(build: Build, case: object, precision: str) -> Done:
    """The task, which is built when first asked for, done once."""
    if (case, precision) not in _tasks:
        _tasks[case, precision] = build(case, precision)
    task = _tasks[case, precision]
    settle()
    told = _resident_from_here()
    begun, busy = time.perf_counter(), time.process_time()
    task.work()
    settle()
    took, worked = (time.perf_counter() - begun) * 1000, (time.process_time() - busy) * 1000
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    peak = torch.cuda.max_memory_allocated() if used else _most_resident() if told else None
    return Done(took, task.tokens, task.parameters, peak, None if used else worked)


def _resident_from_here() -> bool:
    """Let Linux count the most resident memory of this process anew; whether it does."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _most_resident() -> int:
    """In bytes, since then."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def compared(what: str, results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """A row per contestant and precision: tokens per second, and how many times regard's time it takes.

    Regard's time is that of its own fastest precision; `faster` marks the fastest one of each contestant, so the row of
    a peer that has it is the comparison of each side at its best. `same_precision` is over regard's time in that one,
    where it has it.
    """
    best: dict[str, float] = {}
    own = {one.precision: one.timed.median for one in results if one.contestant == "regard"}
    for one in results:
        best[one.contestant] = min(best.get(one.contestant, one.timed.median), one.timed.median)
    for one in results:
        yield {
            "what": what,
            "contestant": one.contestant,
            "precision": one.precision,
            "tokens_per_second": round(one.tokens * 1000 / one.timed.median, 1),
            "milliseconds": round(one.timed.median, 3),
            "ratio": round(one.timed.median / best["regard"], 3),
            **({"same_precision": round(one.timed.median / own[one.precision], 3)} if one.precision in own else {}),
            "faster": one.timed.median == best[one.contestant],
            "parameters": one.parameters,
            **({} if one.peak_bytes is None else {"peak_bytes": one.peak_bytes}),
            **({} if one.cpu_milliseconds is None else {"cpu_milliseconds": round(one.cpu_milliseconds, 3)}),
            "rounds": [round(each, 3) for each in one.timed.rounds],
        }

"""How attention grows with length: time and peak memory of every registered mechanism, next to exact attention's.

One layer's attention, its projections included, reads a random text: forward, and forward with gradients. Exact
attention runs by the fastest kernel there is for it. Every mechanism has a process of its own, so that none feels what
another compiled, kept or broke; at each length they come one after another. Lengths go up, so what is known early is
worth having: rows come as they are measured, rows that are known already are not measured again, and after `until`
nothing new is begun.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np
import torch

import regard.blocks.config  # noqa: F401  (registers every mechanism)
from regard.attention.core import which_kernel
from regard.attention.mask import Causal
from regard.attention.mechanism import MECHANISMS, LayerContext, MechanismShape, attended
from regard.attention.slot import Slot
from regard.bench.timing import Work, settle
from regard.errors import ConfigError, RegardError
from regard.plugins import load_plugins
from regard.training.malloc import keep_freed_memory
from regard.training.peak_memory import begin_peak, peak

Row = dict[str, Any]
EXACT = "exact"
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "cpu": (1024, 2048, 4096, 8192, 16384),
    "cuda": (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
}
HEADS: Mapping[str, int] = {"cpu": 4, "cuda": 16}
HEAD_WIDTH = 64
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}
WARM_UP = 64
ROUNDS, ENOUGH = 7, 2.0
"""Rounds of a case, and seconds of them after which there are no more."""
LONGEST = 90.0
"""Seconds that one run may take, as far as can be told from half its length; longer ones are left out."""
FITTED = 4
"""The longest lengths, through which the exponent is fitted."""


@dataclass(frozen=True)
class Growing:
    """What is measured: a mechanism at a length, as an encoder or a decoder has it."""

    mechanism: str
    tokens: int
    causal: bool
    gradients: bool
    device: str

    @property
    def what(self) -> str:
        """In words, the same for all mechanisms and lengths that are compared."""
        kind = "causal" if self.causal else "bidirectional"
        numbers = "bfloat16" if DTYPES[self.device] == torch.bfloat16 else "float32"
        direction = "forward+backward" if self.gradients else "forward"
        return f"attention layer, {kind}, {HEADS[self.device]} heads of {HEAD_WIDTH}, {numbers}, {direction}"

    @property
    def slot(self) -> Slot:
        """The place in a layer that the mechanism is built for."""
        heads = HEADS[self.device]
        return Slot(heads * HEAD_WIDTH, heads, heads, HEAD_WIDTH, causal=self.causal, max_tokens=self.tokens)


@dataclass(frozen=True)
class Grown:
    """What was seen of it."""

    rounds: tuple[float, ...] = ()
    peak_bytes: int | None = None
    kernel: str | None = None
    failed: str | None = None


def able(causal: bool) -> list[str]:
    """The mechanisms that can be a decoder's, or an encoder's; exact attention first."""
    fitting = (name for name, shape in MECHANISMS.items() if _can(shape, causal))
    return sorted(fitting, key=lambda name: name != EXACT)


def _can(shape: type[MechanismShape], causal: bool) -> bool:
    return shape.abilities.causal if causal else shape.abilities.bidirectional


def rows(
    device: str,
    lengths: Sequence[int] | None = None,
    *,
    causal: bool = False,
    mechanisms: Sequence[str] | None = None,
    known: Iterable[Row] = (),
    until: float | None = None,
    together: bool = False,
) -> Iterator[Row]:
    """A row for every mechanism, length and direction; at the end, where nothing is missing, how each of them grows.

    `together`: the processes begin side by side, before anything is measured.
    """
    kept = {(row["what"], row["contestant"], row["tokens"]): row for row in known if "tokens" in row}
    found: list[Row] = []
    with ExitStack() as stack:
        processes, cases = _Processes(stack), list(_cases(device, lengths, causal, mechanisms))
        if together:
            missing = {case.mechanism for case in cases if (case.what, case.mechanism, case.tokens) not in kept}
            processes.begin(missing, device)
        for case in cases:
            key = (case.what, case.mechanism, case.tokens)
            row = kept.get(key)
            if row is None:
                if _hopeless(case, found):
                    continue
                if until is not None and time.monotonic() > until:
                    return
                row = _row(case, processes.measure(case), found)
            found.append(row)
            yield row
    yield from exponents(found)


def count(
    device: str,
    lengths: Sequence[int] | None = None,
    *,
    causal: bool = False,
    mechanisms: Sequence[str] | None = None,
) -> int:
    """How many rows there are at most, those of exponents left out."""
    return sum(1 for _ in _cases(device, lengths, causal, mechanisms))


def _cases(
    device: str, lengths: Sequence[int] | None, causal: bool, mechanisms: Sequence[str] | None
) -> Iterator[Growing]:
    names = [name for name in able(causal) if mechanisms is None or name in (EXACT, *mechanisms)]
    for tokens in sorted(lengths or LENGTHS[device]):
        for gradients in (False, True):
            for name in names:
                yield Growing(name, tokens, causal, gradients, device)


def _hopeless(case: Growing, found: Sequence[Row]) -> bool:
    """Whether a shorter text failed already, or took so long that this one would take too long if time is squared."""
    before = [row for row in found if row["what"] == case.what and row["contestant"] == case.mechanism]
    if not before:
        return False
    last = before[-1]
    grows = (case.tokens / last["tokens"]) ** 2
    return "failed" in last or last["milliseconds"] / 1000 * grows > LONGEST


def _row(case: Growing, grown: Grown, found: Sequence[Row]) -> Row:
    row: Row = {"what": case.what, "contestant": case.mechanism, "tokens": case.tokens}
    if grown.failed is not None:
        return row | {"figure": grown.failed, "failed": grown.failed}
    took = median(grown.rounds)
    row |= {"milliseconds": round(took, 4)}
    exact = took if case.mechanism == EXACT else _of_exact(row, found)
    return {
        **row,
        **({} if exact is None else {"ratio": round(took / exact, 4)}),
        **({} if grown.peak_bytes is None else {"peak_bytes": grown.peak_bytes}),
        **({} if grown.kernel is None else {"kernel": grown.kernel}),
        "rounds": [round(one, 4) for one in grown.rounds],
    }


def _of_exact(row: Row, found: Sequence[Row]) -> float | None:
    """Milliseconds of exact attention at the same length, where it was measured."""
    same = [one for one in found if one["contestant"] == EXACT and one["tokens"] == row["tokens"]]
    return next((one["milliseconds"] for one in same if one["what"] == row["what"] and "milliseconds" in one), None)


class _Processes:
    """One for each mechanism, begun when it is first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._pools: dict[str, ProcessPoolExecutor] = {}

    def begin(self, mechanisms: Iterable[str], device: str) -> None:
        """All of them at once, and wait until they are there."""
        for ready in [self._of(name).submit(_reach, device) for name in sorted(mechanisms)]:
            ready.result()

    def _of(self, mechanism: str) -> ProcessPoolExecutor:
        if mechanism not in self._pools:
            pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=keep_freed_memory)
            self._pools[mechanism] = self._stack.enter_context(pool)
        return self._pools[mechanism]

    def measure(self, case: Growing) -> Grown:
        """In the mechanism's process; one that was killed takes nobody along."""
        try:
            return self._of(case.mechanism).submit(measure, case).result()
        except BrokenProcessPool:
            del self._pools[case.mechanism]
            return Grown(failed="its process was killed: out of memory?")


def _reach(device: str) -> None:
    """The first number on the device, after all that a process loads."""
    load_plugins()
    torch.ones(1, device=device).item()


def measure(case: Growing) -> Grown:
    """Times and peak memory, or why there are none; on a GPU, all memory is given back afterwards."""
    load_plugins()
    try:
        return _measured(case)
    except ConfigError as error:
        return Grown(failed=f"refused: {error.problem}")
    except (torch.OutOfMemoryError, MemoryError):
        return Grown(failed="out of memory")
    except (RuntimeError, RegardError) as error:  # of a mechanism of somebody's own; the others go on
        return Grown(failed=f"failed: {str(error).splitlines()[0][:120]}")
    finally:
        if case.device == "cuda":
            torch.cuda.empty_cache()


def _measured(case: Growing) -> Grown:
    device = torch.device(case.device)
    _work(replace(case, tokens=WARM_UP), device)()  # what is made once takes memory too
    work = _work(case, device)
    if case.device == "cuda":
        work()  # what is compiled as well
    before = begin_peak(device)
    work()
    most = peak(device) if before is not None else None
    settle()
    rounds: list[float] = []
    while len(rounds) < ROUNDS and sum(rounds) < ENOUGH * 1000:
        begun = time.perf_counter()
        work()
        settle()
        rounds.append((time.perf_counter() - begun) * 1000)
    extra = None if most is None or before is None else max(most - before, 1)
    return Grown(tuple(rounds), extra, _kernel(case) if case.mechanism == EXACT else None)


def shaped(mechanism: str, tokens: int, options: Mapping[str, Any] | None = None) -> MechanismShape:
    """A mechanism with its defaults, but for these options; one that has to know the longest text is told it."""
    shape = MECHANISMS[mechanism]
    return shape.model_validate(
        ({"max_tokens": tokens} if "max_tokens" in shape.model_fields else {}) | dict(options or {})
    )


def _work(case: Growing, device: torch.device) -> Work:
    """The layer's attention once; weights and text are there before it."""
    torch.manual_seed(0)
    module = shaped(case.mechanism, case.tokens).build(case.slot)
    module = module.to(device, DTYPES[case.device]).train(case.gradients)
    inputs = torch.randn(1, case.tokens, case.slot.width, device=device, dtype=DTYPES[case.device])
    context = LayerContext(Causal() if case.causal else None)

    def forward() -> None:
        with torch.no_grad():
            attended(module, inputs, None, context)

    def both() -> None:
        read = inputs.detach().requires_grad_()
        hidden, _ = attended(module, read, None, context)
        hidden.sum().backward()  # type: ignore[no-untyped-call]
        module.zero_grad(set_to_none=True)

    return both if case.gradients else forward


def _kernel(case: Growing) -> str:
    """Which one exact attention takes."""
    shape = (1, HEADS[case.device], case.tokens, HEAD_WIDTH)
    query = torch.empty(shape, device=case.device, dtype=DTYPES[case.device], requires_grad=case.gradients)
    return which_kernel(query, query, query, mask=Causal() if case.causal else None).name


def exponents(found: Sequence[Row]) -> Iterator[Row]:
    """Of every mechanism and direction: the exponents of time and memory, and from which length on it beats exact."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        if "milliseconds" in row:
            groups.setdefault((row["what"], row["contestant"]), []).append(row)
    for (what, name), grown in groups.items():
        over = grown[-FITTED:]
        if len(over) < 2:
            continue
        in_time = _slope(over, "milliseconds")
        in_memory = _slope(over, "peak_bytes") if all("peak_bytes" in row for row in over) else None
        faster = _faster_from(grown)
        words = f"time n^{in_time:.2f}" + ("" if in_memory is None else f", memory n^{in_memory:.2f}")
        if name != EXACT:
            words += ", never faster than exact" if faster is None else f", faster than exact from {faster:,}"
        yield {
            "what": f"growth of {what}, {over[0]['tokens']:,} to {over[-1]['tokens']:,} tokens",
            "contestant": name,
            "figure": words,
            "time_exponent": round(in_time, 4),
            "memory_exponent": None if in_memory is None else round(in_memory, 4),
            "faster_from": faster,
        }


def _slope(rows: Sequence[Row], key: str) -> float:
    """Of the line through the logarithms of length and of this figure, by least squares."""
    lengths, values = ([row[one] for row in rows] for one in ("tokens", key))
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def _faster_from(grown: Sequence[Row]) -> int | None:
    """The shortest length from which on every measured one takes less time than exact attention."""
    found = None
    for row in reversed(grown):
        if "ratio" not in row:
            continue
        if row["ratio"] >= 1:
            break
        found = row["tokens"]
    return found

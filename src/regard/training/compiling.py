"""Training compiled where that pays, and as written where the compiler is missing or fails: the same steps either way.

A step that fails compiled is taken again as written, from the same batches and random numbers, before anything was
changed by it. What fails as written too is the model's own error and is raised as such.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeVar

import torch

from regard.data.batching import Batch
from regard.training.plan import TrainingPlan
from regard.training.resume import random_state, set_random_state
from regard.training.trainable import Loss, Trainable

LONG = 10_000
"""Steps from which a GPU's shorter steps outweigh the minutes that compiling takes (docs/LOG.md, "On a GPU again")."""
EVEN = 2
"""Widths of batches, at most, for which it does: a window's, and that of what is left over."""
TALKATIVE = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx", "torch.utils._sympy")
"""Whose warnings are about compiling and not about the run."""

Found = TypeVar("Found")


def pays(plan: TrainingPlan, device: torch.device, validation: Sequence[Batch]) -> bool:
    """Whether to compile: as the plan says, or, of `auto`, in a long run of even batches on a GPU that has a compiler.

    On a CPU it takes minutes and gains nothing. The answer depends on nothing that a resumed run would find otherwise.
    """
    if plan.compile != "auto":
        return plan.compile
    even = len({batch.inputs.tokens.ids.shape[1] for batch in validation}) <= EVEN
    return device.type == "cuda" and plan.steps >= LONG and even and find_spec("triton") is not None


class Compiled:
    """Another trainable with the whole way from batch to loss compiled: wide logits are never written out."""

    def __init__(self, trainable: Trainable, say: Callable[[str], None]) -> None:
        self.module = trainable.module
        self.say = say
        self.plain = trainable.loss
        self.fast: Callable[[Batch], Loss] | None = torch.compile(trainable.loss, dynamic=True)

    def loss(self, batch: Batch) -> Loss:
        """That of the other one."""
        return self.plain(batch) if self.fast is None else self.fast(batch)

    def attempt(self, work: Callable[[], Found]) -> Found:
        """What `work` gives; if it fails, what it gives as written, from the same random numbers."""
        if self.fast is None:
            return work()
        before = random_state()
        try:
            return work()
        except Exception as error:
            self.fast = None
            self.module.zero_grad(set_to_none=True)
            set_random_state(before)
            found = work()
            self.say(f"the model cannot be compiled here ({reason(error)}), so it runs as written")
            return found


def attempt(trainable: Trainable, work: Callable[[], Found]) -> Found:
    """What `work` gives of a trainable that may be compiled."""
    return trainable.attempt(work) if isinstance(trainable, Compiled) else work()


def reason(error: BaseException) -> str:
    """The first line of what a compiler says that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("backend=")]
    return said[0].rstrip(".:")[:160] if said else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what a compiler says to its developers from the terminal, unless TORCH_LOGS asks for it."""
    if "TORCH_LOGS" in os.environ:
        yield
        return
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\.(_dynamo|_inductor|_functorch|fx|utils\._sympy)\b")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)

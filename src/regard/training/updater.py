"""One optimizer step: gradients of the mean loss over all targets, clipped; on a GPU the host never waits for it.

What a step's loss was is known when its numbers have come back from the device. The loop asks for them one step late
on a GPU, so that the next step is queued meanwhile, and always before it validates or saves.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.stream import Position
from regard.layers.private_ops import divide_
from regard.training.compiling import attempt
from regard.training.plan import TrainingPlan
from regard.training.precision import autocast
from regard.training.trainable import Loss, Trainable

Stream = Iterator[tuple[Batch, Position]]


@dataclass(frozen=True, eq=False)
class Placed(Batch):
    """A batch on a GPU whose targets were counted before they left: asking the GPU would wait for it."""

    known: int = 0

    @property
    def count(self) -> int:
        """How many targets there are."""
        return self.known


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device, sent without waiting for what the device is doing."""
    if device.type != "cuda":
        return batch.to(device)
    parts = {field.name: _sent(getattr(batch, field.name), device) for field in fields(batch)}
    return Placed(**parts, known=batch.count)


def _sent(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.pin_memory().to(device, non_blocking=True)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _sent(getattr(value, field.name), device) for field in fields(value)})
    return value


@dataclass(frozen=True, eq=False)
class StepResult:
    """A step that was taken; its loss and the norm of its gradient may still be on their way from the device."""

    number: int
    rate: float
    count: int
    """Targets."""
    tokens: int
    """Tokens read."""
    position: Position
    begun: float
    numbers: Tensor
    arrived: torch.cuda.Event | None = None

    def read(self) -> tuple[float, float]:
        """The loss per target and the norm of the gradient, waiting for them if need be."""
        if self.arrived is not None:
            self.arrived.synchronize()
        total, norm = self.numbers.tolist()
        return total / max(self.count, 1), norm


class PendingSteps:
    """Steps that were taken and whose numbers have not been read."""

    def __init__(self) -> None:
        self.steps: deque[StepResult] = deque()
        self.read_at = 0.0

    def add(self, taken: StepResult) -> None:
        """One more."""
        self.steps.append(taken)

    def arrived(self, *, but: int) -> Iterator[tuple[StepResult, float]]:
        """All but the newest few, each once its numbers have come, with the seconds it took the device."""
        while len(self.steps) > but:
            taken = self.steps.popleft()
            taken.read()
            now = time.perf_counter()
            seconds = now - max(taken.begun, self.read_at)  # it began when the one before it was done
            self.read_at = now
            yield taken, seconds


def steps_behind(device: torch.device) -> int:
    """How many steps may be under way while their numbers are not asked for: a GPU works while the next is queued."""
    return 1 if device.type == "cuda" else 0


@dataclass(frozen=True)
class Updater:
    """Takes steps: batches in, changed weights out."""

    trainable: Trainable
    optimizer: torch.optim.Optimizer
    plan: TrainingPlan
    stream: Stream

    def take(self, number: int, rate: float) -> StepResult:
        """Add up the batches' gradients, divide once by all their targets, clip, step."""
        begun = time.perf_counter()
        parameters = list(self.trainable.module.parameters())
        device = parameters[0].device
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        batches = [next(self.stream) for _ in range(self.plan.accumulate)]
        placed = [to_device(batch, device) for batch, _ in batches]
        loss = attempt(self.trainable, lambda: backward(self.trainable, placed, self.plan))
        norm = nn.utils.clip_grad_norm_(parameters, self.plan.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        numbers, arrived = _fetch(torch.stack([loss.sum, norm.to(loss.sum)]))
        tokens = sum(batch.tokens for batch, _ in batches)
        return StepResult(number, rate, loss.count, tokens, batches[-1][1], begun, numbers, arrived)


def _fetch(numbers: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """The numbers on their way to the host, and how to know that they have come."""
    if numbers.device.type != "cuda":
        return numbers, None
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()
    return host, arrived


def backward(trainable: Trainable, batches: list[Batch], plan: TrainingPlan) -> Loss:
    """Gradients of the mean loss over all targets of all batches, however they are divided among batches."""
    parameters = [parameter for parameter in trainable.module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch in batches:
        with autocast(plan, device):
            loss = trainable.loss(batch)
        loss.sum.backward()  # type: ignore[no-untyped-call]
        total, count = total + loss.sum.detach().double(), count + loss.count
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        divide_(gradients, max(count, 1))
    return Loss(total, count)


def finite(module: nn.Module) -> bool:
    """Whether every weight is a finite number."""
    checks = [one.isfinite().all() for one in module.state_dict().values() if one.is_floating_point()]
    return bool(torch.stack(checks).all()) if checks else True

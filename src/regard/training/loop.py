"""One loop for anything Trainable: forward, backward, clip, step; now and then validate, save, report.

The folder is the run's memory: `model.safetensors` is the best by validation, `state/` the last states to resume
from, `metrics.jsonl` one line per report. Running it again from any complete state gives the same weights.
"""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from regard.data.batching import Batch
from regard.data.stream import Batches, Position
from regard.errors import FileError, InputError
from regard.files import write_text
from regard.models.checkpoint import WEIGHTS, save_tensors
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan
from regard.training.resume import Progress, available, clean, damaged, load_state, rewind_metrics, save_state
from regard.training.schedules import factor
from regard.training.trainable import Loss, Trainable

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Report:
    """What is known after a step."""

    step: int
    steps: int
    loss: float
    rate: float
    tokens_per_second: float
    validation: dict[str, float] | None = None


class Silent:
    """A listener that says nothing."""

    def __call__(self, report: Report) -> None:
        """Nothing."""

    def say(self, sentence: str) -> None:
        """Nothing."""


@runtime_checkable
class Listener(Protocol):
    """Who is told how it goes."""

    def __call__(self, report: Report) -> None:
        """After every step."""
        ...

    def say(self, sentence: str) -> None:
        """Something a person should know."""
        ...


@dataclass(frozen=True)
class Run:
    """What is trained, on what, how, and where it is kept."""

    trainable: Trainable
    batches: Batches
    validation: list[Batch]
    plan: TrainingPlan
    folder: Path
    listener: Listener

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.trainable.module.parameters()).device

    def fit(self, until: int | None = None) -> Progress:
        """Train to the last step, or only `until` one, from the newest complete state if there is one."""
        plan, module = self.plan, self.trainable.module
        optimizer = adamw(module, plan)
        clean(self.folder)
        progress = self._resume(optimizer)
        lines = rewind_metrics(self.folder / METRICS, progress.step)
        write_text(self.folder / METRICS, "".join(line + "\n" for line in lines))
        stream = self.batches.start(progress.position)
        best = progress.best
        for step in range(progress.step + 1, (until or plan.steps) + 1):
            begun = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate * factor(plan.schedule, step, warmup=plan.warmup, steps=plan.steps)
            loss, position = self._step(stream, optimizer)
            seconds = time.perf_counter() - begun
            validation = None
            if step % plan.evaluate_every == 0 or step == plan.steps:
                validation = {"loss": self.validate()}
                if best is None or validation["loss"] < best:
                    best = validation["loss"]
                    save_tensors(self.folder / WEIGHTS, module.state_dict())
            report = Report(step, plan.steps, loss.mean, group["lr"], loss.count / seconds, validation)
            self._record(report)
            progress = Progress(step, position, best)
            if step % plan.save_every == 0 or step == plan.steps:
                save_state(self.folder, progress, module, optimizer, plan.keep)
            self.listener(report)
        return progress

    def validate(self) -> float:
        """The plain loss per token on the validation batches."""
        module = self.trainable.module
        module.eval()
        with torch.no_grad(), autocast(self.plan, self.device):
            losses = [self.trainable.loss(batch.to(self.device)) for batch in self.validation]
        module.train()
        return sum(float(loss.sum) for loss in losses) / sum(loss.count for loss in losses)

    def _step(
        self, stream: Iterator[tuple[Batch, Position]], optimizer: torch.optim.Optimizer
    ) -> tuple[Loss, Position]:
        """Add up the batches' gradients, divide once by all their targets, clip, step."""
        batches = [next(stream) for _ in range(self.plan.accumulate)]
        loss = backward(self.trainable, [batch.to(self.device) for batch, _ in batches], self.plan)
        if not torch.isfinite(loss.sum):
            raise InputError(
                f"the loss became {float(loss.sum)}", "lower training.learning_rate or raise training.warmup"
            )
        nn.utils.clip_grad_norm_(self.trainable.module.parameters(), self.plan.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, batches[-1][1]

    def _resume(self, optimizer: torch.optim.Optimizer) -> Progress:
        self.trainable.module.train()
        for _, path in available(self.folder):
            try:
                progress = load_state(path, self.trainable.module, optimizer)
            except FileError as error:
                self.listener.say(damaged(path, error))
            else:
                self.listener.say(f"resuming after step {progress.step}")
                return progress
        if available(self.folder):
            self.listener.say("no state can be used; starting again from the beginning")
        return Progress()

    def _record(self, report: Report) -> None:
        values = {"step": report.step, "loss": report.loss, "rate": report.rate}
        values["tokens_per_second"] = round(report.tokens_per_second, 1)
        if report.validation is not None:
            values |= {f"validation_{name}": value for name, value in report.validation.items()}
        with (self.folder / METRICS).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(values) + "\n")


def backward(trainable: Trainable, batches: list[Batch], plan: TrainingPlan) -> Loss:
    """Gradients of the mean loss over all targets of all batches, however they are divided among batches."""
    parameters = [parameter for parameter in trainable.module.parameters() if parameter.requires_grad]
    total, count = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        with autocast(plan, parameters[0].device):
            loss = trainable.loss(batch)
        loss.sum.backward()  # type: ignore[no-untyped-call]
        total, count = total + loss.sum.detach().double().cpu(), count + loss.count
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad /= count
    return Loss(total, count)


def autocast(plan: TrainingPlan, device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 where the plan says so."""
    if plan.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)

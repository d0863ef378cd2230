"""What a training would be, before anything is trained: sizes, and how long its steps take here."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.api.training import prepare
from regard.data.stream import Countable, Position
from regard.devices import device_in_words
from regard.tasks.files import settle
from regard.tasks.recipe import Recipe, change_recipe, read_recipe
from regard.training.optimizers import optimizer_of
from regard.training.precision import autocast, choose_precision
from regard.training.updater import Updater, to_device

SECONDS = 4.0
"""For how long steps are timed."""
MOST_STEPS = 20


@dataclass(frozen=True)
class Preview:
    """A recipe with everything settled, and what training by it would take; the steps that were timed are forgotten."""

    recipe: Recipe
    parameters: int
    vocabulary: int
    train_examples: int | None
    """None: a corpus that has no end."""
    valid_examples: int | None
    labels: tuple[str, ...]
    steps_per_epoch: float | None
    device: str
    precision: str
    seconds_per_step: float
    seconds: float
    """For all steps with their validations by the loss, if nothing ends it earlier."""
    amount: str
    learnt: int = 0
    """How many of the parameters learn."""
    bytes_held: int = 0
    """Of the weights, and of what learns the gradients and the optimizer's memory."""
    said: list[str] = field(default_factory=list)

    def record(self) -> dict[str, object]:
        """For a program."""
        values = {name: value for name, value in asdict(self).items() if name not in ("recipe", "said")}
        return {"recipe": self.recipe.tables(), **values, "notes": self.said}

    def sentences(self) -> list[str]:
        """For people."""
        plan = self.recipe.training
        epochs = "" if self.steps_per_epoch is None else f", {plan.steps / self.steps_per_epoch:,.1f} epochs"
        steps = (
            "the data have no end" if self.steps_per_epoch is None else f"{self.steps_per_epoch:,.0f} steps an epoch"
        )
        early = ", unless validation stops improving before" if plan.patience is not None else ""
        uncompiled = " (timed without torch.compile)" if plan.compile else ""
        return [
            *self.said,
            self.amount,
            f"{self.parameters:,} parameters, {self.learnt:,} of them trained, a vocabulary of {self.vocabulary:,}",
            f"{self.bytes_held / 2**20:,.1f} MiB of weights, gradients and the optimizer's memory; "
            "what a batch leaves for its backward pass comes on top",
            f"{steps}; {plan.steps:,} steps{epochs}",
            f"on {self.device} in {self.precision}",
            f"about {_duration(self.seconds)}: {self.seconds_per_step:.3g} s a step{uncompiled}{early}",
        ]


def preview(
    recipe: str | Recipe, *, changes: list[str] | None = None, data: Sequence[str | Path] | None = None
) -> Preview:
    """Prepare a training, time a few steps of it, and write nothing."""
    names = None if data is None else [str(one) for one in data]
    asked = read_recipe(recipe, changes, names) if isinstance(recipe, str) else change_recipe(recipe, changes, names)
    plan, found = settle(asked)
    made = prepare(plan, None)
    plan = made.plan
    batches, valid = made.training_data.batches, made.training_data.validation
    per_epoch = batches.batches_per_epoch() if isinstance(batches, Countable) else None
    device = next(made.module.parameters()).device
    optimizer = optimizer_of(made.module, plan.training)
    updater = Updater(made.training_data.trainable, optimizer, plan.training, batches.start(Position()))
    step = _seconds_a_step(updater)
    validations = -(-plan.training.steps // plan.training.evaluate_every)
    made.module.eval()
    with torch.no_grad(), autocast(plan.training, device):
        begun = time.perf_counter()
        made.training_data.trainable.loss(to_device(valid[len(valid) // 2], device)).sum.item()
        validation = (time.perf_counter() - begun) * len(valid)
    return Preview(
        plan,
        sum(parameter.numel() for parameter in made.module.parameters()),
        made.tokenizer.size,
        made.data.size("train"),
        made.data.size("valid"),
        made.module.config.labels,
        None if per_epoch is None else per_epoch / plan.training.accumulate,
        device_in_words(device),
        choose_precision(plan.training.precision, device).name,
        step,
        step * plan.training.steps + validation * validations,
        made.training_data.summary,
        sum(one.numel() for one in _learning(made.module)),
        _bytes_held(made.module, optimizer),
        [*found, *made.said],
    )


def _learning(module: nn.Module) -> list[Tensor]:
    return [one for one in module.parameters() if one.requires_grad]


def _bytes_held(module: nn.Module, optimizer: Optimizer) -> int:
    """All weights, the gradients of those that learn, and what the optimizer remembers of them once it has stepped."""
    state = optimizer.state_dict()["state"]
    memory = [one for parts in state.values() for one in parts.values() if isinstance(one, Tensor)]
    return sum(one.numel() * one.element_size() for one in (*module.parameters(), *_learning(module), *memory))


def _seconds_a_step(updater: Updater) -> float:
    """The median of a few steps after the first, which also warms up; of a slow one, itself."""
    begun = time.perf_counter()
    seconds: list[float] = []
    for number in range(1, MOST_STEPS + 2):
        before = time.perf_counter()
        updater.take(number, 0.0).read()
        seconds.append(time.perf_counter() - before)
        if time.perf_counter() - begun > (SECONDS if number > 2 else 2 * SECONDS):
            break
    return median(seconds[1:] or seconds)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"

"""One loop for anything Trainable: forward, backward, clip, step; now and then validate, save, report.

The folder is the run's memory: `model.safetensors` is the best by the run's metric, or the mean of the last states
where the plan asks for it (the best is then in `state/`), or, before the first evaluation, the last that was saved;
`state/` holds the last states to resume from, `metrics.jsonl` one line per step. Running it again from any complete
state gives the same weights.
"""

import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from regard.data.batching import Batch
from regard.data.stream import Batches
from regard.errors import ConfigError, FileError, NotFiniteError, changing
from regard.layers.reversible import Reversible
from regard.models.checkpoint import snapshot_file
from regard.training import resume
from regard.training.average import mean
from regard.training.compiling import Compiled, attempt, pays, quiet
from regard.training.filing import WHOLE, Filing
from regard.training.interrupt import Interrupt, Stopped
from regard.training.journal import Journal
from regard.training.metric import Metric
from regard.training.optimizers import optimizer_of
from regard.training.plan import TrainingPlan
from regard.training.precision import autocast, choose_precision
from regard.training.reports import Listener, Report, evaluations
from regard.training.resume import Progress
from regard.training.schedules import factor
from regard.training.tracking import tracked
from regard.training.trainable import Loss, Trainable
from regard.training.updater import PendingSteps, StepResult, Stream, Updater, finite, steps_behind, to_device

BEST = "best.safetensors"


@dataclass(frozen=True)
class Run:
    """What is trained, on what, how, and where it is kept."""

    trainable: Trainable
    batches: Batches
    validation: list[Batch]
    plan: TrainingPlan
    folder: Path
    listener: Listener
    interrupt: Interrupt = field(default_factory=Interrupt)
    metric: Metric = field(default_factory=Metric)
    filing: Filing = WHOLE

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.trainable.module.parameters()).device

    def finished(self, progress: Progress) -> bool:
        """Whether all steps are taken, or the metric has not improved for as long as the plan's patience."""
        impatient = self.plan.patience is not None and progress.worse >= self.plan.patience
        return progress.step >= self.plan.steps or impatient

    def fit(self, until: int | None = None) -> Progress:
        """Train to the last step, or only `until` one, from the newest complete state if there is one.

        Raises `Stopped` if it was asked to stop: the state after the step it was at is then saved.
        """
        with resume.alone(self.folder), tracked(self.plan.track, self.folder, self.listener) as listener:
            return replace(self, listener=listener)._fit(until)

    def _fit(self, until: int | None) -> Progress:
        optimizer = optimizer_of(self.trainable.module, self.plan)
        self.trainable.module.train()
        resume.clean(self.folder)
        progress = self._resume(optimizer)
        if self.finished(progress):
            self._publish(progress)  # what a crash after the last state left undone
            self.listener.say(f"{self.folder} is finished after step {progress.step}: {self._why(progress)}")
            return progress
        if self.plan.precision == "auto":
            chosen = choose_precision("auto", self.device)
            self.listener.say(f"computing in {chosen.name}: {chosen.why}")
        with self._writing():
            opened = Journal(self.folder, progress.step)
        with opened as journal, self.interrupt.heeding(), quiet():
            if journal.last < progress.step:
                gap = f"{journal.last + 1} to {progress.step}"
                self.listener.say(f"{journal.path} was damaged: its lines for the steps {gap} are lost")
            stream = self.batches.start(progress.position)
            try:
                progress = self._compiled()._train(optimizer, progress, journal, stream, until or self.plan.steps)
            finally:
                if isinstance(stream, Generator):
                    stream.close()  # it may have a thread that prepares batches
        if self.finished(progress):
            self._tell_the_end(progress)
        return progress

    def validate(self) -> float:
        """The plain loss per token on the validation batches."""
        module = self.trainable.module
        module.eval()
        with torch.no_grad(), autocast(self.plan, self.device):
            losses = attempt(self.trainable, self._validation_losses)
        module.train()
        return sum(float(loss.sum) for loss in losses) / sum(loss.count for loss in losses)

    def figures(self) -> dict[str, float]:
        """The validation loss, and the metric where that is another."""
        found = {"loss": self.validate()}
        if self.metric.measure is not None:
            self.trainable.module.eval()
            found[self.metric.name] = self.metric.measure()
            self.trainable.module.train()
        return found

    def _validation_losses(self) -> list[Loss]:
        return [self.trainable.loss(to_device(batch, self.device)) for batch in self.validation]

    def _train(self, optimizer: Optimizer, progress: Progress, journal: Journal, stream: Stream, last: int) -> Progress:
        plan = self.plan
        stepper = Updater(self.trainable, optimizer, plan, stream)
        awaited = PendingSteps()
        if progress.step == 0:
            self._snapshot(0)
        for step in range(progress.step + 1, last + 1):
            rate = plan.learning_rate * self._factor(step)
            taken = stepper.take(step, rate)
            self._snapshot(step)
            awaited.add(taken)
            progress = replace(progress, step=step, position=taken.position)
            asked = self.interrupt.number
            validating = step % plan.evaluate_every == 0 or step == plan.steps
            saving = step % plan.save_every == 0 or step == plan.steps or asked is not None
            waiting = validating or saving or step == last
            with self._writing():
                for one, seconds in awaited.arrived(but=0 if waiting else steps_behind(self.device)):
                    report = self._report(one, seconds, progress)
                    if validating and one.number == step:
                        progress, report = self._validated(progress, report)
                    journal.write(report)
                    self.listener(report)
                if saving or self.finished(progress):
                    journal.sync()
                    self._save(progress, optimizer)
            if self.finished(progress):
                break
            if asked is not None:
                if progress.best is None:
                    self.listener.say(f"no evaluation was made yet: the model is that of step {step}")
                raise Stopped(step, self.folder, asked)
        return progress

    def _factor(self, step: int) -> float:
        plan = self.plan
        return factor(plan.schedule, step, warmup=plan.warmup, steps=plan.steps, floor=plan.min_rate_ratio)

    def _report(self, taken: StepResult, seconds: float, progress: Progress) -> Report:
        loss, norm = taken.read()
        if not math.isfinite(loss) or not math.isfinite(norm):
            what = f"the loss became {loss}" if not math.isfinite(loss) else f"the gradient became {norm}"
            raise self._diverged(what, taken.number)
        return Report(
            step=taken.number,
            steps=self.plan.steps,
            loss=loss,
            rate=taken.rate,
            targets=taken.count,
            tokens=taken.tokens,
            seconds=seconds,
            metric=progress.metric,
            best=progress.best,
            worse=progress.worse,
        )

    def _validated(self, progress: Progress, report: Report) -> tuple[Progress, Report]:
        """Evaluate; if it is the best so far, keep it."""
        found = self.figures()
        for name, value in found.items():
            if not math.isfinite(value):
                raise self._diverged(f"the validation {name} became {value}", progress.step)
        if self.metric.better(found[self.metric.name], progress.best):
            self._require_finite(progress.step)
            self.filing.write(self._best, self.filing.kept(self.trainable.module))
            progress = replace(progress, best=found[self.metric.name], worse=0)
        else:
            progress = replace(progress, worse=progress.worse + 1)
        return progress, replace(report, validation=found, best=progress.best, worse=progress.worse)

    def _save(self, progress: Progress, optimizer: Optimizer) -> None:
        self._require_finite(progress.step)
        resume.save_state(self.folder, progress, self.trainable.module, optimizer, self.filing)
        self._publish(progress)

    def _snapshot(self, step: int) -> None:
        """Keep the weights of a step that the plan names, once they are known to be numbers."""
        if step in self.plan.snapshots:
            self._require_finite(step)
            with self._writing():
                path = snapshot_file(self.folder, step)
                path.parent.mkdir(exist_ok=True)
                self.filing.write(path, self.filing.kept(self.trainable.module))

    def _publish(self, progress: Progress) -> None:
        """Drop the states that are no longer wanted; write the model where it is their mean, or where there is none."""
        resume.drop_old_states(self.folder, progress.step, self.plan.keep, lambda step: self._regular(step, progress))
        newest = self._averaged(progress)
        if newest:
            self.filing.write(self._model, mean(self._weights(newest[::-1])))
        elif progress.best is None or self.plan.average is not None:  # a model that runs, though nothing is known of it
            self.filing.write(self._model, self.filing.kept(self.trainable.module))

    def _averaged(self, progress: Progress) -> list[Path]:
        """The states whose mean the model is, newest first."""
        past = [path for step, path in resume.available(self.folder) if self._regular(step, progress)]
        return past[: self.plan.average] if self.plan.average is not None else []

    def _regular(self, step: int, progress: Progress) -> bool:
        """Whether a state is one of the plan's: one that a signal caused must not change what is kept and averaged."""
        last = step == progress.step and self.finished(progress)
        return step <= progress.step and (step % self.plan.save_every == 0 or last)

    def _weights(self, states: list[Path]) -> Iterator[dict[str, Tensor]]:
        for path in states:
            try:
                yield resume.load_weights(path)
            except FileError as error:
                self.listener.say(f"{path} is damaged ({error.problem}); the mean is taken without it")

    @property
    def _best(self) -> Path:
        """Where the best model is kept."""
        return self._model if self.plan.average is None else self.folder / "state" / BEST

    @property
    def _model(self) -> Path:
        """The model that others load."""
        return self.folder / self.filing.name

    def _resume(self, optimizer: Optimizer) -> Progress:
        states = resume.available(self.folder)
        for _, path in states:
            try:
                progress = resume.load_state(path, self.trainable.module, optimizer, self.filing)
            except FileError as error:
                self.listener.say(f"{path} is damaged ({error.problem}); falling back to the state before it")
            else:
                if progress.metric != self.metric.name:
                    raise ConfigError(
                        f"the best of {self.folder} is the best by {progress.metric}, not by {self.metric.name}",
                        f"go on with training.metric={progress.metric}, or train anew",
                    )
                self.listener.say(f"resuming after step {progress.step}")
                return progress
        if states:
            raise FileError(
                f"none of the {len(states)} states in {self.folder / 'state'} is whole",
                "put a copy of one back, or remove that folder to start again from the first step",
            )
        return Progress(metric=self.metric.name)

    def _tell_the_end(self, progress: Progress) -> None:
        """Why a run ended early, and what the mean of its states is worth."""
        if progress.step < self.plan.steps:
            self.listener.say(f"stopped early after step {progress.step}: {self._why(progress)}")
        if self.plan.average is not None:
            module = self.trainable.module
            last = {name: tensor.clone() for name, tensor in self.filing.kept(module).items()}
            self.filing.restore(module, self.filing.read(self._model))
            value = self.figures()[self.metric.name]
            self.filing.restore(module, last)
            self.listener.say(
                f"the model is the mean of the last {len(self._averaged(progress))} of {self.plan.average} states, "
                f"with validation {self.metric.name} {value:.4f}; "
                f"the best single one had {progress.best:.4f}"
            )

    def _why(self, progress: Progress) -> str:
        if progress.step >= self.plan.steps:
            return f"all {self.plan.steps} steps are taken; to train longer resume it with more training.steps"
        what = f"validation {progress.metric} for {evaluations(progress.worse)}"
        return f"no improvement of the {what} (training.patience={self.plan.patience})"

    def _compiled(self) -> "Run":
        """The same run with its loss as one compiled program, where the plan asks for it; its module stays plain."""
        if any(isinstance(part, Reversible) for part in self.trainable.module.modules()):
            if self.plan.compile is True:
                raise ConfigError(
                    "training.compile = true and model.residual = 'reversible': what a backward pass computes again "
                    "cannot be compiled before",
                    "leave one of them out",
                )
            return self
        if not pays(self.plan, self.device, self.validation):
            return self
        self.listener.say("compiling the model: the first steps and the first validation take longer")
        return replace(self, trainable=Compiled(self.trainable, self.listener.say))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What cannot be written ends the run; say from where it can go on."""
        try:
            yield
        except FileError as error:
            states = resume.available(self.folder)
            where = f"after step {states[0][0]}" if states else "from the first step"
            reason = re.sub(r".*cannot be written: (.*I/O error: )?| \(os error \d+\)", "", error.problem)
            raise FileError(
                f"{self.folder} cannot be written to: {reason}",
                f"make room there, then go on {where} with `resume=True`",
            ) from error

    def _require_finite(self, step: int) -> None:
        if not finite(self.trainable.module):
            raise self._diverged("a weight became infinite or not a number", step)

    def _diverged(self, what: str, step: int) -> NotFiniteError:
        states = resume.available(self.folder)
        where = f"go on after step {states[0][0]}" if states else "start again"
        lower = f"`resume=True`, {changing('training.learning_rate', f'{self.plan.learning_rate / 2:g}')}"
        also = "a longer training.warmup or a smaller training.clip"
        if choose_precision(self.plan.precision, self.device).name != "float32":
            also += " or training.precision=float32"
        return NotFiniteError(f"{what} at step {step}", f"{where} with {lower}, or train anew with {also}")

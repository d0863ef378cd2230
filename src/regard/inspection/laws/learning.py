"""Laws of training and of files: gradients add up, a stop changes nothing, and what is saved is what is loaded."""

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.data.batching import IGNORED, Batch, Padded
from regard.data.stream import Position
from regard.inspection.laws.examined import (
    Examined,
    Texts,
    difference,
    evaluating,
    needs_loss,
    needs_network,
)
from regard.inspection.laws.law import ROUNDING, Law, Trial
from regard.inspection.laws.reading import batch_of
from regard.models.checkpoint import load_model, save_model
from regard.models.lora import adapted, merge
from regard.models.network import Network
from regard.training.loop import Run
from regard.training.losses import LabelPrediction, SpanPrediction
from regard.training.plan import TrainingPlan
from regard.training.reports import Silent
from regard.training.trainable import Loss, TokenPrediction, Trainable
from regard.training.updater import backward

SMALL_VOCABULARY = 97


def _gradients(model: Examined, batches: list[Batch]) -> tuple[float, list[Tensor]]:
    """The mean loss over all targets, and its gradients."""
    model.module.zero_grad(set_to_none=True)
    trainable = _trainable(model)
    with torch.enable_grad(), evaluating(model.module):
        loss = backward(trainable, batches, TrainingPlan())
    found = [one.grad.detach().clone() for one in model.module.parameters() if one.grad is not None]
    model.module.zero_grad(set_to_none=True)
    return loss.mean, found


def _accumulation(model: Examined, trial: Trial) -> float:
    """Between the gradients of one batch and of the same texts in unequal micro-batches."""
    exact = model.wide if model.widens else model
    whole = [_batch(exact, trial.texts, trial.sources)]
    cuts = [(0, 1), (1, len(trial.texts) - 1), (len(trial.texts) - 1, len(trial.texts))]
    parts = [
        _batch(exact, trial.texts[first:last], trial.sources[first:last]) for first, last in cuts if last > first >= 0
    ]
    parts = (
        parts
        if len(trial.texts) > 2
        else [_batch(exact, (one,), trial.sources[at : at + 1]) for at, one in enumerate(trial.texts)]
    )
    (mean, expected), (other, found) = _gradients(exact, whole), _gradients(exact, parts)
    return max(difference(found, expected), difference(torch.tensor([other]), torch.tensor([mean])))


def _devices(model: Examined, trial: Trial) -> float:
    """Between loss and gradients on the CPU and on the GPU, in float32."""
    losses: list[Tensor] = []
    gradients: list[list[Tensor]] = []
    for device in ("cpu", "cuda"):
        here = replace(model, module=copy.deepcopy(model.module).to(device))
        mean, found = _gradients(here, [_batch(here, trial.texts, trial.sources)])
        losses.append(torch.tensor([mean]))
        gradients.append([one.cpu() for one in found])
    return max(difference(losses[1], losses[0]), difference(gradients[1], gradients[0]))


def _no_gpu(model: Examined) -> str | None:
    return needs_loss(model) or (None if torch.cuda.is_available() else "there is no GPU here")


@torch.no_grad()
def _save_load(model: Examined, trial: Trial) -> float:
    """Between the logits of a model and of itself after saving and loading.

    Adapters are merged into what is saved, which rounds once: the file is held to the merged model bit for bit, and
    that one to the model as it is within rounding.
    """
    module = model.original
    assert isinstance(module, Network)
    inputs = model.together(trial.texts, trial.sources)
    if adapted(module):
        merged = merge(copy.deepcopy(module))
        apart = difference(merged(inputs), module(inputs))
        if apart > max(ROUNDING, 4 * torch.finfo(module.dtype).eps):
            return apart
        module = merged
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), module)
        again = load_model(Path(folder)).to(model.device)
        return difference(again(inputs), module(inputs))


def _resume(model: Examined, trial: Trial) -> float:
    """Between the weights of an undisturbed training and of one that was stopped half-way."""
    small = _small(model)
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(), torch.enable_grad():
        whole = _trained(small, Path(folder) / "whole", [6])
        parts = _trained(small, Path(folder) / "parts", [3, 6])
    return difference(parts, whole)


def _small(model: Examined) -> Examined:
    """A copy of one layer and a small vocabulary where the model is large: of the training, not of the weights."""
    if not model.large:
        return model
    fields = {"layers": 1, "encoder_layers": 1, "vocabulary": SMALL_VOCABULARY}
    known = {name: value for name, value in fields.items() if name in type(model.config).model_fields}
    built = model.config.model_copy(update=known).build()
    return replace(model, module=built, original=built, vocabulary=SMALL_VOCABULARY)


@dataclass(frozen=True)
class _RandomBatches:
    """Batches that are a function of their position, for a model of any vocabulary."""

    model: Examined

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        index = position.batch
        while True:
            texts = self.model.texts(2 + index % 5, 7, 3, seed=index)
            yield _batch(self.model, texts, texts[::-1]), Position(0, index + 1)
            index += 1


def _trained(model: Examined, folder: Path, stops: list[int]) -> list[Tensor]:
    """The weights after training in one or several sittings; a new one knows only what is in the folder."""
    plan = TrainingPlan(steps=stops[-1], warmup=2, evaluate_every=2, save_every=3, label_smoothing=0.1)
    fresh = model.module
    for sitting, stop in enumerate(stops):
        fresh = copy.deepcopy(model.module)
        torch.manual_seed(sitting)
        validation = [_batch(model, *[model.texts(3, 5)] * 2)]
        trainable = _trainable(replace(model, module=fresh))
        Run(trainable, _RandomBatches(model), validation, plan, folder, Silent()).fit(until=stop)
    return [parameter.detach() for parameter in fresh.parameters()]


def _trainable(model: Examined) -> Trainable:
    """The module itself where it has a loss, else the objective that goes with its head."""
    module: nn.Module = model.module
    own = getattr(module, "loss", None)
    if model.network is None and callable(own):
        return _Itself(module, own)
    if model.outputs == "labels":
        return LabelPrediction(module, label_smoothing=0.1)
    return SpanPrediction(module) if model.outputs == "spans" else TokenPrediction(module, label_smoothing=0.1)


class _Itself:
    """A module with a loss of its own, as a Trainable."""

    def __init__(self, module: nn.Module, own: Callable[[Batch], Loss]) -> None:
        self.module, self._own = module, own

    def loss(self, batch: Batch) -> Loss:
        """As it says."""
        return self._own(batch)


def _batch(model: Examined, texts: Texts, sources: Texts) -> Batch:
    """Targets of whatever the head gives: tokens, a class of each text, or two places in it."""
    targets = [list(row[::-1]) for row in texts]
    if model.outputs == "labels":
        targets = [[sum(row) % _classes(model)] for row in texts]
    elif model.outputs == "spans":
        targets = [[row[0] % len(row), len(row) - 1] for row in texts]
    inputs = model.together(texts, sources)
    return Batch(inputs, Padded.of(targets, fill=IGNORED).ids.to(model.device))


def _classes(model: Examined) -> int:
    """How many there are."""
    if model.network is not None:
        return len(model.config.labels)
    with torch.no_grad():
        return int(model.module(model.alone((0,))).shape[-1])


def _texts(model: Examined) -> list[Trial]:
    sources = model.texts(3, 8, 2, 5, 4, seed=1) if model.reads_source else ()
    return [Trial("", model.texts(9, 3, 5, 2, 8), sources)]


LEARNING = (
    Law(
        "accumulation",
        "Loss and gradients do not depend on how a batch is divided into micro-batches.",
        _texts,
        _accumulation,
        {"": "a mean of means: the loss is averaged in each micro-batch and not divided once by all targets"},
        unfit=needs_loss,
    ),
    Law(
        "save_load",
        "A saved and loaded model gives the same numbers, bit for bit.",
        lambda model: [batch_of(model)],
        _save_load,
        {"": "something that the numbers depend on is not in the file: a buffer that is not kept, or a config key"},
        tolerance=0.0,
        unfit=needs_network,
    ),
    Law(
        "resume",
        "A training that is stopped and resumed ends with the same weights, bit for bit.",
        lambda model: [Trial()],
        _resume,
        {"": "something is not kept beside the weights: random numbers, moments, the place in the data"},
        tolerance=0.0,
        unfit=lambda model: needs_network(model) or needs_loss(model),
        sample=f"a copy of one layer and a vocabulary of {SMALL_VOCABULARY}",
        shrinks=False,
    ),
    Law(
        "devices",
        "CPU and GPU agree on the loss and on every gradient.",
        _texts,
        _devices,
        {"": "a kernel of the GPU computes something else, or in fewer digits than float32 (TF32)"},
        tolerance=1e-3,
        unfit=_no_gpu,
        rounds=False,
    ),
)

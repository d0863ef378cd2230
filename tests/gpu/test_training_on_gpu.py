"""Training on a GPU: steps are queued without waiting for it, and what is not finite is noticed all the same."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.stream import Position
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.training.loop import Run
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan
from regard.training.precision import choose_precision
from regard.training.reports import Report
from regard.training.trainable import Loss, TokenPrediction
from regard.training.updater import Placed, Updater, to_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
PLAN = TrainingPlan(steps=13, warmup=3, evaluate_every=6, save_every=4, accumulate=2, learning_rate=1e-2)


@dataclass
class Ear:
    reports: list[Report] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __call__(self, report: Report) -> None:
        self.reports.append(report)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def batch(number: int) -> Batch:
    draws = torch.Generator().manual_seed(number)
    rows = [torch.randint(4, 23, (length,), generator=draws).tolist() for length in (7, 3, 5)]
    targets = Padded.of([[*row, 2] for row in rows], fill=IGNORED).ids
    return Batch(Inputs(Padded.of([[1, *row] for row in rows]), Padded.of(rows)), targets)


class Numbered:
    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        number = position.batch
        while True:
            yield batch(number), Position(0, number + 1)
            number += 1


def trainable(device: torch.device) -> TokenPrediction:
    torch.manual_seed(3)
    shape = TransformerConfig(vocabulary=23, width=24, heads=3, layers=2, dropout=0.0)
    return TokenPrediction(Transformer(shape).to(device), label_smoothing=0.1)


def test_a_placed_batch_is_the_batch_and_knows_its_targets():
    one = batch(5)
    placed = to_device(one, CUDA)
    assert isinstance(placed, Placed)
    assert placed.count == one.count
    assert placed.targets.device.type == placed.inputs.source.lengths.device.type == "cuda"
    assert torch.equal(placed.targets.cpu(), one.targets)
    assert torch.equal(placed.inputs.tokens.ids.cpu(), one.inputs.tokens.ids)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_taking_a_step_never_waits_for_the_gpu(precision):
    what = trainable(CUDA)
    plan = PLAN.model_copy(update={"precision": precision})
    stepper = Updater(what, adamw(what.module, plan), plan, Numbered().start(Position()))
    stepper.take(1, 1e-3).read()  # the first makes the optimizer's memory
    torch.cuda.set_sync_debug_mode("error")
    try:
        taken = [stepper.take(number, 1e-3) for number in range(2, 7)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    losses = [one.read()[0] for one in taken]
    assert all(0 < loss < 10 for loss in losses)


def test_the_course_is_that_of_the_cpu_and_every_step_is_reported_once(tmp_path):
    heard = {}
    for device in (CUDA, torch.device("cpu")):
        ear = Ear()
        Run(trainable(device), Numbered(), [batch(1001)], PLAN, tmp_path / device.type, ear).fit()
        heard[device.type] = ear.reports
    assert [report.step for report in heard["cuda"]] == list(range(1, 14))
    losses = {name: [report.loss for report in reports] for name, reports in heard.items()}
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-2)


@dataclass
class Diverging:
    """Right until a step, whose loss is not a number."""

    inner: TokenPrediction
    at: int
    calls: int = 0

    @property
    def module(self) -> torch.nn.Module:
        return self.inner.module

    def loss(self, batch: Batch) -> Loss:
        found = self.inner.loss(batch)
        self.calls += self.module.training
        return Loss(found.sum * float("nan"), found.count) if self.calls > 2 * (self.at - 1) else found


@pytest.mark.parametrize("at", [4, 5, 6, 7])
def test_a_loss_that_is_not_a_number_is_noticed_and_nothing_of_it_saved(tmp_path: Path, at):
    run = Run(Diverging(trainable(CUDA), at), Numbered(), [batch(1001)], PLAN, tmp_path, Ear())
    with pytest.raises(InputError, match=f"the loss became nan at step {at}"):
        run.fit()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == at - 1
    for path in tmp_path.rglob("*.safetensors"):
        assert all(one.isfinite().all() for one in load_file(path).values() if one.is_floating_point()), path


def test_auto_is_bfloat16_on_a_gpu_that_has_it():
    native = torch.cuda.get_device_capability() >= (8, 0)
    assert choose_precision("auto", CUDA).name == ("bfloat16" if native else "float32")

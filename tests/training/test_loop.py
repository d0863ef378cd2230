"""The loop: it learns, it records, it keeps the best and the last, and a resumed run equals an undisturbed one."""

import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import TOKENIZER, Climber, Ear, Same, assert_same_run, climb, lines, real, states
from torch.optim.optimizer import register_optimizer_step_pre_hook

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.training.loop import Run
from regard.training.plan import TrainingPlan
from regard.training.reports import Listener, Silent
from regard.training.schedules import factor
from regard.training.trainable import Loss


def test_a_small_model_learns_to_copy(tmp_path):
    ear = Ear()
    real(tmp_path, listener=ear, steps=120, evaluate_every=60, save_every=120, learning_rate=1e-2).fit()
    uniform = math.log(TOKENIZER.size)
    assert ear.reports[0].loss > 0.9 * uniform
    assert ear.reports[-1].validation["loss"] < ear.reports[59].validation["loss"] < uniform
    assert ear.reports[-1].validation["loss"] < math.log(5), "better than guessing among the five letters"


def test_every_step_has_one_line_and_validations_stand_where_they_were_made(undisturbed):
    found = lines(undisturbed)
    assert [line["step"] for line in found] == list(range(1, 10))
    assert [line["step"] for line in found if "validation_loss" in line] == [4, 8, 9]
    rates = [3e-3 * factor("cosine", step, warmup=3, steps=9) for step in range(1, 10)]
    assert [line["rate"] for line in found] == rates
    assert all(line["tokens_per_second"] > 0 for line in found)


def test_the_listener_hears_every_step_as_it_is_recorded(tmp_path, undisturbed):
    ear = Ear()
    real(tmp_path, listener=ear).fit()
    heard = [{"step": report.step, "loss": report.loss, "rate": report.rate} for report in ear.reports]
    assert heard == [{key: line[key] for key in ("step", "loss", "rate")} for line in lines(undisturbed)]
    assert {report.steps for report in ear.reports} == {9}
    assert isinstance(ear, Listener)
    assert isinstance(Silent(), Listener)
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("keep", "kept"), [(1, ["step-9"]), (2, ["step-6", "step-9"]), (5, ["step-3", "step-6", "step-9"])]
)
def test_as_many_states_are_kept_as_asked_for(tmp_path, keep, kept):
    real(tmp_path, keep=keep).fit()
    assert states(tmp_path) == kept


def test_the_last_step_is_always_validated_and_saved(tmp_path):
    real(tmp_path, steps=5).fit()
    assert states(tmp_path) == ["step-3", "step-5"]
    assert [line["step"] for line in lines(tmp_path) if "validation_loss" in line] == [4, 5]


@pytest.mark.parametrize("stops", [[3], [4], [8], [1, 2, 5, 7]])
def test_a_run_stopped_anywhere_and_resumed_equals_an_undisturbed_one(tmp_path, undisturbed, stops):
    """Other weights and another random state before each start: everything comes from the state."""
    for number, stop in enumerate(stops):
        real(tmp_path, seed=7 if not list(tmp_path.glob("state/step-*")) else 100 + number).fit(until=stop)
    ear = Ear()
    fresh = not list(tmp_path.glob("state/step-*"))
    real(tmp_path, seed=7 if fresh else 200, listener=ear).fit()
    assert_same_run(tmp_path, undisturbed)
    assert ear.said == [] if fresh else ear.said[0].startswith("resuming after step")


def test_resuming_a_finished_run_changes_nothing(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    ear = Ear()
    real(folder, listener=ear, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert lines(folder) == lines(undisturbed)
    assert ear.reports == []
    assert ear.said[1].startswith(f"{folder} is finished after step 9: all 9 steps are taken")


def test_half_written_files_of_a_killed_run_are_removed_and_a_cut_line_too(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(folder / "state" / "step-9")
    (folder / ".partial-7-model.safetensors").write_bytes(b"half")
    (folder / "state" / ".partial-7-step-9").mkdir()
    (folder / "state" / ".partial-7-step-9" / "model.safetensors").write_bytes(b"half")
    with (folder / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"step": 10, "lo\xff')
    real(folder, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert [path for path in folder.rglob("*") if path.name.startswith(".partial")] == []


def test_the_best_model_by_validation_is_kept_and_the_last_is_in_the_state(tmp_path):
    progress = climb(tmp_path).fit()
    best, last = (
        load_file(tmp_path / name)["place"] for name in ("model.safetensors", "state/step-7/model.safetensors")
    )
    assert float(best) == pytest.approx(0.3, abs=1e-5)
    assert float(last) == pytest.approx(0.7, abs=1e-5)
    assert (
        progress.best
        == min(line["validation_loss"] for line in lines(tmp_path))
        == lines(tmp_path)[2]["validation_loss"]
    )


def test_what_was_best_is_remembered_across_a_resume(tmp_path):
    climb(tmp_path).fit(until=4)
    climb(tmp_path).fit()
    assert float(load_file(tmp_path / "model.safetensors")["place"]) == pytest.approx(0.3, abs=1e-5)


def test_validation_is_a_mean_over_tokens_not_over_batches(tmp_path):
    class Counted:
        def __init__(self) -> None:
            self.module = Climber()

        def loss(self, batch: Batch) -> Loss:
            assert not self.module.training
            return Loss(batch.targets[batch.targets != IGNORED].float().sum(), batch.count)

    tokens = Inputs(Padded.of([[1, 2, 3]]))
    batches = [Batch(tokens, torch.tensor([[2, IGNORED, IGNORED]])), Batch(tokens, torch.tensor([[5, 5, 5]]))]
    run = Run(Counted(), Same(), batches, TrainingPlan(), tmp_path, Ear())
    assert run.validate() == (2 + 15) / 4
    assert run.trainable.module.training, "training goes on where it was"


def test_the_gradient_that_reaches_the_optimizer_is_the_mean_clipped_to_its_norm(tmp_path):
    norms: list[float] = []

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        grads = [one.grad for group in optimizer.param_groups for one in group["params"]]
        norms.append(float(torch.stack([grad.norm() for grad in grads]).norm()))

    handle = register_optimizer_step_pre_hook(note)
    try:
        climb(tmp_path / "unclipped", steps=1, clip=2.0).fit()
        climb(tmp_path / "clipped", steps=1, clip=0.25).fit()
        real(tmp_path / "real", steps=2, clip=0.0625).fit()
    finally:
        handle.remove()
    assert norms == pytest.approx([1.0, 0.25, 0.0625, 0.0625], rel=1e-4)

"""Stopping: when validation no longer improves, when asked to, and when a number is no longer finite."""

import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import BATCH, Climber, Ear, Same, assert_same_run, climb, lines, real, states

from regard.data.batching import Batch
from regard.errors import InputError
from regard.training import loop
from regard.training.interrupt import Interrupt, Stopped, listening
from regard.training.loop import Run
from regard.training.reports import Report
from regard.training.trainable import Loss


def slot_of(path: Path) -> float:
    return float(load_file(path)["place"])


# Early stopping: the climber is at 0.1, 0.2, 0.3 …, and validation likes 0.31 best


@pytest.mark.parametrize(("patience", "end"), [(1, 4), (2, 5), (3, 6), (9, 7), (None, 7)])
def test_a_run_ends_after_so_many_validations_without_a_new_best(tmp_path, patience, end):
    run = climb(tmp_path, patience=patience, save_every=4)
    progress = run.fit()
    assert progress.step == end == lines(tmp_path)[-1]["step"]
    assert states(tmp_path)[-1] == f"step-{end}"
    assert slot_of(tmp_path / "model.safetensors") == pytest.approx(0.3, abs=1e-5)
    assert slot_of(tmp_path / f"state/step-{end}/model.safetensors") == pytest.approx(end / 10, abs=1e-5)
    early = [said for said in run.listener.said if said.startswith(f"stopped early after step {end}")]
    assert len(early) == (end < 7)


@dataclass
class Scripted:
    """A climber whose validation losses are given."""

    module: Climber
    losses: list[float]

    def loss(self, batch: Batch) -> Loss:
        place = self.module.place
        return Loss(-place * 3, 3) if self.module.training else Loss(torch.tensor(self.losses.pop(0)), 1)


@pytest.mark.parametrize(
    ("losses", "end"),
    [([5, 7, 4, 6, 6, 1, 1], 5), ([5, 7, 4, 6, 3, 6, 2], 7), ([5, 5, 5, 1, 1, 1, 1], 3), ([5, 4, 3, 2, 1, 0, 7], 7)],
)
def test_a_new_best_begins_the_count_anew_and_an_equal_loss_is_none(tmp_path, losses, end):
    run = replace(climb(tmp_path, patience=2), trainable=Scripted(Climber(), [float(loss) for loss in losses]))
    assert run.fit().step == end


def test_only_validations_are_counted(tmp_path):
    run = climb(tmp_path, steps=13, evaluate_every=2, patience=2)  # 0.2, 0.4 (as good but for rounding), 0.6, 0.8
    progress = run.fit()
    best = min(lines(tmp_path), key=lambda line: line.get("validation_loss", math.inf))["step"]
    assert progress.step == best + 4
    assert [report.worse for report in run.listener.reports if report.validation][-3:] == [0, 1, 2]


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_the_count_is_remembered_across_a_resume(tmp_path, stop):
    climb(tmp_path, patience=2).fit(until=stop)
    assert climb(tmp_path, patience=2).fit().step == 5
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_run_that_stopped_early_is_finished_until_it_is_given_more_patience(tmp_path):
    climb(tmp_path, patience=2).fit()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = climb(tmp_path, patience=2)
    again.fit()
    assert again.listener.reports == []
    assert (
        "is finished after step 5: no improvement of the validation loss for 2 evaluations" in again.listener.said[-1]
    )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert climb(tmp_path, patience=3).fit().step == 6


def test_more_steps_go_on_where_the_run_ended(tmp_path):
    climb(tmp_path / "short", steps=4).fit()
    climb(tmp_path / "short", steps=7).fit()
    climb(tmp_path / "long", steps=7).fit()
    assert states(tmp_path / "short") == states(tmp_path / "long") == ["step-6", "step-7"]
    for name in ("model.safetensors", "state/step-7/model.safetensors"):
        assert (tmp_path / "short" / name).read_bytes() == (tmp_path / "long" / name).read_bytes()


# Asked to stop


@dataclass
class Asks(Ear):
    """Hears everything and asks to stop when it hears of a step."""

    interrupt: Interrupt | None = None
    at: int = 0

    def __call__(self, report: Report) -> None:
        super().__call__(report)
        if report.step == self.at:
            self.interrupt.ask(signal.SIGTERM)


def stopped(folder: Path, at: int, seed: int, **plan: object) -> int:
    """A run that is asked to stop while step `at` is under way, and the last step it saved."""
    interrupt = Interrupt()
    run = replace(real(folder, listener=Asks(interrupt=interrupt, at=at - 1), seed=seed, **plan), interrupt=interrupt)
    with pytest.raises(Stopped) as caught:
        run.fit()
    assert caught.value.code == 128 + signal.SIGTERM
    assert str(folder) in str(caught.value)
    return caught.value.step


@pytest.mark.parametrize("plan", [{}, {"keep": 2, "average": 2}, {"accumulate": 2}, {"precision": "bfloat16"}], ids=str)
def test_a_run_asked_to_stop_saves_its_step_and_resumed_equals_an_undisturbed_one(tmp_path, plan):
    """In every file: the states that stopping caused change neither what is kept nor what is averaged."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    real(whole, **plan).fit()
    for number, at in enumerate((2, 4, 6, 8)):
        assert stopped(broken, at, seed=7 if number == 0 else 100 + number, **plan) == at
        assert f"step-{at}" in states(broken)
    real(broken, seed=200, **plan).fit()
    assert_same_run(broken, whole)
    files = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (broken, whole)]
    assert files[0] == files[1]
    for path in files[0]:
        if path.suffix in (".safetensors", ".json"):
            assert (broken / path).read_bytes() == (whole / path).read_bytes(), path


def test_a_wish_that_comes_with_the_last_step_is_fulfilled_by_being_done(tmp_path):
    interrupt = Interrupt()
    run = replace(real(tmp_path, listener=Asks(interrupt=interrupt, at=8)), interrupt=interrupt)
    assert run.fit().step == 9


def test_outside_the_main_thread_a_run_trains_and_can_be_asked_to_stop(tmp_path):
    caught: list[BaseException] = []

    def work() -> None:
        with listening() as interrupt:
            run = replace(real(tmp_path, listener=Asks(interrupt=interrupt, at=3)), interrupt=interrupt)
            try:
                run.fit()
            except Stopped as error:
                caught.append(error)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [error.step for error in caught] == [4]
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


TWICE = """
import signal
from regard.training.interrupt import listening
with listening() as interrupt, interrupt.heeding():
    signal.raise_signal({number})
    assert interrupt.number == {number}
    print("asked", flush=True)
    try:
        signal.raise_signal({number})
    except BaseException:
        print("made into another error")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends_at_once_whoever_would_catch_it(number):
    ended = subprocess.run(
        [sys.executable, "-c", TWICE.format(number=number.value)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (128 + number, "asked\n")
    assert "once more to stop at once" in ended.stderr
    assert ended.stderr.endswith("goes on from it when it is resumed\n")


def test_a_signal_heard_once_leaves_the_handlers_as_they_were(capfd):
    before = signal.getsignal(signal.SIGTERM)
    with listening() as interrupt, interrupt.heeding():
        signal.raise_signal(signal.SIGTERM)
    assert interrupt.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    assert "once more to stop at once" in capfd.readouterr().err


def test_before_the_first_step_one_signal_is_enough():
    with pytest.raises(KeyboardInterrupt), listening():
        signal.raise_signal(signal.SIGINT)


# Numbers that are no longer finite


@dataclass
class Faulty:
    """A climber with a fault at a step: in the loss, in the gradient alone, or in validation alone."""

    module: Climber
    fault: str
    at: int
    steps: int = 0

    def loss(self, batch: Batch) -> Loss:
        place = self.module.place
        self.steps += self.module.training
        now = self.steps >= self.at
        if not self.module.training:
            return Loss(place.detach() * (math.nan if now and self.fault == "validation" else 1), batch.count)
        if now and self.fault == "loss":
            return Loss(place * math.inf, 3)
        root = torch.sqrt(place * 0) if now and self.fault == "gradient" else 0  # 0, with a gradient that is none
        return Loss(-place * 3 + root, 3)


@pytest.mark.parametrize("behind", [0, 1], ids=["at once", "a step later, as on a GPU"])
@pytest.mark.parametrize("fault", ["loss", "gradient", "validation"])
@pytest.mark.parametrize("save_every", [1, 2, 3])
def test_a_run_stops_where_a_number_is_not_finite_and_saves_nothing_of_it(
    tmp_path, monkeypatch, behind, fault, save_every
):
    monkeypatch.setattr(loop, "steps_behind", lambda device: behind)
    run = climb(tmp_path, save_every=save_every, evaluate_every=2, precision="bfloat16")
    run = replace(run, trainable=Faulty(Climber(), fault, 4))
    what = {"loss": r"the loss became inf", "gradient": "the gradient became nan"}.get(fault, "validation loss became")
    last = 3 // save_every * save_every
    with pytest.raises(InputError, match=rf"{what}.* at step 4; go on after step {last} with `resume=True`") as caught:
        run.fit()
    assert '"training.learning_rate": 0.05' in caught.value.remedy
    assert "training.precision=float32" in caught.value.remedy
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]
    assert states(tmp_path)[-1] == f"step-{last}"
    for path in tmp_path.rglob("*.safetensors"):
        assert all(one.isfinite().all() for one in load_file(path).values() if one.is_floating_point()), path


def test_a_weight_that_overflows_is_noticed_though_the_loss_was_finite(tmp_path):
    run = climb(tmp_path, learning_rate=1e39, evaluate_every=7)
    with pytest.raises(InputError, match="a weight became infinite or not a number at step 1; start again with"):
        run.fit()
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_following_the_advice_of_a_diverged_run_works(tmp_path):
    """Half the rate from the last good state, as the sentence says."""
    run = climb(tmp_path)
    run.trainable.fails_at = 0.45
    with pytest.raises(InputError, match=r'go on after step 4 with .*training\.learning_rate": 0\.05'):
        run.fit()
    assert climb(tmp_path, learning_rate=0.05).fit().step == 7
    assert slot_of(tmp_path / "state/step-7/model.safetensors") == pytest.approx(0.4 + 3 * 0.05, abs=1e-5)


@pytest.mark.parametrize("stops", [[], [4, 5]])
def test_reading_the_numbers_a_step_late_changes_nothing(tmp_path, undisturbed, monkeypatch, stops):
    monkeypatch.setattr(loop, "steps_behind", lambda device: 1)
    for stop in stops:
        real(tmp_path).fit(until=stop)
    ear = Ear()
    real(tmp_path, listener=ear).fit()
    assert_same_run(tmp_path, undisturbed)
    heard = [report.step for report in ear.reports]
    assert heard == list(range(heard[0], 10))
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_a_stopped_runs_folder_can_be_copied_and_resumed_elsewhere(tmp_path):
    assert stopped(tmp_path / "here", 5, seed=7) == 5
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    for folder in ("here", "there"):
        real(tmp_path / folder, seed=31).fit()
    assert_same_run(tmp_path / "here", tmp_path / "there")


def test_a_run_needs_no_one_to_hold_its_interrupt(tmp_path):
    run = Run(climb(tmp_path).trainable, Same(), [BATCH], climb(tmp_path).plan, tmp_path, Ear())
    assert run.interrupt.number is None
    assert run.fit().step == 7

"""A compiler that is missing or fails changes nothing but one sentence: no step is lost, doubled or drawn otherwise."""

import logging
import warnings

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import Ear, losses, real

from regard.data.batching import Batch, Inputs, Padded
from regard.training.compiling import LONG, pays, quiet, reason
from regard.training.interrupt import Stopped
from regard.training.plan import TrainingPlan

PATIENT = "compiling the model: the first steps and the first validation take longer"


class Failing:
    """A compiler whose code draws random numbers and raises at one call, in training or in evaluation."""

    def __init__(self, error: BaseException, at: int, *, backward: bool = False, training: bool = True) -> None:
        self.error, self.at, self.backward, self.training = error, at, backward, training
        self.calls = 0

    def __call__(self, loss, *, dynamic):
        def compiled(batch):
            self.calls += loss.__self__.module.training == self.training
            if self.calls != self.at:
                return loss(batch)
            torch.rand(17)
            if not self.backward:
                raise self.error
            found = loss(batch)
            found.sum.register_hook(self.fail)
            return found

        return compiled

    def fail(self, gradient):
        raise self.error


def weights(folder):
    return load_file(folder / "state" / "step-9" / "model.safetensors")


@pytest.mark.parametrize(
    "compiler",
    [
        lambda: Failing(RuntimeError("backend='inductor' raised:\nno C++ compiler"), 1),
        lambda: Failing(RuntimeError("no C++ compiler"), 6, backward=True),
        lambda: Failing(ImportError("no C++ compiler"), 2, training=False),
    ],
    ids=["at the first step", "in the backward pass of a second batch", "while validating"],
)
def test_the_course_is_bit_for_bit_that_of_a_run_as_written(tmp_path, monkeypatch, compiler):
    real(tmp_path / "plain", accumulate=2, compile=False).fit()
    monkeypatch.setattr(torch, "compile", compiler())
    ear = Ear()
    real(tmp_path / "failing", accumulate=2, compile=True, listener=ear).fit()
    assert ear.said == [PATIENT, "the model cannot be compiled here (no C++ compiler), so it runs as written"]
    assert losses(tmp_path / "failing") == losses(tmp_path / "plain")
    one, other = weights(tmp_path / "failing"), weights(tmp_path / "plain")
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_what_fails_as_written_too_is_raised_and_not_blamed_on_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda loss, *, dynamic: loss)
    ear = Ear()
    run = real(tmp_path / "run", compile=True, listener=ear)
    run.trainable.module.embedding.weight.data = torch.zeros(3, 16)
    with pytest.raises(IndexError):
        run.fit()
    assert ear.said == [PATIENT]


def test_ctrl_c_while_compiling_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    real(tmp_path / "plain", compile=False).fit()
    monkeypatch.setattr(torch, "compile", Failing(KeyboardInterrupt(), 5))
    with pytest.raises(KeyboardInterrupt):
        real(tmp_path / "run", compile=True).fit()
    real(tmp_path / "run", compile=False).fit()
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")


def test_asked_to_stop_while_compiling_it_finishes_the_step_and_saves_it(tmp_path, monkeypatch):
    run = real(tmp_path / "run", compile=True)

    def compiler(loss, *, dynamic):
        def compiled(batch):
            run.interrupt.ask()
            raise RuntimeError("the process that compiles was stopped")

        return compiled

    monkeypatch.setattr(torch, "compile", compiler)
    with pytest.raises(Stopped) as stopped:
        run.fit()
    assert stopped.value.step == 1
    assert (tmp_path / "run" / "state" / "step-1" / "progress.json").is_file()


def batch(width: int) -> Batch:
    return Batch(Inputs(Padded.of([[1] * width])), torch.ones(1, width, dtype=torch.long))


@pytest.mark.parametrize(
    ("wish", "device", "steps", "widths", "there", "expected"),
    [
        (True, "cpu", 1, (3, 5, 7), False, True),
        (False, "cuda", LONG, (5,), True, False),
        ("auto", "cuda", LONG, (5, 3), True, True),
        ("auto", "cpu", LONG, (5, 3), True, False),
        ("auto", "cuda", LONG - 1, (5, 3), True, False),
        ("auto", "cuda", LONG, (5, 3, 2), True, False),
        ("auto", "cuda", LONG, (5, 3), False, False),
    ],
)
def test_auto_compiles_a_long_run_of_even_batches_on_a_gpu_with_a_compiler(
    monkeypatch, wish, device, steps, widths, there, expected
):
    monkeypatch.setattr("regard.training.compiling.find_spec", lambda name: object() if there else None)
    plan = TrainingPlan(compile=wish, steps=steps)
    assert pays(plan, torch.device(device), [batch(width) for width in widths]) is expected


def test_the_reason_is_one_short_line():
    assert reason(RuntimeError("backend='x' raised:\n\n  No compiler found.\nSet this")) == "No compiler found"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(RuntimeError("x" * 999))) == 160


@pytest.mark.parametrize("asked", [False, True])
def test_a_compiler_speaks_to_its_developers_only_when_asked(monkeypatch, caplog, asked):
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    if asked:
        monkeypatch.setenv("TORCH_LOGS", "dynamo")
    logger = logging.getLogger("torch._dynamo.convert_frame")
    monkeypatch.setattr(logging.getLogger("torch"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("torch._dynamo"), "propagate", True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet(), caplog.at_level(logging.WARNING, "torch"):
            logger.warning("hit a limit")
            warnings.warn_explicit("slow", UserWarning, "compile_fx.py", 1, module="torch._inductor.compile_fx")
            warnings.warn_explicit("mine", UserWarning, "own.py", 1, module="own")
    assert [str(one.message) for one in seen] == (["slow", "mine"] if asked else ["mine"])
    assert bool(caplog.records) is asked

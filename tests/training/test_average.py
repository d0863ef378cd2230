"""Averaging: model.safetensors is the mean of the last states' weights, the same bit for bit however the run went."""

import re

import numpy
import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import assert_same_run, climb, real, states

from regard.errors import ConfigError
from regard.training.average import mean
from regard.training.plan import TrainingPlan

MODEL = "model.safetensors"


def test_the_mean_is_that_of_float64_rounded_once_and_whole_numbers_are_the_last_ones():
    several = [{"a": torch.randn(3, 5) * 10**power, "n": torch.tensor([power])} for power in (-3, 0, 7, 2)]
    found = mean(iter(several))
    exact = numpy.mean([one["a"].double().numpy() for one in several], axis=0)
    assert found["a"].dtype == torch.float32
    numpy.testing.assert_array_equal(found["a"].numpy(), exact.astype(numpy.float32))
    assert found["n"].tolist() == [2]


@pytest.mark.parametrize(("average", "expected"), [(2, 0.65), (3, 0.6), (5, 0.5), (7, 0.4), (9, 0.4)])
def test_the_model_is_the_mean_of_the_last_states_and_the_best_is_kept_beside_them(tmp_path, average, expected):
    run = climb(tmp_path, average=average, keep=average)
    run.fit()
    assert float(load_file(tmp_path / MODEL)["place"]) == pytest.approx(expected, abs=1e-5)
    assert float(load_file(tmp_path / "state" / "best.safetensors")["place"]) == pytest.approx(0.3, abs=1e-5)
    assert float(run.trainable.module.place.detach()) == pytest.approx(0.7, abs=1e-5), "the module is at the last step"
    loss = float(re.search(r"mean of .*, with validation loss (\S+);", run.listener.said[-1]).group(1))
    assert loss == pytest.approx((expected - 0.31) ** 2, abs=1e-4)


def test_a_run_that_stops_early_is_averaged_up_to_where_it_stopped(tmp_path):
    assert climb(tmp_path, average=2, patience=2).fit().step == 5
    assert float(load_file(tmp_path / MODEL)["place"]) == pytest.approx(0.45, abs=1e-5)


@pytest.mark.parametrize("until", [3, 4, 7])
def test_a_run_that_is_not_finished_has_the_mean_of_what_it_has_saved(tmp_path, until):
    climb(tmp_path, average=3, keep=3, save_every=2, steps=9).fit(until=until)
    saved = [step / 10 for step in range(2, until + 1, 2)][-3:]
    assert float(load_file(tmp_path / MODEL)["place"]) == pytest.approx(sum(saved) / len(saved), abs=1e-5)


@pytest.mark.parametrize("stops", [[3], [4], [1, 2, 5, 7, 9]])
def test_a_run_stopped_anywhere_has_the_same_mean_in_the_end(tmp_path, stops):
    plan = {"average": 3, "keep": 3, "save_every": 2}
    real(tmp_path / "whole", **plan).fit()
    for stop in stops:
        real(tmp_path / "broken", **plan).fit(until=stop)
    real(tmp_path / "broken", **plan).fit()
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
    assert (tmp_path / "broken" / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert states(tmp_path / "broken") == ["best.safetensors", "step-6", "step-8", "step-9"]


def test_a_crash_between_the_last_state_and_its_mean_is_mended_by_resuming(tmp_path):
    climb(tmp_path, average=3, keep=3).fit()
    before = (tmp_path / MODEL).read_bytes()
    (tmp_path / MODEL).unlink()
    climb(tmp_path, average=3, keep=3).fit()
    assert (tmp_path / MODEL).read_bytes() == before


def test_a_damaged_state_is_named_and_has_no_part_in_the_mean(tmp_path):
    climb(tmp_path, average=3, keep=3, steps=6).fit()
    weights = tmp_path / "state" / "step-5" / MODEL
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\x80\x7f")  # infinity
    run = climb(tmp_path, average=3, keep=3, steps=7)
    run.fit()
    assert any(str(weights.parent) in said and "the mean is taken without it" in said for said in run.listener.said)
    assert float(load_file(tmp_path / MODEL)["place"]) == pytest.approx(0.65, abs=1e-5)


def test_more_states_than_are_kept_cannot_be_averaged():
    with pytest.raises(ConfigError, match=r"average = 5 states cannot be had where keep = 2; use training\.keep=5"):
        TrainingPlan(average=5)
    assert TrainingPlan(average=2).keep == 2

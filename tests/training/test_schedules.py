"""The learning rate over time, against closed forms."""

import math
from itertools import pairwise

import pytest

from regard.errors import ConfigError
from regard.training.plan import TrainingPlan
from regard.training.schedules import SCHEDULES, factor

every = pytest.mark.parametrize("schedule", sorted(SCHEDULES))
WARMUP, STEPS = 7, 53


def rates(schedule: str, warmup: int = WARMUP, steps: int = STEPS) -> list[float]:
    return [factor(schedule, step, warmup=warmup, steps=steps) for step in range(1, steps + 1)]


@every
def test_warm_up_is_a_straight_line_to_the_peak_of_one(schedule):
    assert rates(schedule)[:WARMUP] == pytest.approx([step / WARMUP for step in range(1, WARMUP + 1)])
    assert max(rates(schedule)) == rates(schedule)[WARMUP - 1] == 1.0


@every
@pytest.mark.parametrize("warmup", [0, 1, WARMUP, STEPS - 1, STEPS, STEPS + 2])
def test_the_rate_is_never_negative_nor_above_its_peak_and_never_rises_after_warm_up(schedule, warmup):
    found = rates(schedule, warmup)
    assert all(0 <= rate <= 1 for rate in found)
    after = found[max(warmup - 1, 0) :]
    assert after == sorted(after, reverse=True)


@pytest.mark.parametrize(
    ("schedule", "middle", "end"), [("constant", 1.0, 1.0), ("linear", 0.5, 0.0), ("cosine", 0.5, 0.0)]
)
def test_halfway_and_at_the_end_the_rate_is_what_its_name_says(schedule, middle, end):
    found = rates(schedule)
    halfway = WARMUP + (STEPS - WARMUP) // 2
    assert found[halfway - 1] == pytest.approx(middle)
    assert found[-1] == pytest.approx(end, abs=1e-12)


def test_linear_falls_by_equal_steps():
    found = rates("linear")[WARMUP - 1 :]
    falls = [before - after for before, after in pairwise(found)]
    assert falls == pytest.approx([1 / (STEPS - WARMUP)] * len(falls))


def test_cosine_is_half_a_turn():
    for step, rate in enumerate(rates("cosine")[WARMUP:], start=1):
        assert rate == pytest.approx(math.cos(math.pi * step / (STEPS - WARMUP) / 2) ** 2)


def test_inverse_square_root_is_the_papers_equation_three_up_to_one_factor():
    """lrate = width^-0.5 · min(step^-0.5, step · warmup^-1.5); Regard's has its peak at 1."""
    paper = [19**-0.5 * min(step**-0.5, step * WARMUP**-1.5) for step in range(1, STEPS + 1)]
    ratios = [rate / peer for rate, peer in zip(rates("inverse_sqrt"), paper, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * STEPS)


def test_without_warm_up_the_first_step_is_at_the_peak_or_just_below():
    first = {schedule: factor(schedule, 1, warmup=0, steps=STEPS) for schedule in SCHEDULES}
    assert first["constant"] == first["inverse_sqrt"] == 1.0
    assert first["linear"] == pytest.approx(1 - 1 / STEPS)
    assert 0.99 < first["cosine"] < 1.0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_floor_is_where_the_rate_ends_and_squeezes_the_way_there(schedule):
    floored = [factor(schedule, step, warmup=WARMUP, steps=STEPS, floor=0.1) for step in range(1, STEPS + 1)]
    assert floored[:WARMUP] == rates(schedule)[:WARMUP]
    assert floored[WARMUP:] == pytest.approx([0.1 + 0.9 * rate for rate in rates(schedule)[WARMUP:]])
    assert floored[-1] == pytest.approx(0.1)


@pytest.mark.parametrize("schedule", ["constant", "inverse_sqrt"])
def test_a_floor_without_effect_is_refused(schedule):
    with pytest.raises(
        ConfigError, match=f"min_rate_ratio has no effect with schedule '{schedule}'; use linear or cosine"
    ):
        TrainingPlan(schedule=schedule, min_rate_ratio=0.1)

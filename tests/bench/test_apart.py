"""Taking turns in processes, and the arithmetic of what is reported."""

import os
import time
from pathlib import Path

import pytest

from regard.bench.apart import PRECISIONS, Contestant, Result, Task, compared, compete, compete_in_each
from regard.bench.timing import Timed


def counted(case: tuple[int, int], precision: str) -> Task:
    return Task(lambda: None, case[0], os.getpid() if precision == "float32" else case[1])


def test_every_contestant_has_a_process_of_its_own_and_a_time_for_every_round():
    contestants = [Contestant(name, counted, keeps_memory=name == "regard") for name in ("regard", "peer")]
    results = compete(contestants, (7, 11), rounds=3)
    assert [(one.contestant, one.precision) for one in results] == [
        (name, precision) for name in ("regard", "peer") for precision in PRECISIONS
    ]
    assert all(len(one.timed.rounds) == 3 and one.tokens == 7 for one in results)
    processes = {one.parameters for one in results if one.precision == "float32"}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert {one.parameters for one in results if one.precision == "bfloat16"} == {11}


def meeting(case: str, precision: str) -> Task:
    """Each writes its name when it first works, and waits until there are two."""

    def work() -> None:
        Path(case, str(os.getpid())).touch()
        begun = time.monotonic()
        while len(list(Path(case).iterdir())) < 2:
            assert time.monotonic() < begun + 60

    return Task(work, 1, 1)


def test_what_takes_minutes_to_build_is_built_side_by_side(tmp_path):
    contestants = [Contestant(name, meeting, keeps_memory=False) for name in ("regard", "peer")]
    [results] = compete_in_each(contestants, [str(tmp_path)], rounds=1, precisions=["bfloat16"])
    assert [(one.contestant, one.precision) for one in results] == [("regard", "bfloat16"), ("peer", "bfloat16")]


def test_one_process_does_all_cases_of_a_contestant():
    cases = [(7, 11), (13, 17)]
    first, second = compete_in_each([Contestant("regard", counted, False)], cases, rounds=2, precisions=["float32"])
    assert (first[0].tokens, second[0].tokens) == (7, 13)
    assert first[0].parameters == second[0].parameters != os.getpid()
    assert len(second[0].timed.rounds) == 2


def test_the_peak_of_a_gpus_memory_stands_beside_what_took_it():
    [row] = compared("work", [Result("regard", "bfloat16", 3, 5, Timed("regard", (1.0,)), 7)])
    assert row["peak_bytes"] == 7
    [row] = compared("work", [result("regard", "bfloat16", (1.0,))])
    assert "peak_bytes" not in row


def result(name: str, precision: str, rounds: tuple[float, ...]) -> Result:
    return Result(name, precision, 300, 5, Timed(name, rounds))


def test_ratios_are_medians_over_regards_faster_one_and_over_its_own_in_that_precision():
    rows = list(
        compared(
            "work",
            [
                result("regard", "float32", (30.0, 20.0, 70.0)),
                result("regard", "bfloat16", (10.0, 90.0, 11.0)),
                result("peer", "float32", (22.0, 23.0, 1.0)),
                result("peer", "bfloat16", (44.0, 33.0, 50.0)),
            ],
        )
    )
    assert [row["milliseconds"] for row in rows] == [30.0, 11.0, 22.0, 44.0]
    assert [row["ratio"] for row in rows] == pytest.approx([30 / 11, 1.0, 2.0, 4.0], abs=1e-3)
    assert [row["same_precision"] for row in rows] == pytest.approx([1.0, 1.0, 22 / 30, 4.0], abs=1e-3)
    assert [row["faster"] for row in rows] == [False, True, True, False]
    assert [row["tokens_per_second"] for row in rows] == pytest.approx([10_000, 27_272.7, 13_636.4, 6_818.2], rel=1e-5)
    assert rows[0]["rounds"] == [30.0, 20.0, 70.0]

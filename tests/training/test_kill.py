"""`kill -9`, Ctrl-C and SIGTERM, in processes of their own: the resumed run equals an undisturbed one, bit for bit."""

import random
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import PATIENCE, arguments, assert_equal_folders, fork, newest_state, partials, start
from safetensors.torch import load_file

from regard.training.resume import available, read_progress

# As a person does it


def wait_for_a_state(process: subprocess.Popen[str], folder: Path, after: int) -> bool:
    """Whether a state beyond `after` came before the run ended."""
    deadline = time.monotonic() + PATIENCE
    while newest_state(folder) <= after:
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return False
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return True


def disturbed(given: list[str], folder: Path, signals: list[signal.Signals]) -> list[str] | None:
    """Start, interrupt, go on as the last line said …; the arguments to go on with, None if a run was over before."""
    for number, how in enumerate(signals):
        process = start(given)
        if not wait_for_a_state(process, folder, after=newest_state(folder) + 11 * number):
            return None
        process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            return None
        if how == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
            given = given if "--resume" in given else [*given, "--resume"]
            continue
        assert process.returncode == 128 + how
        assert "Traceback" not in said
        assert partials(folder) == []
        sentence, command = said.splitlines()[-1].split("; go on with: ")
        assert sentence == f"regard: stopped after step {newest_state(folder)}, which is saved in {folder}"
        given = shlex.split(command)[1:]
    return given


@pytest.mark.parametrize(
    ("precision", "signals"),
    [
        ("float32", [signal.SIGINT, signal.SIGKILL]),
        ("bfloat16", [signal.SIGKILL, signal.SIGTERM]),
    ],
    ids=["float32", "bfloat16"],
)
def test_a_run_stopped_by_signals_and_resumed_equals_an_undisturbed_one_bit_for_bit(tmp_path, precision, signals):
    for steps in (150, 600, 2400):  # a machine may be so fast, or so busy, that the run ends before the signal
        folder = tmp_path / f"stopped {steps}"  # a name that the shell would split
        changes = {"training.steps": steps, "training.precision": precision}
        again = disturbed(arguments(folder, changes), folder, signals)
        if again is not None:
            break
    assert again is not None
    assert again.count("--resume") == 1
    resumed, undisturbed = start(again), start(arguments(tmp_path / "whole", changes))
    for process in (resumed, undisturbed):
        printed, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert "holds the model; ask it with: regard run" in printed
    assert_equal_folders(folder, tmp_path / "whole")


# Many times over


FREQUENT = {
    "training.save_every": 1,
    "training.evaluate_every": 3,
    "training.keep": 4,
    "training.average": 3,
    "training.accumulate": 2,
}


def kill_at(moment: random.Random, kind: str, given: list[str], folder: Path, log: Path) -> bool:
    """Start or go on, and kill; whether it was in the middle of a save."""
    process = fork([*given, "--resume"], log)
    begun = newest_state(folder)
    if kind == "early":  # while the folder is being made
        time.sleep(moment.uniform(0.05, 0.3))
    else:
        further = moment.randrange(1, 7)
        deadline = time.monotonic() + PATIENCE
        while newest_state(folder) < begun + further or (kind == "saving" and not partials(folder)):
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(moment.uniform(0, 0.01) if kind == "later" else 0)
    process.kill()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL, log.read_text()
    return bool(partials(folder))


def assert_whole(folder: Path) -> None:
    """Whatever has its name is complete: nothing half-written can be loaded."""
    for _, state in available(folder):
        assert f"step-{read_progress(state).step}" == state.name
    for path in folder.glob("*.safetensors"):
        assert load_file(path)


def test_a_run_killed_at_twenty_moments_equals_an_undisturbed_one(tmp_path):
    """Early, between saves and inside them; every step saves, validates or averages, so that kills meet all of it."""
    changes = FREQUENT | {"training.steps": 120}
    moment = random.Random(20)
    kinds = ["early"] * 3 + ["saving", "later"] * 8 + ["saving"]
    folder, log = tmp_path / "killed", tmp_path / "log"
    inside = 0
    for kind in kinds:
        inside += kill_at(moment, kind, arguments(folder, changes), folder, log)
        assert_whole(folder)
    assert len(kinds) == 20
    assert inside >= 3, "kills that left a half-written folder behind"
    runs = [fork([*arguments(one, changes), "--resume"], log) for one in (folder, tmp_path / "whole")]
    for run in runs:
        run.join(PATIENCE)
        assert run.exitcode == 0, log.read_text()
    assert_equal_folders(folder, tmp_path / "whole")
    assert "Traceback" not in log.read_text()


def test_a_second_signal_stops_at_once_and_the_run_can_be_resumed(tmp_path):
    """Two signals in a row, wherever they meet it: 130 or 143, one sentence, no traceback; then on to the end."""
    changes = FREQUENT | {"training.steps": 60}
    folder, log = tmp_path / "run", tmp_path / "log"
    for number, how in enumerate((signal.SIGINT, signal.SIGTERM)):
        process = fork([*arguments(folder, changes), "--resume"], log)
        deadline = time.monotonic() + PATIENCE
        begun = newest_state(folder)
        while newest_state(folder) < begun + 5 + 7 * number:
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.001)
        for _ in range(2):
            subprocess.run(["kill", f"-{how.value}", str(process.pid)], check=True)
        process.join(PATIENCE)
        assert process.exitcode == 128 + how, log.read_text()
        assert_whole(folder)
    runs = [fork([*arguments(one, changes), "--resume"], log) for one in (folder, tmp_path / "whole")]
    for run in runs:
        run.join(PATIENCE)
        assert run.exitcode == 0, log.read_text()
    assert_equal_folders(folder, tmp_path / "whole")
    assert "Traceback" not in log.read_text()

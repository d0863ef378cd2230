"""A real `kill -9` and a real Ctrl-C, in processes of their own: the resumed run equals an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

TINY = {
    "data.options.held_out": 29,
    "tokenizer.size": 270,
    "tokenizer.sample": 53,
    "model.width": 16,
    "model.heads": 2,
    "model.layers": 1,
    "model.dropout": 0.2,
    "training.batch_tokens": 256,
    "training.warmup": 11,
    "training.label_smoothing": 0.1,
    "training.evaluate_every": 10,
    "training.save_every": 5,
}
PATIENCE = 120  # seconds; only ever reached if something hangs


def start(folder: Path, steps: int, precision: str, *, resume: bool = False) -> subprocess.Popen[str]:
    """`regard train copy …` as a person would start it, with Ctrl-C able to reach it."""
    changes = TINY | {"training.steps": steps, "training.precision": precision}
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "regard", "train", "copy", *settings, "--out", str(folder)]
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores Ctrl-C,
    try:  # and so would what it starts
        return subprocess.Popen(
            command + ["--resume"] * resume,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    finally:
        signal.signal(signal.SIGINT, ours)


def newest_state(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("state/step-*")), default=0)


def interrupt(process: subprocess.Popen[str], folder: Path, how: signal.Signals, after: int) -> str | None:
    """Send the signal once a state beyond `after` exists; what it said on stderr, or None if it ended before."""
    deadline = time.monotonic() + PATIENCE
    while newest_state(folder) <= after:
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(how)
    _, said = process.communicate(timeout=PATIENCE)
    return None if process.returncode == 0 else said


def finish(process: subprocess.Popen[str]) -> str:
    printed, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return printed


def disturbed(folder: Path, steps: int, precision: str, signals: list[signal.Signals]) -> bool:
    """Start, interrupt, resume, interrupt …; False if a run was over before its signal came."""
    for number, how in enumerate(signals):
        process = start(folder, steps, precision, resume=number > 0)
        said = interrupt(process, folder, how, after=newest_state(folder) + 11 * number)
        if said is None:
            return False
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert said.splitlines()[-1] == "regard: stopped; a training run goes on from its last state with --resume"
            assert "Traceback" not in said
            assert list(folder.rglob(".partial-*")) == []
        else:
            assert process.returncode == -signal.SIGKILL
    return True


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines]


@pytest.mark.parametrize(
    ("precision", "signals"),
    [("float32", [signal.SIGKILL, signal.SIGINT]), ("bfloat16", [signal.SIGKILL, signal.SIGKILL])],
    ids=["float32", "bfloat16"],
)
def test_a_killed_run_resumed_equals_an_undisturbed_one_bit_for_bit(tmp_path, precision, signals):
    steps = next(
        steps
        for steps in (150, 600, 2400)  # a machine may be so fast, or so busy, that the run ends before the signal
        if disturbed(tmp_path / f"killed-{steps}", steps, precision, signals)
    )
    killed, whole = tmp_path / f"killed-{steps}", tmp_path / "whole"
    resumed, undisturbed = start(killed, steps, precision, resume=True), start(whole, steps, precision)
    assert f"regard run {killed}" in finish(resumed)
    finish(undisturbed)
    last = f"state/step-{steps}"
    for name in ("model.safetensors", *(f"{last}/{part}.safetensors" for part in ("model", "optimizer", "random"))):
        one, other = load_file(killed / name), load_file(whole / name)
        assert one.keys() == other.keys()
        assert [key for key in one if not torch.equal(one[key], other[key])] == [], name
    assert metrics(killed) == metrics(whole)
    for name in (f"{last}/progress.json", "config.json", "tokenizer.json", "recipe.toml", "generation_config.json"):
        assert (killed / name).read_text() == (whole / name).read_text(), name
    assert list(killed.rglob(".partial-*")) == []
    assert sorted(path.relative_to(killed) for path in killed.rglob("*")) == sorted(
        path.relative_to(whole) for path in whole.rglob("*")
    )

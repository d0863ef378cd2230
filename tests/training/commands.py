"""`regard train` in processes of its own, as a person starts it or, many times over, forked from one that is ready."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

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


def arguments(folder: Path, changes: dict[str, object]) -> list[str]:
    settings = [part for key, value in (TINY | changes).items() for part in ("--set", f"{key}={value}")]
    return ["train", "copy", *settings, "--out", str(folder)]


def start(given: list[str]) -> subprocess.Popen[str]:
    """`regard …` with Ctrl-C able to reach it."""
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores Ctrl-C,
    try:  # and so would what it starts
        return subprocess.Popen(
            [sys.executable, "-m", "regard", *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, found)


def fork(given: list[str], log: Path) -> BaseProcess:
    """`regard …` in a child of a server that has loaded everything: it begins at once."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["regard.api", "regard.cli.app", "regard.training.progress", "torch._dynamo"])
    process = server.Process(target=_child, args=(given, str(log)))
    process.start()
    return process


def _child(given: list[str], log: str) -> None:
    from regard.cli.app import main
    from regard.data import stream

    stream.POOL = 64  # a pool is prepared at every start
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = ["regard", *given]
    main()


def newest_state(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("state/step-*")), default=0)


def partials(folder: Path) -> list[str]:
    """What is half-written, also while a run is at work on it."""
    listed = [name for one in (folder, folder / "state") if one.is_dir() for name in os.listdir(one)]
    return [name for name in listed if name.startswith(".partial-")]


def metrics(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines]


def assert_equal_folders(one: Path, other: Path) -> None:
    """The same files, byte for byte but for the speeds in metrics.jsonl, and none of them half-written."""
    assert partials(one) == [], partials(one)
    files = [
        sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) for folder in (one, other)
    ]
    assert files[0] == files[1], set(files[0]) ^ set(files[1])
    for path in files[0]:
        if path.name != "metrics.jsonl":
            assert (one / path).read_bytes() == (other / path).read_bytes(), path
        if path.suffix == ".safetensors":
            assert load_file(one / path)
    assert metrics(one) == metrics(other)

"""A full disk, a real one of 600 kB: one sentence, and the last good state goes on once there is room."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import PATIENCE, arguments, assert_equal_folders, newest_state, partials

from regard.training.resume import available, latest, read_progress

CHANGES = {"training.steps": 30, "training.keep": 4, "training.average": 2}
TIGHT = 600_000  # room for the folder's own files and a few states


@dataclass
class SmallDisk:
    """A folder with little room, and how to give it more; `limit` for where no file system can be made."""

    folder: Path
    grow: Callable[[], object]
    limit: int | None = None


def _tmpfs(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return shutil.which("mount") is not None and subprocess.call(command) == 0


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    """A tmpfs where we may mount one; else a limit on the size of files, which gives another error number."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _tmpfs(folder, f"size={TIGHT}"):
        yield SmallDisk(folder, lambda: None, limit=100_000)
        return
    try:
        yield SmallDisk(folder, lambda: _tmpfs(folder, "remount,size=64m"))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def train(folder: Path, *more: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments(folder, CHANGES), *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=restrict,
        check=False,
    )


def test_a_full_disk_ends_the_run_in_a_sentence_and_the_last_good_state_goes_on(tmp_path, disk):
    run = disk.folder / "run"
    full = train(run, limit=disk.limit)
    assert full.returncode == 1, full.stderr
    sentence = full.stderr.splitlines()[-1]
    reason = "No space left on device" if disk.limit is None else "File too large"
    assert f"regard: {run} cannot be written to: {reason}; make room there, then go on" in sentence
    assert "Traceback" not in full.stderr
    assert partials(run) == []
    for _, state in available(run):
        read_progress(state)
    if disk.limit is None:
        last = newest_state(run)
        assert last > 0
        assert sentence.endswith(f"; make room there, then go on after step {last} with --resume")
        assert latest(run).step == last
        again = train(run, "--resume")
        assert again.returncode == 1, "still no room"
        assert again.stderr.count("cannot be written to") == 1
        assert latest(run).step >= last, "what was there is still there"
    disk.grow()
    resumed, whole = train(run, "--resume"), train(tmp_path / "whole")
    assert (resumed.returncode, whole.returncode) == (0, 0), resumed.stderr
    assert_equal_folders(run, tmp_path / "whole")

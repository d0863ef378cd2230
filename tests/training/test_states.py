"""The states of a run: one that is damaged, in whatever place, is named and the one before it used; what is kept."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import Ear, assert_same_run, climb, real, states

from regard.errors import FileError
from regard.training.resume import Progress, alone, available, drop_old_states, latest

FILES = ("model.safetensors", "optimizer.safetensors", "random.safetensors", "progress.json")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(name: str, place: float) -> Callable[[Path], object]:
    """MaskedLMTransform one bit at this fraction of the file: of the header, or of the numbers."""

    def damage(state: Path) -> None:
        content = bytearray((state / name).read_bytes())
        content[int(place * len(content))] ^= 4
        (state / name).write_bytes(content)

    return damage


DAMAGE = {
    "weights cut": lambda state: cut(state / "model.safetensors"),
    "optimizer cut": lambda state: cut(state / "optimizer.safetensors"),
    "random state missing": lambda state: (state / "random.safetensors").unlink(),
    "random state of another kind": lambda state: shutil.copy(
        state / "model.safetensors", state / "random.safetensors"
    ),
    "optimizer of another kind": lambda state: shutil.copy(
        state / "model.safetensors", state / "optimizer.safetensors"
    ),
    **{f"one bit of {name} at {place}": flip(name, place) for name in FILES for place in (0.1, 0.6, 0.999)},
    "progress cut": lambda state: cut(state / "progress.json"),
    "progress without position": lambda state: (state / "progress.json").write_text('{"step": 9, "best": 1.0}'),
    "progress of another kind": lambda state: (state / "progress.json").write_text(
        '{"step": 9, "best": 1.0, "position": {"page": 3}}'
    ),
    "all files missing": lambda state: [file.unlink() for file in state.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_named_and_the_one_before_it_used(tmp_path, undisturbed, damage):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    DAMAGE[damage](folder / "state" / "step-9")
    ear = Ear()
    real(folder, listener=ear, seed=11).fit()
    assert str(folder / "state" / "step-9") in ear.said[0]
    assert "falling back to the state before it" in ear.said[0]
    assert ear.said[1:] == ["resuming after step 6"]
    assert [report.step for report in ear.reports] == [7, 8, 9]
    assert_same_run(folder, undisturbed)


def test_if_all_states_are_damaged_the_run_is_refused_and_nothing_is_touched(tmp_path, undisturbed):
    """Starting again would overwrite the best model, the one good thing left."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    for state in (folder / "state").iterdir():
        DAMAGE["random state of another kind"](state)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ear = Ear()
    with pytest.raises(FileError, match=r"none of the 3 states in .* is whole; .* remove that folder to start again"):
        real(folder, listener=ear).fit()
    assert len(ear.said) == 3
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(folder / "state")  # the remedy
    real(folder).fit()
    assert_same_run(folder, undisturbed)


def test_a_damaged_state_is_never_kept_in_place_of_a_good_one(tmp_path, undisturbed):
    """After the fall back to 6, step 7 is saved; with `keep=1` the damaged 9 must not push it out."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    DAMAGE["weights cut"](folder / "state" / "step-9")
    real(folder, keep=1, save_every=1, seed=11).fit(until=7)
    ear = Ear()
    real(folder, keep=1, save_every=1, seed=12, listener=ear).fit()
    assert ear.said[-1] == "resuming after step 7"
    assert states(folder) == ["step-9"]
    assert_same_run(folder, undisturbed)


def test_a_folder_that_is_no_state_is_left_alone(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.move(folder / "state" / "step-9", folder / "state" / "step-9-copy")
    real(folder, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert (folder / "state" / "step-9-copy" / "model.safetensors").is_file()


@pytest.mark.parametrize("key", ["best", "worse", "position"])
def test_a_progress_that_is_valid_and_not_what_was_written_is_damaged(tmp_path, undisturbed, key):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    path = folder / "state" / "step-9" / "progress.json"
    values = json.loads(path.read_text())
    values[key] = {"pool": 5, "batch": 2} if key == "position" else values[key] + 1
    path.write_text(json.dumps(values))
    assert latest(folder).step == 6


def test_an_older_state_that_is_damaged_is_not_looked_at(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(folder / "state" / "step-9")
    DAMAGE["weights cut"](folder / "state" / "step-3")
    ear = Ear()
    real(folder, seed=11, listener=ear).fit()
    assert ear.said == ["resuming after step 6"]
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize(
    ("keep", "step", "kept"),
    [
        (1, 13, [10, 13]),
        (2, 13, [5, 10, 13]),
        (2, 10, [5, 10, 13]),
        (1, 10, [10, 13]),
        (3, 5, [5, 10, 13]),
        (9, 13, [5, 10, 13]),
    ],
)
def test_of_the_regular_states_the_newest_are_kept_and_of_the_others_the_last(tmp_path, keep, step, kept):
    """Regular here: every fifth step. Later states than the present one are not touched."""
    for number in (3, 4, 5, 10, 13):
        (tmp_path / "state" / f"step-{number}").mkdir(parents=True)
    drop_old_states(tmp_path, step, keep, lambda number: number % 5 == 0)
    assert sorted(number for number, _ in available(tmp_path)) == kept


def test_two_runs_never_share_a_folder(tmp_path, undisturbed):
    """The second would remove what the first is writing."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(folder / "state" / "step-9")
    half = folder / "state" / ".partial-7-step-9"
    half.mkdir()
    with alone(folder), pytest.raises(FileError, match=r"another process is training in .*run; wait for its end"):
        real(folder, seed=11).fit()
    assert half.is_dir()
    real(folder, seed=11).fit()
    assert_same_run(folder, undisturbed)


def test_the_latest_progress_is_that_of_the_newest_whole_state(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    assert latest(folder).step == 9
    DAMAGE["weights cut"](folder / "state" / "step-9")
    assert latest(folder).step == 6
    assert latest(tmp_path) == Progress()


def test_every_file_of_a_state_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """And so are the lines of metrics.jsonl up to it: a power cut leaves the last complete state and its lines."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name.split("-", 2)[-1])
        fsync(handle)

    def renamed(one: Path, other: Path) -> None:
        done.append(f"→ {Path(other).name}")
        replace(one, other)

    run = climb(tmp_path, steps=1)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    run.fit()
    named = done.index("→ step-1")
    assert {*FILES, "metrics.jsonl", "step-1"} <= set(done[:named])
    assert done[named + 1] == "state", "the folder that holds the new name"
    assert "→ model.safetensors" in done[:named]
    assert json.loads((tmp_path / "state" / "step-1" / "progress.json").read_text())["step"] == 1

"""A crash leaves the last complete file: `writing` is all or nothing, for files and for folders."""

import json
import os
import resource
from pathlib import Path

import pytest
import torch

from regard.errors import FileError
from regard.files import PARTIAL, read_json, write_json, write_text, writing
from regard.models.checkpoint import load_tensors, save_tensors


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(PARTIAL)]


def fail_while_writing(path: Path, failure: BaseException, inside: str = "") -> None:
    """Half of a file, or of the folder that holds a file `inside`; then the failure."""
    with writing(path) as partial:
        if inside:
            partial.mkdir()
        (partial / inside).write_text("half of it")
        raise failure


@pytest.mark.parametrize("failure", [RuntimeError("power"), KeyboardInterrupt(), OSError(28, "No space left")])
def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "kept.txt"
    write_text(path, "before")
    with pytest.raises((type(failure), FileError)):
        fail_while_writing(path, failure)
    assert [one.name for one in tmp_path.iterdir()] == ["kept.txt"]
    assert path.read_text() == "before"


def test_a_failure_while_writing_a_new_file_leaves_none(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fail_while_writing(tmp_path / "new.txt", ZeroDivisionError())
    assert list(tmp_path.iterdir()) == []


def test_a_failure_while_writing_a_folder_leaves_the_old_folder_whole(tmp_path):
    path = tmp_path / "state"
    path.mkdir()
    (path / "a").write_text("before")
    with pytest.raises(ZeroDivisionError):
        fail_while_writing(path, ZeroDivisionError(), inside="a")
    assert [(one.name, one.read_text()) for one in path.iterdir()] == [("a", "before")]
    assert partials(tmp_path) == []


def test_until_the_block_ends_readers_see_the_old_content_and_then_all_of_the_new(tmp_path):
    path = tmp_path / "file"
    write_text(path, "before")
    with writing(path) as partial:
        partial.write_text("after")
        assert path.read_text() == "before"
        assert partial.parent == path.parent, "a rename is atomic within one folder alone"
        assert partial.name.startswith(PARTIAL)
    assert path.read_text() == "after"
    assert partials(tmp_path) == []


def test_a_folder_takes_the_place_of_an_older_one_whole(tmp_path):
    path = tmp_path / "state"
    for name in ("first", "second"):
        with writing(path) as partial:
            partial.mkdir()
            write_json(partial / f"{name}.json", {"name": name})
    assert [one.name for one in path.iterdir()] == ["second.json"]
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("inside", ["", "a"], ids=["file", "folder"])
def test_everything_is_on_the_disk_before_the_rename_and_the_rename_after_it(tmp_path, monkeypatch, inside):
    done: list[str] = []

    def noted(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name.removeprefix(f"{PARTIAL}{os.getpid()}-"))

    replace = os.replace
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", lambda one, other: (done.append("rename"), replace(one, other)))
    with writing(tmp_path / "new") as partial:
        if inside:
            partial.mkdir()
        (partial / inside).write_text("whole")
    assert done == [*([inside] if inside else []), "new", "rename", tmp_path.name]


def test_what_else_is_in_the_folder_is_left_alone(tmp_path):
    """A pipe nobody writes to would hold up whoever opens it."""
    os.mkfifo(tmp_path / "pipe")
    write_text(tmp_path / "new", "text")
    assert (tmp_path / "new").read_text() == "text"


def test_missing_folders_above_are_made(tmp_path):
    write_text(tmp_path / "one" / "two" / "file", "é\n")
    assert (tmp_path / "one" / "two" / "file").read_bytes() == "é\n".encode()


def test_a_folder_that_is_made_is_on_the_disk_too(tmp_path, monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.readlink(f"/proc/self/fd/{handle}")))
    write_text(tmp_path / "one" / "two" / "file", "text")
    assert done[:2] == [str(tmp_path), str(tmp_path / "one")], "the folders that hold the new names"
    assert done[-1] == str(tmp_path / "one" / "two")


@pytest.mark.parametrize("below", ["x", "x/y", "x/y/z"])
def test_a_path_below_a_regular_file_is_refused_in_a_sentence(tmp_path, below):
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(FileError, match=r"cannot be written: (Not a directory|File exists); choose a folder"):
        write_text(file / below, "lost")
    assert file.read_text() == "kept"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_failure_inside_a_folder_is_said_once(tmp_path):
    def write_below_a_file(path: Path) -> None:
        with writing(path) as partial:
            partial.mkdir()
            write_text(partial / "a", "a file")
            write_text(partial / "a" / "b", "lost")

    with pytest.raises(FileError) as caught:
        write_below_a_file(tmp_path / "state")
    assert str(caught.value).count("cannot be written") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_overwritten_by_a_file(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileError, match="taken cannot be written"):
        write_text(tmp_path / "taken", "text")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_a_full_disk_while_tensors_are_written_leaves_the_old_ones(tmp_path):
    """A limit on the size of files stands for the full disk; SIGXFSZ is ignored by Python."""
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"a": torch.arange(3.0)})
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1009, old[1]))
    try:
        with pytest.raises(FileError, match=r"model\.safetensors cannot be written.*room"):
            save_tensors(path, {"a": torch.zeros(10_007)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert torch.equal(load_tensors(path)["a"], torch.arange(3.0))


def test_json_comes_back_as_it_was_written(tmp_path):
    value = {"name": "März", "numbers": [2, 3.5, None, True], "nested": {"a": "\u2028\n"}}
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json", "unused") == value
    assert json.loads((tmp_path / "value.json").read_text(encoding="utf-8")) == value


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "is damaged"),
        (b'{"a": 1', "is damaged"),
        (b'{"a": "\xff"}', "is damaged"),
        (b"[1, 2]", "holds list, not an object"),
        (b"3", "holds int, not an object"),
    ],
)
def test_json_that_cannot_be_read_is_named_with_the_remedy(tmp_path, content, said):
    path = tmp_path / "value.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=said) as caught:
        read_json(path, "copy it again")
    assert str(path) in caught.value.problem
    assert caught.value.remedy == "copy it again"

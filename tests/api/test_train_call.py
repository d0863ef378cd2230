"""`regard.train` as Python calls it: a path, a dictionary of changes, and progress where somebody looks on."""

import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import regard
from regard.api.training import _listed
from regard.data import stream
from regard.errors import ConfigError, FileError, InputError
from regard.tasks.recipe import read_recipe
from regard.training.interrupt import at_keyboard
from regard.training.progress import interactive
from regard.training.reports import Silent

CHANGES = {
    "data.options": {"first_year": 1990, "last_year": 1999},
    "tokenizer": {"size": 300, "sample": 101},
    "model.width": 16,
    "model": {"heads": 2, "layers": 1, "feedforward_width": 11},
    "training": {"steps": 2, "batch_tokens": 256, "warmup": 1, "evaluate_every": 2, "save_every": 2},
}


def test_a_dictionary_says_what_a_list_of_changes_says(tmp_path):
    given = {"training": {"steps": 10, "learning_rate": 1e-4}, "data.train": "10", "model.bias": False}
    given |= {"data.valid": ["a.txt", "b\\c.txt"], "data.folder": Path("über uns")}
    assert _listed(given) == [
        "training.steps=10",
        "training.learning_rate=0.0001",
        'data.train="10"',
        "model.bias=false",
        'data.valid=["a.txt", "b\\\\c.txt"]',
        'data.folder="über uns"',
    ]
    read = read_recipe("translation", [one for one in _listed(given) if "options" not in one])
    assert (read.training.steps, read.data.train, read.model.bias) == (10, "10", False)
    assert read.data.valid == ("a.txt", "b\\c.txt")


def test_a_path_a_dictionary_and_progress_are_taken(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stream, "POOL", 64)
    recipe = tmp_path / "mine.toml"
    recipe.write_text('data = "dates"\n', encoding="utf-8")
    model = regard.train(recipe, tmp_path / "run", changes=CHANGES, progress=True)
    assert (model.module.config.width, model.recipe.training.steps) == (16, 2)
    said = capsys.readouterr().err
    assert "step      2" in said
    assert f"{tmp_path / 'run'} keeps everything" in said
    assert "Ctrl-C saves and stops" in said
    again = regard.train(model.recipe, tmp_path / "run", resume=True, changes={"training.steps": 3})
    assert again.recipe.training.steps == 3
    assert capsys.readouterr().err == ""  # nobody looks on
    with pytest.raises(FileError, match=r"is not empty; add `resume=True` to go on with it, or choose another `out`"):
        regard.train(recipe, tmp_path / "run", changes=CHANGES)
    with pytest.raises(ConfigError, match="'stesp' is unknown; did you mean 'steps'"):
        regard.train(recipe, tmp_path / "other", changes={"training": {"stesp": 3}})


class Pressing(Silent):
    """Presses Ctrl-C when a step is reported, so that the next one is under way."""

    def __init__(self, at: int, times: int = 1) -> None:
        self.at, self.times, self.steps = at, times, []

    def __call__(self, report):
        self.steps.append(report.step)
        for _ in range(self.times if report.step == self.at else 0):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_saves_the_step_under_way_and_a_resumed_training_ends_as_an_undisturbed_one(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(stream, "POOL", 64)
    changes = {**CHANGES, "training.steps": 5, "training.save_every": 5}
    folder, pressing = tmp_path / "stopped", Pressing(2)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 3, which is saved in .*stopped; `resume=True`"):
        regard.train("dates", folder, changes=changes, listener=pressing)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "once more to stop at once" in capfd.readouterr().err
    going_on = Pressing(0)
    found = regard.train("dates", folder, changes=changes, resume=True, listener=going_on)
    assert (pressing.steps, going_on.steps) == ([1, 2, 3], [4, 5])
    expected = regard.train("dates", tmp_path / "whole", changes=changes)
    for name, tensor in expected.module.state_dict().items():
        assert torch.equal(found.module.state_dict()[name], tensor), name


def test_a_second_ctrl_c_stops_python_at_once_and_the_process_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "POOL", 64)
    with pytest.raises(KeyboardInterrupt):
        regard.train("dates", tmp_path, changes={**CHANGES, "training.steps": 5}, listener=Pressing(3, times=2))
    assert not (tmp_path / "state" / "step-4").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_listens_to_ctrl_c_itself_and_other_threads_are_left_alone():
    with at_keyboard() as heard:
        assert heard is not None
        with at_keyboard() as inner:
            assert inner is None
    found = []

    def work() -> None:
        with at_keyboard() as one:
            found.append(one)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]


def test_one_change_that_is_no_list_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"give a list, such as \['training\.steps=3'\]"):
        regard.train("dates", tmp_path, changes="training.steps=3")


def test_somebody_looks_on_at_a_terminal_and_in_a_notebook(monkeypatch):
    assert not interactive()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not interactive()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert interactive()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    assert interactive()

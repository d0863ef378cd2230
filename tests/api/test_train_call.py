"""`regard.train` as Python calls it: a path, a dictionary of changes, and progress where somebody looks on."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import regard
from regard.api.training import _listed
from regard.data import stream
from regard.errors import ConfigError, FileError, InputError
from regard.tasks.recipe import read_recipe
from regard.training.progress import interactive

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
    assert "Ctrl-C" not in said  # which Python's own handler hears
    again = regard.train(model.recipe, tmp_path / "run", resume=True, changes={"training.steps": 3})
    assert again.recipe.training.steps == 3
    assert capsys.readouterr().err == ""  # nobody looks on
    with pytest.raises(FileError, match=r"is not empty; add `resume=True` to go on with it, or choose another `out`"):
        regard.train(recipe, tmp_path / "run", changes=CHANGES)
    with pytest.raises(ConfigError, match="'stesp' is unknown; did you mean 'steps'"):
        regard.train(recipe, tmp_path / "other", changes={"training": {"stesp": 3}})


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

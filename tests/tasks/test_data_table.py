"""The table [data]: a corpus or files, where files are, and what cannot be meant."""

from pathlib import Path

import pytest

import regard
from regard.data.corpus import Pair
from regard.data.sources import PairList
from regard.errors import ConfigError, FileError
from regard.tasks.pairs import open_corpus
from regard.tasks.recipe import DataTable, Recipe, read_recipe
from regard.tasks.task import held_out
from regard.tasks.translation import train_tokenizer
from regard.text.tokenizer import Tokenizer

TINY = ["training.steps=2", "training.batch_tokens=64", "model.width=12", "model.heads=2", "model.layers=1"]
TINY += ["model.feedforward_width=7", "decoding.max_new_tokens=5", "tokenizer.size=260"]


def table(**values: object) -> DataTable:
    return Recipe.model_validate({"data": values}).data


def files(folder: Path) -> Path:
    """Two parallel files for train and valid, one for test, and a recipe beside them with nothing but their names."""
    folder.mkdir()
    for name, lines in (("t.en", "ace"), ("t.de", "ACE"), ("v.en", "bd"), ("v.de", "BD")):
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "test.jsonl").write_text('{"source": "f", "target": "F"}\n')
    recipe = '[data]\ntrain = ["t.en", "t.de"]\nvalid = ["v.en", "v.de"]\ntest = "test.jsonl"\n'
    (folder / "mine.toml").write_text(recipe)
    return folder


# Where files are


def test_relative_paths_begin_at_the_folder_named_and_else_here(tmp_path, monkeypatch):
    folder = files(tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in (str(folder), "../data", "../data/../data/"):
        corpus = open_corpus(read_recipe(str(folder / "mine.toml"), [f"data.folder={name}"]).data)
        assert held_out(corpus, "valid") == [Pair("b", "B"), Pair("d", "D")]
    monkeypatch.chdir(folder)
    assert held_out(open_corpus(read_recipe("mine.toml").data), "test") == [Pair("f", "F")]


def test_an_absolute_path_and_a_home_are_where_they_say(tmp_path, monkeypatch):
    folder = files(tmp_path / "data")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    for name in (str(folder / "test.jsonl"), "~/test.jsonl"):
        data = table(train=name, valid=name, folder="/nowhere")
        assert held_out(open_corpus(data), "valid") == [Pair("f", "F")]
    assert table(train="test.jsonl", valid="test.jsonl", folder="~").folder == str(folder)


def test_a_recipe_written_out_means_the_same_files_from_any_folder(tmp_path, monkeypatch):
    folder = files(tmp_path / "data")
    monkeypatch.chdir(folder)
    recipe = read_recipe("mine.toml")
    (tmp_path / "written.toml").write_text(recipe.toml())
    monkeypatch.chdir(tmp_path)
    again = read_recipe("written.toml")
    assert again == recipe
    assert held_out(open_corpus(again.data), "train") == [Pair("a", "A"), Pair("c", "C"), Pair("e", "E")]
    assert again.data.train == ("t.en", "t.de")
    assert again.data.folder == str(folder)


def test_a_model_trained_in_one_folder_is_evaluated_from_another(tmp_path, monkeypatch):
    folder = files(tmp_path / "data")
    monkeypatch.chdir(folder)
    regard.train("mine.toml", tmp_path / "model", changes=TINY)
    monkeypatch.chdir("/")
    model = regard.load(tmp_path / "model")
    pairs = held_out(open_corpus(model.recipe.data, ["test"]), "test")
    assert pairs == [Pair("f", "F")]
    assert model.evaluate(pairs).keys() >= {"exact_match"}


def test_only_the_splits_asked_for_are_read(tmp_path):
    folder = files(tmp_path / "data")
    data = read_recipe(str(folder / "mine.toml"), [f"data.folder={folder}"]).data
    (folder / "t.en").unlink()
    assert held_out(open_corpus(data, ["test"]), "test") == [Pair("f", "F")]
    with pytest.raises(FileError, match=r"t\.en does not exist"):
        open_corpus(data)


def test_a_file_that_is_not_there_is_named_as_one_would_write_it_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, name in (("data", "data/none.tsv"), (str(tmp_path), "none.tsv"), ("/nowhere", "/nowhere/none.tsv")):
        with pytest.raises(FileError) as caught:
            open_corpus(table(train="none.tsv", valid="none.tsv", folder=folder))
        assert caught.value.problem == f"{name} does not exist"
        advice = 'check the path, or name the folder of the data with `changes={"data.folder": FOLDER}`'
        assert caught.value.remedy == advice


# What a table may say


def test_a_string_in_place_of_data_is_a_corpus(tmp_path):
    (tmp_path / "mine.toml").write_text('data = "sort"\n')
    recipe = read_recipe(str(tmp_path / "mine.toml"))
    assert (recipe.data.corpus, recipe.data.folder) == ("sort", None)
    changed = read_recipe(str(tmp_path / "mine.toml"), ["data.options.symbols=7"])
    assert (changed.data.corpus, changed.data.options) == ("sort", {"symbols": 7})
    assert read_recipe("dates", ["data=copy"]).data == table(corpus="copy")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"train": 5, "valid": "v"}, "train = 5 cannot be used; give a file, or two as [SOURCE, TARGET], in quotes"),
        ({"train": "t", "valid": True}, "valid = True cannot be used; give a file"),
        ({"train": "t", "valid": ""}, "valid = '' cannot be used; give a file"),
        ({"train": ["a", "b", "c"], "valid": "v"}, "train = ['a', 'b', 'c'] cannot be used; give a file"),
        ({"train": ["a", 5], "valid": "v"}, "train = ['a', 5] cannot be used"),
        ({"train": [], "valid": "v"}, "train = [] cannot be used"),
        ({"train": {"source": "a"}, "valid": "v"}, "train = {'source': 'a'} cannot be used"),
        ({"train": "t", "valid": "v", "folder": 5}, "folder = 5 cannot be used (where relative paths begin"),
        ({"train": "t", "valid": "v", "format": "xls"}, "format = 'xls' cannot be used"),
        ({"train": "t", "columns": {"source": 1.5}}, "columns = {'source': 1.5} cannot be used; write them as"),
        ({"train": "t", "columns": "source"}, "columns = 'source' cannot be used; write them as"),
        ({"train": "t", "valid": "v", "fromat": "tsv"}, "key 'fromat' is unknown; did you mean 'format'"),
        ({"corpus": "copy", "test": "t"}, "test has no effect with the built-in corpus 'copy'; leave test or corpus"),
        ({"corpus": "copy", "valid": "t"}, "valid has no effect"),
        ({"corpus": "copy", "folder": "/tmp"}, "folder has no effect"),
        ({"corpus": "copy", "format": "tsv"}, "format has no effect"),
        ({"corpus": 5}, "corpus = 5 cannot be used (a built-in corpus"),
        ({"test": "t"}, "it has files to measure on and none to train on; add train"),
    ],
)
def test_what_a_table_cannot_say_is_refused_with_its_name_and_key(values, said):
    with pytest.raises(ConfigError) as caught:
        table(**values)
    assert str(caught.value).startswith(f"[data] {said}")


@pytest.mark.parametrize("value", [5, ["copy"], True])
def test_data_that_are_no_table_are_refused(value):
    with pytest.raises(ConfigError, match=r"where a table is wanted"):
        Recipe.model_validate({"data": value})


def test_every_table_is_named_in_its_errors():
    for change, name in (
        ("model.heads=7", "model"),
        ("training.steps=0", "training"),
        ("decoding.beams=2", "decoding"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_recipe("copy", [change])
        assert str(caught.value).startswith(f"[{name}] ")


def test_documents_are_no_pairs(tmp_path):
    with pytest.raises(ConfigError, match=r"\[data\] format 'text' has documents and task 'translation' needs pairs"):
        open_corpus(table(train="t", valid="v", format="text"))


def test_one_file_in_a_list_is_that_file():
    assert table(train=["t"], valid=["v"]).train == "t"


def test_a_tokenizer_learns_from_a_line_of_a_megabyte_at_once():
    word = "".join(chr(ord("a") + index * index % 23) for index in range(2**20))
    short = PairList([Pair("to be or not to be", "two bees")] * 2)
    long = PairList([*short.train, Pair(word, "y")])
    assert train_tokenizer(long, 280, 10).size == 280
    assert train_tokenizer(short, 270, 10) == Tokenizer.train([text for pair in short.train for text in pair], 270)

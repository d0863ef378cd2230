"""Recipes: what a TOML file may say, how `--set` changes it, and that every shipped one trains."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.api.exploring.examples import example
from regard.data.corpus import CORPORA
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import ConfigError, FileError
from regard.tasks.decoding_table import BEAM_OPTIONS, OPTIONS, SAMPLE_OPTIONS, DecodingTable
from regard.tasks.pairs import open_corpus
from regard.tasks.recipe import Recipe, read_recipe, shipped
from regard.tasks.task import held_out, task_of
from regard.tasks.translation import train_tokenizer

every_recipe = pytest.mark.parametrize("name", sorted(shipped()))


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# Shipped recipes


PAIRED = ("translation", "summarisation")
WORDS = ("one", "two", "three", "four", "five", "six", "seven")


def with_data(name: str, folder: Path) -> list[str]:
    """The changes a shipped recipe needs to have data: none for a corpus, else small files of the names it gives."""
    recipe = read_recipe(name)
    if recipe.data is not None and recipe.data.corpus is not None:
        return []
    folder.mkdir(exist_ok=True)
    named = (recipe.data.train, recipe.data.valid, recipe.data.test) if recipe.data is not None else (None,) * 3
    missing = named[0] is None
    words = WORDS if missing or named[1] else WORDS * 2  # enough to hold some out
    for files in (("own.a", "own.b") if recipe.task.name in PAIRED else "own.txt",) if missing else named:
        for side, file in enumerate([files] if isinstance(files, str) else files or ()):
            lines = [CONTENT[recipe.task.name](word[:: 1 - 2 * side]) for word in words]
            whole = "".join(f"{line}\n" for line in lines)
            (folder / file).write_text(SQUAD if recipe.task.name == "question_answering" else whole)
    begun = [] if recipe.model.begins_in is None else [f"model.from={small_encoder(folder / 'begun')}"]
    if not missing:
        return [f"data.folder={folder}", *begun]
    both = json.dumps(files if isinstance(files, str) else list(files))
    return [f"data.folder={folder}", f"data.train={both}", f"data.valid={both}"]


def small_encoder(folder: Path) -> Path:
    """A folder for recipes that begin in one."""
    small = ["training.steps=1", "training.batch_tokens=256", "model.width=12", "model.heads=2", "model.layers=1"]
    regard.train("masked", folder, changes=[*small, "data.window=23", *with_data("masked", folder.parent / "text")])
    return folder


QUESTION = {"id": "1", "answers": [{"text": "is", "answer_start": 3}]}
CONTENT = {
    "translation": lambda word: f"{word} {word}",
    "language_modelling": lambda word: f"{word} {word} is {word}.",
    "masked": lambda word: f"{word} {word} is {word}.\n",
    "denoising": lambda word: f"{word} {word} is {word}.\n",
    "classification": lambda word: f"{len(word) % 2} {word} is {word}.",
    "question_answering": str,
    "chat": lambda word: json.dumps(
        {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word[::-1]}]}
    ),
    "summarisation": lambda word: f"{word} {word}",
}
"""What stands on a line of a task's file."""


SQUAD = json.dumps(
    {
        "data": [
            {"paragraphs": [{"context": f"it is {word}.", "qas": [QUESTION | {"question": f"what is {word}?"}]}]}
            for word in WORDS
        ]
    }
)


def questions(recipe: Recipe) -> list[str]:
    """Three texts that a model of this recipe may be asked."""
    data = task_of(recipe.task).open(recipe)
    texts = [example[0] for example in held_out(data, "test", 3) or held_out(data, "valid", 3)]
    if recipe.task.name == "question_answering":
        return [f"{text}\tone is one." for text in texts]
    if recipe.task.name in ("language_modelling", "masked", "denoising", "summarisation"):
        texts = [text[:1000] for text in texts]
    if recipe.task.name == "chat":
        return [messages[0].content for messages in texts]
    hidden = {"masked": "[MASK]", "denoising": "<extra_id_0>"}.get(recipe.task.name)
    return texts if hidden is None else [text.replace("is", hidden) for text in texts]


@every_recipe
def test_a_shipped_recipe_reads_and_its_data_exist(name, tmp_path):
    recipe = read_recipe(name, with_data(name, tmp_path / "data"))
    task = task_of(recipe.task)
    if recipe.model.begins_in is None:
        task.check_shape(recipe.model)
    asked = SimpleNamespace(
        module=None, tokenizer=None, task=task, decoding=recipe.decoding, data=recipe.data, draft=None
    )
    task.check(asked, questions(recipe)[0])
    assert shipped()[name].endswith(".")


TINY = ["training.steps=2", "training.batch_tokens=256", "tokenizer.sample=53", "model.width=12"]
TINY += ["training.compile=false"]
WINDOWS = {"chat": 151}
"""Of tasks that refuse what does not fit, in place of cutting it."""


def made_tiny(name: str, folder: Path) -> list[str]:
    """The changes that let a shipped recipe train in a moment."""
    recipe = read_recipe(name)
    fixed = ("model.width", "tokenizer") if recipe.model.begins_in else ()
    tiny = (
        [*TINY]
        if recipe.data is None or recipe.data.window is None
        else [*TINY, f"data.window={WINDOWS.get(recipe.task.name, 23)}"]
    )
    tiny += ["model.heads=2"] if "heads" in type(recipe.model).model_fields else []
    tiny += ["decoding.max_new_tokens=5"] if recipe.task.writes else []
    known = None if recipe.data is None else recipe.data.corpus
    options = {field.name for field in dataclasses.fields(CORPORA[known])} if known else set()
    small = {"held_out": 31, "first_year": 1990, "last_year": 2009, "length": 61, "queries": 11}
    tiny += [f"data.options.{key}={value}" for key, value in small.items() if key in options]
    tiny += ['data.options.only=["json", "html", "wsgiref", "venv"]'] if "only" in options else []
    tiny += ["training.snapshots=[0]"] if recipe.training.snapshots else []
    tiny += with_data(name, folder / "data")
    tiny += ["model.adapter.rank=2"] if getattr(recipe.model, "adapter", None) else []
    return [change for change in tiny if not change.startswith(fixed)] if fixed else tiny


@pytest.mark.slow
@every_recipe
def test_the_doctor_finds_nothing_in_a_model_of_a_shipped_recipe(name, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.stream.POOL", 64)
    regard.train(name, tmp_path / "run", changes=[*made_tiny(name, tmp_path), "training.steps=20"])
    found = regard.doctor(tmp_path / "run")
    assert found.healthy, str(found)


@every_recipe
def test_a_shipped_recipe_trains_and_its_model_runs(name, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.stream.POOL", 64)
    recipe, tiny = read_recipe(name), made_tiny(name, tmp_path)
    trained = regard.train(name, tmp_path / "run", changes=tiny)
    loaded = regard.load(tmp_path / "run")
    asked = read_recipe(name, tiny)
    if recipe.model.begins_in is not None:  # the kind of the folder's tokenizer is found there
        asked = asked.model_copy(update={"tokenizer": loaded.recipe.tokenizer})
    assert trained.recipe == loaded.recipe == asked
    texts = questions(loaded.recipe)
    assert loaded.run(texts) == trained.run(texts)
    assert loaded.look(example(loaded)).layers  # what the explorer begins with
    if loaded.recipe.decoding.strategy != "sample" and isinstance(loaded.run(texts[0]), str):
        assert [loaded.run(text) for text in texts] == loaded.run(texts)
    figures = loaded.evaluate(held_out(loaded.task.open(loaded.recipe), "valid", 5))
    assert figures
    assert all(math.isfinite(value) for value in figures.values())


def test_a_recipe_for_files_asks_for_their_folder_or_for_the_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {"folder": set(), "files": set()}
    for name in shipped():
        recipe = read_recipe(name)
        if recipe.data is None or (recipe.data.train is None and recipe.data.corpus is None):
            asked["files"].add(name)
            said = r"the recipe has no data of its own; give your files: `data=\[\"\w+\.\w+"
        elif recipe.data.corpus is None:
            asked["folder"].add(name)
            said = r"does not exist; .*changes=.*data\.folder.*FOLDER"
        else:
            continue
        with pytest.raises((FileError, ConfigError), match=said):
            task_of(recipe.task).open(recipe)
    assert asked["files"] >= {"translation", "classify", "gpt", "masked"}
    assert asked["folder"] >= {"multi30k-en-de", "sst"}


@every_recipe
def test_a_recipe_written_out_reads_the_same(name, tmp_path):
    recipe = read_recipe(name)
    assert read_recipe(written(tmp_path, recipe.toml())) == recipe


# Round trip

paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
sources = st.one_of(paths, st.tuples(paths, paths))


@given(
    train=sources,
    valid=sources,
    clip=st.floats(min_value=0, exclude_min=True, allow_nan=False),
    rate=st.floats(1e-9, 1),
)
def test_any_recipe_written_out_reads_the_same(tmp_path_factory, train, valid, clip, rate):
    """File names of any characters, and the largest and smallest numbers, infinity too."""
    recipe = Recipe.model_validate(
        {"data": {"train": train, "valid": valid}, "training": {"clip": clip, "learning_rate": rate}}
    )
    assert read_recipe(written(tmp_path_factory.getbasetemp(), recipe.toml())) == recipe


def test_a_corpus_with_options_written_out_reads_the_same(tmp_path):
    recipe = read_recipe(
        "dates", ['data.options.languages=["en", "fr"]', "data.options.seed=3", "model.tie_embeddings=false"]
    )
    again = read_recipe(written(tmp_path, recipe.toml()))
    assert again == recipe
    assert again.data.options == {"languages": ["en", "fr"], "seed": 3}
    assert again.model.tie_embeddings is False


# Forms and changes


def test_a_string_in_place_of_a_table_is_its_name(tmp_path):
    short = read_recipe(written(tmp_path, 'task = "translation"\nmodel = "transformer"\ndata = {corpus = "copy"}\n'))
    long = '[task]\nname = "translation"\n[model]\nname = "transformer"\n[data]\ncorpus = "copy"\n'
    assert short == read_recipe(written(tmp_path, long))
    changed = read_recipe(written(tmp_path, 'model = "transformer"\n[data]\ncorpus = "copy"\n'), ["model.width=64"])
    assert (changed.model.name, changed.model.width) == ("transformer", 64)


@pytest.mark.parametrize(
    ("change", "table", "key", "value"),
    [
        ("training.steps=7", "training", "steps", 7),
        ("training.learning_rate=5e-4", "training", "learning_rate", 5e-4),
        ("training.clip=0.5", "training", "clip", 0.5),
        ("model.tie_embeddings=false", "model", "tie_embeddings", False),
        ("model.positions=rotary", "model", "positions", "rotary"),
        ('model.positions="rotary"', "model", "positions", "rotary"),
        (" training.seed = 5 ", "training", "seed", 5),
        ("data.corpus=sort", "data", "corpus", "sort"),
        ("data.options.seed=5", "data", "options", {"seed": 5}),
        ("data.options={seed = 5, symbols = 3}", "data", "options", {"seed": 5, "symbols": 3}),
    ],
)
def test_a_change_is_toml_and_else_a_plain_string(change, table, key, value):
    assert getattr(getattr(read_recipe("copy", [change]), table), key) == value


def test_changes_apply_in_order():
    changes = [
        "training.steps=3",
        "model.width=8",
        "training.steps=5",
        "data.options.seed=2",
        "data.options={symbols=7}",
    ]
    recipe = read_recipe("copy", changes)
    assert (recipe.training.steps, recipe.model.width, recipe.data.options) == (5, 8, {"symbols": 7})
    untouched = read_recipe("copy")
    assert recipe.training.learning_rate == untouched.training.learning_rate


@pytest.mark.parametrize("change", ["training.steps", "=3", "training..steps=3", ".steps=3", "training.=3", "", "="])
def test_a_change_of_another_form_is_refused_with_an_example(change):
    with pytest.raises(
        ConfigError, match=r"is not a change; write it as table\.key=value, such as training\.steps=100"
    ):
        read_recipe("copy", [change])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("trainig.steps=3", "key 'trainig' is unknown; did you mean 'training'"),
        ("steps=3", "key 'steps' is unknown; known: data, decoding, model, task, tokenizer, training"),
        ("task.nam=translation", "key 'nam' is unknown; did you mean 'name'"),
        ("data.corpsu=copy", "key 'corpsu' is unknown; did you mean 'corpus'"),
        ("tokenizer.sise=300", "key 'sise' is unknown; did you mean 'size'"),
        ("model.widht=8", "key 'widht' is unknown; did you mean 'width'"),
        ("training.step=3", "key 'step' is unknown; did you mean 'steps'"),
        ("decoding.beam=3", "key 'beam' is unknown; did you mean 'beams'"),
        ("training.steps.more=3", "goes inside 'steps', which is not a table"),
        ("model=bahdanaw", "[model] network 'bahdanaw' is unknown"),
        ("task=translaton", "[task] task 'translaton' is unknown; did you mean 'translation'?"),
        ("model=5", "5 is one value where a table is wanted"),
        ("training.steps=many", "steps = 'many' cannot be used"),
        ("training.optimizer.betas=[0.9, 1.5]", "1.5 cannot be used"),
        ("training.seed=-1", "seed = -1 cannot be used"),
        ("training.seed=99999999999999999999", "seed = 99999999999999999999 cannot be used"),
        ("training.precision=float16", "it should be"),
    ],
)
def test_what_a_recipe_cannot_say_is_refused_with_the_nearest(change, said):
    with pytest.raises(ConfigError) as caught:
        read_recipe("copy", [change])
    assert said in str(caught.value)


def test_a_recipe_that_cannot_be_found_or_read_is_named(tmp_path):
    with pytest.raises(FileError, match="there is no recipe 'coppy'; did you mean 'copy'"):
        read_recipe("coppy")
    with pytest.raises(FileError, match=r"there is no recipe '.*none\.toml'"):
        read_recipe(str(tmp_path / "none.toml"))
    with pytest.raises(FileError, match=r"mine\.toml is not valid TOML: .*line 2"):
        read_recipe(written(tmp_path, "[data]\ncorpus = \n"))
    (tmp_path / "latin.toml").write_bytes(b'model = "\xe9"')
    with pytest.raises(FileError, match=r"latin\.toml cannot be read"):
        read_recipe(str(tmp_path / "latin.toml"))


# Data


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('corpus = "copy"\ntrain = "a.tsv"', "a corpus and files to train on are two sources"),
        ('train = "a.tsv"\nvalid = "b.tsv"\nsplit = 0.5', "two ways to say what to validate on"),
        ('train = "a.tsv"\nvalid = "b.tsv"\nseed = 1', "seed has no effect where valid says"),
        ('train = "a.tsv"\ncolumns = {txt = "a"}', "columns.txt is no part of an example of task 'translation'"),
        ('valid = "a.tsv"', "it has files to measure on and none to train on"),
        ('train = "a.tsv"\nvalid = "b.tsv"\noptions = {seed = 1}', "belong to a built-in corpus"),
        ('train = ["a", "b", "c"]\nvalid = "b.tsv"', "cannot be used"),
    ],
)
def test_data_come_from_a_corpus_or_from_files(tmp_path, table, said):
    with pytest.raises(ConfigError, match=said):
        read_recipe(written(tmp_path, f"[data]\n{table}\n"))


def test_the_users_own_files_are_the_corpus(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tA\nb\tB\nc\tC\n")
    for name, text in (("source", "d\ne\n"), ("target", "D\nE\n")):
        (tmp_path / name).write_text(text)
    recipe = Recipe.model_validate(
        {"data": {"train": str(tmp_path / "train.tsv"), "valid": [str(tmp_path / "source"), str(tmp_path / "target")]}}
    )
    corpus = open_corpus(recipe.data)
    assert [corpus.size(split) for split in ("train", "valid", "test")] == [3, 2, 0]
    assert held_out(corpus, "valid") == [("d", "D"), ("e", "E")]
    assert held_out(corpus, "valid", 1) == [("d", "D")]
    assert train_tokenizer(corpus, 300, 1000).decode(train_tokenizer(corpus, 300, 1000).encode("a")) == "a"


# Decoding


@pytest.mark.parametrize(
    ("values", "strategy"),
    [
        ({}, Greedy()),
        ({"strategy": "beam"}, Beam(5, 1.0)),
        ({"strategy": "beam", "beams": 3, "length_penalty": 0.0}, Beam(3, 0.0)),
        ({"strategy": "sample"}, Sample()),
        (
            {"strategy": "sample", "temperature": 0.5, "top_k": 7, "top_p": 0.25, "seed": 11},
            Sample(temperature=0.5, top_k=7, top_p=0.25, seed=11),
        ),
    ],
)
def test_a_decoding_table_is_its_strategy(values, strategy):
    assert DecodingTable.model_validate(values).chosen() == strategy


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
@pytest.mark.parametrize("option", [*BEAM_OPTIONS, *SAMPLE_OPTIONS])
def test_a_decoding_option_without_effect_is_refused(strategy, option):
    owners = [name for name, options in OPTIONS.items() if option in options]
    values = {"strategy": strategy, option: 2 if option == "beam_groups" else 1}
    if strategy in owners:
        values |= {"diversity_penalty": 0.5, "beams": 4} if option == "beam_groups" else {}
        assert getattr(DecodingTable.model_validate(values), option) == values[option]
        return
    with pytest.raises(ConfigError) as caught:
        DecodingTable.model_validate(values)
    assert str(caught.value) == (
        f"{option} has no effect with strategy '{strategy}'; "
        f"use strategy {' or '.join(map(repr, owners))} or leave {option} out"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"strategy": "beam", "beams": 0},
        {"strategy": "sample", "temperature": 0},
        {"strategy": "sample", "top_k": 0},
        {"strategy": "sample", "top_p": 0},
        {"strategy": "sample", "top_p": 1.5},
        {"strategy": "sample", "seed": 2**64},
        {"max_new_tokens": 0},
        {"strategy": "best"},
    ],
)
def test_an_impossible_decoding_option_is_refused(values):
    with pytest.raises(ConfigError, match="cannot be used"):
        DecodingTable.model_validate(values)

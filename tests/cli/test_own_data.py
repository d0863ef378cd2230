"""`regard train RECIPE --data FILE…`: a user's own files and nothing else; what cannot be trained is one sentence."""

import csv
import gzip
import json
import shutil
import tomllib
from pathlib import Path

import pytest

import regard
from regard.attention.mechanism import MECHANISMS
from regard.metrics.ngrams import BagOfNgrams
from regard.tasks.keys import keys
from regard.tasks.recipe import names_of, read_recipe, tables
from regard.training.optimizer_table import OPTIMIZERS

TINY = ["training.steps=2", "training.batch_tokens=256", "training.warmup=1", "training.compile=false"]
TINY += ["model.width=12", "model.heads=2", "model.layers=1", "model.feedforward_width=7"]
SHORT = "decoding.max_new_tokens=3"
SIZE = "tokenizer.size=300"
WORDS = [f"{first}{second}" for first in ("fine", "dull", "great", "poor", "odd") for second in ("", "ly", "ish", "er")]
BOOK = "\n".join(f"It was so {word} that all of it was {word} again." for word in WORDS) + "\n"


def settings(*changes: str) -> list[str]:
    return [part for change in (*TINY, SIZE, *changes) for part in ("--set", change)]


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def parallel() -> tuple[str, str]:
    return write("en.txt", "".join(f"{word}\n" for word in WORDS)), write(
        "fr.txt", "".join(f"le {word}\n" for word in WORDS)
    )


def reviews(name: str = "reviews.csv") -> str:
    lines = [f"{number},so {word} it is,{'good' if number % 3 else 'bad'}\n" for number, word in enumerate(WORDS)]
    return write(name, "id,review,sentiment\n" + "".join(lines))


def questions() -> str:
    records = [{"question": f"how {word}?", "context": f"it is {word}.", "answer": word} for word in WORDS]
    return write("asked.jsonl", "".join(json.dumps(record) + "\n" for record in records))


# One command and one's own files


@pytest.mark.parametrize(
    ("recipe", "files", "changes", "said"),
    [
        ("translation", parallel, [SHORT], ["20 examples: 16 to train on, 4 held out (seed 0)"]),
        (
            "classify",
            lambda: (reviews(),),
            ["data.window=64", "model.max_positions=64"],
            ["reviews.csv: column 'review' is the text, column 'sentiment' the label", "2 labels: good ("],
        ),
        ("gpt", lambda: (write("book.txt", BOOK),), ["data.window=11", SHORT], ["characters: ", " held out"]),
        ("masked", lambda: (write("book.txt.gz", gzip.compress(BOOK.encode())),), ["data.window=11"], [" held out"]),
        (
            "denoising",
            lambda: (write("book.txt", BOOK),),
            ["data.window=11", "tokenizer.size=400", SHORT],
            [" held out"],
        ),
        ("squad", lambda: (questions(),), ["data.window=23"], ["20 examples: 16 to train on, 4 held out (seed 0)"]),
    ],
)
def test_a_recipe_trains_on_files_and_measures_on_what_was_held_out(call, recipe, files, changes, said):
    answer = call("train", recipe, "--data", *files(), *settings(*changes), "--out", "new")
    assert answer.code == 0, answer.err
    for part in said:
        assert part in answer.err
    measured = call("evaluate", "new", "--json")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["data"].endswith("(valid)")


def test_without_test_data_the_validation_file_is_measured_and_named(call):
    write("t.tsv", "".join(f"word {number}\tWort {number}\n" for number in range(7)))
    write("v.tsv", "word 1\tWort 1\nword 2\tWort 2\n")
    answer = call("train", "translation", *settings("data.train=t.tsv", "data.valid=v.tsv"), "--out", "new")
    assert answer.code == 0, answer.err
    measured, named = call("evaluate", "new", "--json"), call("evaluate", "new", "v.tsv", "--json")
    assert measured.code == 0, measured.err
    found, expected = json.loads(measured.out), json.loads(named.out)
    assert (found["data"], found["examples"]) == ("v.tsv (valid)", 2)
    assert found["metrics"] == expected["metrics"]


def test_what_was_found_in_a_table_is_kept_for_files_to_come(call):
    lines = [f"{'good' if number % 3 else 'bad'}\tso {word} it is\n" for number, word in enumerate(WORDS)]
    answer = call("train", "classify", *settings(), "--data", write("a.tsv", "".join(lines)), "--out", "new")
    assert "a.tsv: column 2 is the text, column 1 the label" in answer.err
    assert regard.load("new").recipe.data.columns == {"text": "2", "label": "1"}
    write("one.tsv", lines[0])
    assert json.loads(call("evaluate", "new", "one.tsv", "--json").out)["examples"] == 1


def test_a_classifier_is_measured_beside_a_bag_of_ngrams_of_what_it_was_trained_on(call):
    assert call("train", "classify", *settings(), "--data", reviews(), "--out", "new").code == 0
    rows = list(csv.DictReader(Path(reviews("new.csv")).read_text().splitlines()))
    held = {pair.source for pair in regard.load("new").task.open(regard.load("new").recipe, ["valid"]).valid}
    texts, labels = [row["review"] for row in rows], [row["sentiment"] for row in rows]
    train = [(text, label) for text, label in zip(texts, labels, strict=True) if text not in held]
    assert len(train) == 16
    expected = BagOfNgrams(*zip(*train, strict=True)).accuracy(texts, labels)
    assert json.loads(call("evaluate", "new", "new.csv", "--json").out)["bag_of_ngrams"] == expected
    assert f"same training texts: accuracy  {expected:.4f}" in call("evaluate", "new", "new.csv").out
    Path("reviews.csv").unlink()
    assert "bag_of_ngrams" not in json.loads(call("evaluate", "new", "new.csv", "--json").out)


def test_own_files_take_the_place_of_all_the_recipes_data_and_may_have_others_beside_them(call):
    own = write("a.tsv", "".join(f"{word}\tle {word}\n" for word in WORDS))
    assert read_recipe("dates", data=[own]).data.model_dump(exclude_defaults=True).keys() == {"train", "folder"}
    beside = read_recipe("sst", ["data.valid=v.tsv", "data.columns.text=2", "data.columns.label=1"], [own]).data
    assert (beside.train, beside.valid, beside.test, beside.window) == ("a.tsv", "v.tsv", None, 64)
    assert (beside.format, beside.divided) == ("auto", False)
    assert read_recipe("gpt", data=["book.txt"]).data.format == "whole", "as the recipe says"
    assert read_recipe("gpt", data=["book.jsonl"]).data.format == "auto", "as the file says"


def test_a_key_without_a_value_goes_back_to_its_default(call):
    assert read_recipe("multi30k-en-de", ["data.valid=", "data.folder=/x"]).data.divided
    assert read_recipe("dates", ["training.warmup="]).training.warmup == 400
    assert read_recipe("sst", ["data.columns.text="]).data.columns == {}
    for change, said in (("data.vald=", "[data] key 'vald' is unknown; did you mean 'valid'"), ("dat.x=", "key 'dat'")):
        assert said in call("train", "dates", "--set", change).err


# What cannot be trained on


BAD = {
    "unequal files": (
        "translation",
        {"a": "x\n" * 20, "b": "y\n" * 19},
        "a has 20 lines and b has 19; make line N of one",
    ),
    "an empty file": ("translation", {"a": "x\n" * 20, "b": ""}, "b is empty; give a file with some text in it"),
    "an empty table": ("classify", {"a.csv": ""}, "a.csv is empty"),
    "a folder": ("gpt", {"folder": None}, "folder is a folder, not a file; give the path of a text file"),
    "no file": ("gpt", {}, "none.txt does not exist; check the path"),
    "a picture": ("classify", {"a.csv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"}, "a.csv, line 1 is not UTF-8 (byte 0x89)"),
    "NUL": ("gpt", {"a.txt": b"to be\0or not\n" * 50}, "a.txt, line 1 holds a NUL, which no text has"),
    "Latin-1": ("classify", {"a.csv": "text,label\ncaf\xe9,x\n".encode("latin-1")}, "a.csv, line 2 is not UTF-8"),
    "a spreadsheet": ("classify", {"a.xlsx": b"PK\x03\x04"}, "a.xlsx is a spreadsheet; save it as CSV"),
    "Parquet": ("translation", {"a.tsv": b"PAR1\x15\x04"}, "a.tsv is a damaged Parquet file"),
    "one label": ("classify", {"a.csv": "text,label\n" + "x,y\nz,y\n" * 10}, "training examples has the label 'y'"),
    "few examples": (
        "translation",
        {"a.tsv": "x\ty\n" * 9},
        "9 examples are too few to hold some out; give 10 or more",
    ),
    "a short text": ("gpt", {"a.txt": "to be\n"}, "a text of 6 characters is too short to hold some of it out"),
    "no such columns": ("classify", {"a.csv": "a,b,c\n1,2,3\n"}, "has the columns 'a', 'b', 'c', and which are text"),
    "two names": ("classify", {"a.csv": "text,label,label\n1,2,3\n"}, "two columns of the name 'label'; give every"),
    "two files for one": ("gpt", {"a": "x\n", "b": "y\n"}, "are two files where task 'language_modelling' reads one"),
    "three files": (
        "translation",
        {"a": "x\n", "b": "y\n", "c": "z\n"},
        "3 files are given as data; give one file, or",
    ),
    "all alike": ("translation", {"a.tsv": "x\ty\n" * 30}, "nothing can be held out of 30 examples that begin alike"),
    "no data at all": (
        "classify",
        None,
        "no data of its own; give your files: --data reviews.csv (columns",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_files_that_cannot_be_trained_on_are_one_sentence_with_a_remedy(call, kind):
    recipe, files, said = BAD[kind]
    for name, content in (files or {}).items():
        Path(name).mkdir() if content is None else write(name, content)
    given = () if files is None else ("--data", *(files or ["none.txt"]))
    answer = call("train", recipe, *given, "--out", "out")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1, answer.err
    assert said in answer.err
    problem, _, remedy = answer.err.partition("; ")
    assert problem.startswith("regard: ")
    assert remedy.strip()
    assert not Path("out").exists()


# --show


def test_show_prints_a_recipe_that_reads_the_same_and_what_training_takes_and_writes_nothing(call):
    write("own.csv", Path(reviews()).read_text())
    before = sorted(Path().iterdir())
    answer = call("train", "classify", "--data", "own.csv", *settings(), "--show")
    assert (answer.code, answer.err) == (0, "")
    assert sorted(Path().iterdir()) == before
    write("shown.toml", answer.out)
    shown = read_recipe("shown.toml")
    expected = read_recipe("classify", [*TINY, SIZE], ["own.csv"])
    assert shown.data.columns == {"text": "review", "label": "sentiment"}
    assert shown.model_copy(update={"data": None}) == expected.model_copy(update={"data": None})
    for table in tables():
        for name, field in type(getattr(shown, table)).model_fields.items():
            assert f"{field.description}" in answer.out, f"{table}.{name}"
    record = json.loads(call("train", "classify", "--data", "own.csv", *settings(), "--show", "--json").out)
    trained = call("train", "classify", "--data", "own.csv", *settings(), "--out", "new")
    assert trained.code == 0, trained.err
    module = regard.load("new").module
    assert record["parameters"] == sum(one.numel() for one in module.parameters())
    assert f"{record['parameters']:,} parameters" in answer.out
    assert (record["train_examples"], record["valid_examples"], record["labels"]) == (16, 4, ["bad", "good"])
    assert record["seconds"] >= 2 * record["seconds_per_step"] > 0
    assert record["steps_per_epoch"] >= 1


def test_show_refuses_what_would_have_no_effect(call):
    assert "--out has no effect with --show" in call("train", "dates", "--show", "--out", "x").err
    assert "--resume has no effect with --show" in call("train", "dates", "--show", "--resume").err


# list keys


def test_every_key_of_every_table_is_listed_with_type_default_and_meaning(call):
    record = json.loads(call("list", "keys", "--json").out)["keys"]
    members = {
        table if len(classes) == 1 else f"{table}: {one.model_fields['name'].default}": one
        for table, classes in tables().items()
        for one in classes
    }
    inside = {
        f"model: transformer.attention: {name}" for name, shape in MECHANISMS.items() if len(shape.model_fields) > 1
    }
    inside |= {f"training.optimizer: {name}" for name in OPTIMIZERS}
    inside |= {"model: transformer.rotary", "model: transformer.attention: exact.rotary", "model: checkpoint.adapter"}
    assert record.keys() == {*members, *inside}
    for table, model in members.items():
        inner = {name[len(table) + 1 :].partition(":")[0] for name in record if name.startswith(f"{table}.")}
        hidden = {name for name, field in model.model_fields.items() if field.exclude}
        assert record[table].keys() | inner | hidden == {*names_of(model)}
    assert all(key["meaning"] and key["kind"] for table in record.values() for key in table.values())
    assert record["training"]["steps"] == {"kind": "whole number", "default": 2000, "meaning": "optimizer steps"}
    plain = call("list", "keys", "training").out
    assert plain.startswith("[training]\nsteps = 2000  (whole number)\n    optimizer steps\n")
    titles = [line for line in plain.splitlines() if line.startswith("[")]
    assert titles == ["[training]", *(f"[training.optimizer: {name}]" for name in OPTIMIZERS)]
    own = [key for key in keys("training") if key.table == "training" and key.default is not None]
    defaults = "\n".join(f"{key.name} = {key.shown}" for key in own)
    assert read_recipe(write("defaults.toml", f"[training]\n{defaults}")) == read_recipe(write("none.toml", ""))
    assert "a recipe has no table 'trainin'; did you mean 'training'" in call("list", "keys", "trainin").err
    assert "'training' has no effect on a list of recipes" in call("list", "recipes", "training").err


# --resume


def test_a_run_goes_on_by_its_folder_alone_and_a_recipe_need_not_be_told_everything_again(call, monkeypatch):
    assert call("train", "translation", "--data", *parallel(), *settings(), "--out", "new").code == 0
    elsewhere = Path.cwd() / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree("new", elsewhere / "new")
    told = call("train", "translation", "--out", "new", "--resume")
    assert "new is finished after step 2" in told.err, "neither --set nor --data again"
    monkeypatch.chdir(elsewhere)
    answer = call("train", "--resume", "--out", "new", "--set", "training.steps=3")
    assert answer.code == 0, answer.err
    assert "training.steps is now 3, was 2" in answer.err
    assert tomllib.loads(Path("new/recipe.toml").read_text())["training"]["steps"] == 3
    assert "differs in training.seed" in call("train", "--resume", "--out", "new", "--set", "training.seed=3").err


def test_only_a_run_can_be_resumed(call):
    Path("empty").mkdir()
    for folder, said in (("empty", "empty is no run that can be resumed"), ("none", "none does not exist")):
        answer = call("train", "--resume", "--out", folder)
        assert (answer.code, answer.err.count("\n")) == (1, 1)
        assert said in answer.err
    assert "--resume needs the folder of a run; give it with --out" in call("train", "--resume").err
    assert call("train").code == 2

"""A language model: what it is measured by, what it goes on with, and what it cannot be made of."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.batching import Inputs, Padded
from regard.data.splits import TextDocument, hold_out_documents
from regard.decoding.strategies import Sample
from regard.errors import ConfigError, FileError, InputError, LengthWarning
from regard.tasks.recipe import Recipe
from regard.tasks.task import TASKS, Measuring, held_out, task_of
from regard.tasks.task_table import TASK_TABLES

LINES = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n\n"
TEXT = LINES * 5
WINDOW = 13


def recipe(folder: Path, **changes: dict[str, object]) -> Recipe:
    values = {
        "task": {"name": "language_modelling"},
        "data": {"train": "text.txt", "format": "whole", "split": 0.8, "window": WINDOW, "folder": str(folder)},
        "tokenizer": {"kind": "characters"},
        "model": {
            "architecture": "decoder",
            "width": 12,
            "heads": 2,
            "layers": 1,
            "positions": "rotary",
            "dropout": 0.2,
        },
        "training": {"steps": 6, "batch_tokens": 131, "warmup": 1, "evaluate_every": 3, "save_every": 3},
        "decoding": {"max_new_tokens": 5},
    }
    return Recipe.model_validate({table: given | changes.get(table, {}) for table, given in values.items()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("language_modelling")
    (found / "text.txt").write_text(TEXT)
    return found


@pytest.fixture(scope="module")
def model(folder) -> regard.Model:
    return regard.train(recipe(folder), folder / "run")


def test_every_task_has_the_name_recipes_know():
    assert set(TASKS) == set(TASK_TABLES)
    assert all(name == task().name for name, task in TASKS.items())


@torch.no_grad()
def test_the_figures_are_their_formulas_over_every_token_of_the_text(model):
    """Windows one by one, each read alone, and each −log p added up in float64; a whole file has no end mark."""
    ids = [model.tokenizer.bos_id, *model.tokenizer.encode(TEXT)]
    total = 0.0
    for first in range(0, len(ids) - 1, WINDOW):
        read, wanted = ids[first : first + WINDOW], ids[first + 1 : first + WINDOW + 1]
        likely = model.module(Inputs(Padded.of([read[: len(wanted)]])))[0].double().log_softmax(-1)
        total -= float(likely[range(len(wanted)), wanted].sum())
    found = model.evaluate([TextDocument(TEXT)])
    assert found["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / len(TEXT.encode()), rel=1e-5)


def test_documents_are_measured_as_if_each_stood_alone(model):
    """Three texts of 6, 7 and 9 tokens with their ends, in one window."""
    model = replace(model, recipe=recipe(Path("."), data={"format": "text"}))
    short = [TextDocument("to be"), TextDocument("or not"), TextDocument("question")]
    alone = [model.evaluate([one])["loss"] * (len(one.text) + 1) for one in short]
    together = model.evaluate(short, Measuring(window=64))["loss"] * sum(len(one.text) + 1 for one in short)
    assert together == pytest.approx(sum(alone), rel=1e-5)


@torch.no_grad()
def test_with_a_stride_every_token_is_predicted_once_from_the_first_window_that_reaches_it(model):
    ids, stride, total = [model.tokenizer.bos_id, *model.tokenizer.encode(TEXT[:53])], 5, 0.0
    for place in range(1, len(ids)):
        first = max(0, -(-(place - WINDOW) // stride)) * stride
        total -= float(model.module(Inputs(Padded.of([ids[first:place]])))[0, -1].double().log_softmax(-1)[ids[place]])
    found = model.evaluate([TextDocument(TEXT[:53])], Measuring(stride=stride))
    assert found["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert model.task.reading(model) == {"window": WINDOW, "stride": WINDOW}
    with pytest.raises(InputError, match="a stride of 14 leaves out tokens between windows of 13; use 1 to 13"):
        model.evaluate([TextDocument(TEXT[:53])], Measuring(stride=14))


def test_a_text_longer_than_the_window_goes_on_from_its_last_half(model, folder):
    assert model.module.config.trained_length == WINDOW
    assert json.loads((folder / "run" / "config.json").read_text())["trained_length"] == WINDOW
    with pytest.warns(LengthWarning, match="a text of 41 tokens is longer than the 13 .* it goes on from the last 6"):
        long = model.run(TEXT[:40], max_new_tokens=3)
    bare = replace(model, task=task_of(recipe(Path("."), task={"begin": "none"}).task))
    assert long == bare.run(TEXT[34:40], max_new_tokens=3)


def test_the_validation_loss_of_training_is_what_evaluate_gives(model, folder):
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    best = min(line["validation_loss"] for line in lines if "validation_loss" in line)
    documents = held_out(TASKS["language_modelling"]().open(model.recipe), "valid")
    assert documents == [TextDocument(TEXT[int(0.8 * len(TEXT)) :])]
    assert model.evaluate(documents)["loss"] == pytest.approx(best, rel=1e-6)


def test_the_answer_is_the_continuation_alone_and_the_most_likely_one(model):
    text = "To be"
    ids = [model.tokenizer.bos_id, *model.tokenizer.encode(text)]
    for _ in range(5):
        with torch.no_grad():
            ids.append(int(model.module(Inputs(Padded.of([ids])))[0, -1].argmax()))
        if ids[-1] == model.tokenizer.eos_id:
            break
    written = model.tokenizer.decode(ids[1 + len(text) :])
    assert model.run(text) == written
    assert model.run([text, "or not to be, that"])[0] == written
    assert "".join(model.run(text, stream=True)) == written
    assert model.run("\n", strategy=Sample(seed=3)) == model.run("\n", strategy=Sample(seed=3))


def test_without_a_mark_texts_begin_bare(model):
    bare = replace(model, task=task_of(recipe(Path("."), task={"begin": "none"}).task))
    assert bare.writer.prompt(bare, ["To"]).tokens.ids.tolist() == [model.tokenizer.encode("To")]
    marked = model.writer.prompt(model, ["To"]).tokens.ids.tolist()
    assert marked == [[model.tokenizer.bos_id, *model.tokenizer.encode("To")]]


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(folder, model):
    half = recipe(folder, training={"steps": 3})
    regard.train(half, folder / "half")
    (folder / "half" / "recipe.toml").write_text(model.recipe.toml())
    regard.train(model.recipe, folder / "half", resume=True)
    one, other = (load_file(folder / name / "state" / "step-6" / "model.safetensors") for name in ("run", "half"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_documents_of_a_text_file_and_of_jsonl_are_the_same(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n")
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo"}\n{"text": "three"}\n')
    for name in ("a.txt", "a.jsonl"):
        table = {"train": name, "valid": name, "format": "auto", "split": None}
        data = TASKS["language_modelling"]().open(recipe(tmp_path, data=table))
        assert list(data.train) == list(data.valid) == [TextDocument("one\ntwo"), TextDocument("three")]


def test_a_share_divides_one_text_by_characters_and_several_by_their_number():
    assert hold_out_documents([TextDocument("abcdefghij")], 0.9, 0) == (
        [TextDocument("abcdefghi")],
        [TextDocument("j")],
    )
    several = [TextDocument(one) for one in "abcde"]
    assert hold_out_documents(several, 0.7, 0) == (several[:3], several[3:])
    with pytest.raises(ConfigError, match=r"split = 0\.9 of 1 characters leaves none to train on"):
        hold_out_documents([TextDocument("a")], 0.9, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model": {"architecture": "encoder_decoder"}},
            "cannot do task 'language_modelling': it reads a source, .* use model.architecture=decoder",
        ),
        (
            {"model": {"head": "none"}},
            "cannot do task 'language_modelling': it writes no text; use model.architecture=decoder",
        ),
        (
            {"model": {"positions": "learned", "max_positions": 7}},
            "a window of 13 tokens reaches further than the 7 positions",
        ),
        (
            {"data": {"window": 500}, "training": {"batch_tokens": 999}},
            "has 345 tokens and a window takes 501",
        ),
        ({"training": {"batch_tokens": 12}}, "a window fills 13 tokens and a batch holds 12"),
        ({"data": {"train": ["text.txt", "text.txt"]}}, "are two files where task 'language_modelling' reads one"),
        ({"data": {"format": "tsv"}}, "format 'tsv' has pairs and no documents"),
        ({"data": {"train": "none.txt"}}, r"none.txt does not exist; check the path, or name the folder of the data"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_nothing_is_written(folder, tmp_path, changes, said):
    (folder / "text.txt").write_text(TEXT)
    with pytest.raises((ConfigError, FileError), match=said):
        regard.train(recipe(folder, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"task": {"bleu": "none"}},
            r"\[task\] key 'bleu' has no effect on 'language_modelling'; leave it out; it is for transl",
        ),
        ({"data": {"batches": "packed"}}, r"\[data\] batches has no effect on task 'language_modelling'"),
        ({"task": {"name": "translation"}}, r"\[data\] window has no effect on task 'translation'"),
        ({"data": {"valid": "v.txt"}}, "valid and split are two ways"),
        ({"data": {"split": 1.0}}, r"split = 1\.0 cannot be used"),
    ],
)
def test_keys_without_a_meaning_are_refused(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        recipe(tmp_path, **changes)


def test_bad_questions_are_answered_in_one_sentence(model):
    with pytest.raises(InputError, match="the text is empty; give its beginning"):
        model.run("")
    with pytest.raises(InputError, match="there is no text to measure on"):
        model.evaluate([])
    with pytest.raises(ConfigError, match=r"the recipe has no data of its own; give your files: `data=\[\"book\.txt"):
        TASKS["language_modelling"]().open(Recipe.model_validate({"task": "language_modelling"}))
    with pytest.raises(ConfigError, match=r"corpus 'copy' has pairs of texts, .*, and no running text"):
        TASKS["language_modelling"]().open(Recipe.model_validate({"task": "language_modelling", "data": "copy"}))


def test_a_recipe_without_data_is_written_and_read(tmp_path):
    bare = Recipe.model_validate({"task": "language_modelling", "model": {"architecture": "decoder"}})
    (tmp_path / "bare.toml").write_text(bare.toml())
    assert Recipe.model_validate(regard.tasks.recipe.read_recipe(str(tmp_path / "bare.toml"))) == bare

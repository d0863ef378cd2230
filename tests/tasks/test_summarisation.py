"""Summaries of a user's own texts: columns by name, what is cut, what is measured and what it stands beside."""

import json
import warnings

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.data.corpus import Pair
from regard.errors import ConfigError, FileError, InputError, LengthWarning
from regard.metrics.rouge import rouge
from regard.tasks.recipe import Recipe
from regard.tasks.task import TASKS

ROWS = [
    {
        "id": str(number),
        "body": f"The {word} fell. It broke, and {word} by {word} was gone.",
        "headline": f"{word} fell",
    }
    for number, word in enumerate(["cup", "plate", "bowl", "glass", "jug", "pan", "pot", "vase", "dish", "mug", "lid"])
]


def recipe(folder, **changes):
    tables = {
        "task": "summarisation",
        "data": {"train": "mine.jsonl", "window": 13, "folder": str(folder)} | changes,
        "tokenizer": {"size": 300},
        "model": {"width": 12, "heads": 2, "layers": 1, "feedforward_width": 13},
        "training": {"steps": 2, "batch_tokens": 128, "warmup": 1, "evaluate_every": 2, "save_every": 2},
        "decoding": {"max_new_tokens": 7},
    }
    return Recipe.model_validate(tables)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("summaries")
    (found / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (found / "mine.csv").write_text(
        "id,body,headline\n" + "".join(f'{r["id"]},"{r["body"]}",{r["headline"]}\n' for r in ROWS)
    )
    (found / "texts.txt").write_text("".join(f"{row['body']}\n" for row in ROWS))
    (found / "sums.txt").write_text("".join(f"{row['headline']}\n" for row in ROWS))
    return found


@pytest.fixture(scope="module")
def model(folder):
    return regard.train(recipe(folder), folder / "run", progress=False)


@pytest.mark.parametrize("train", ["mine.jsonl", "mine.csv", ["texts.txt", "sums.txt"]])
def test_texts_and_summaries_are_found_by_the_usual_names_of_columns(folder, train):
    opened = TASKS["summarisation"]().open(recipe(folder, train=train))
    found = {opened.example(split, index) for split in ("train", "valid") for index in range(opened.size(split))}
    assert found == {Pair(row["body"], row["headline"]) for row in ROWS}


def test_a_column_that_is_not_there_is_named_with_those_that_are(folder):
    with pytest.raises((FileError, ConfigError), match=r"abstrct.*(headline|body)"):
        TASKS["summarisation"]().open(recipe(folder, columns={"text": "body", "summary": "abstrct"}))


def test_a_text_is_read_to_the_window_and_not_beyond(model):
    text = ROWS[0]["body"]
    with pytest.warns(LengthWarning, match=r"longer than the 12 this model reads: its beginning is summed up"):
        said = model.run(text)
    ids = model.tokenizer.encode(text)
    assert len(ids) > 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.run(model.tokenizer.decode(ids[:12])) == said


def test_figures_are_rouge_of_what_the_model_says(model):
    pairs = [Pair(row["body"], row["headline"]) for row in ROWS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthWarning)
        said = model.run([pair.source for pair in pairs])
        assert model.evaluate(pairs) == rouge(said, [pair.target for pair in pairs])
        with pytest.raises(InputError, match="there are no texts to measure on"):
            model.evaluate([])


def test_evaluate_shows_the_first_sentence_and_the_whole_text_beside_it(model, folder):
    asked = ["evaluate", str(folder / "run"), str(folder / "mine.csv")]
    record = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    wanted = [row["headline"] for row in ROWS]
    assert record["first_sentence"] == pytest.approx(rouge([f"The {said}." for said in wanted], wanted))
    assert record["whole_text"] == pytest.approx(rouge([row["body"] for row in ROWS], wanted))
    assert set(record["metrics"]) == {"rouge1", "rouge2", "rougeL"}
    shown = CliRunner().invoke(app, asked).stdout
    assert "the first sentence instead: rouge1" in shown


def test_a_corpus_without_summaries_is_refused():
    with pytest.raises(ConfigError, match="no texts with summaries, which the task reads; use corpus tales"):
        TASKS["summarisation"]().open(Recipe.model_validate({"task": "summarisation", "data": "dates"}))

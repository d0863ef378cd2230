"""A recipe may ask for any kind of tokenizer, and the model it makes reads and writes with that one."""

import pytest

from regard import api
from regard.data.batching import Padded
from regard.tasks.recipe import Recipe
from regard.text.registry import KINDS


def recipe(kind: str) -> Recipe:
    return Recipe.model_validate(
        {
            "data": {"corpus": "numbers"},
            "tokenizer": {"kind": kind, "size": 310, "sample": 70},
            "model": {"width": 12, "heads": 2, "layers": 1, "feedforward_width": 7},
            "training": {"steps": 2, "batch_tokens": 128, "warmup": 1, "evaluate_every": 2, "save_every": 2},
            "decoding": {"max_new_tokens": 5},
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_trained_saved_and_loaded_with_the_kind_its_recipe_names(kind, tmp_path):
    model = api.train(recipe(kind), tmp_path / "run")
    assert type(model.tokenizer) is KINDS[kind]
    again = api.load(tmp_path / "run")
    assert again.tokenizer == model.tokenizer
    assert again.recipe.tokenizer.kind == kind
    assert again.module.config.vocabulary == model.tokenizer.size
    inputs = model.writer.prompt(model, ["en: 17", "de: 203"])
    rows = inputs.source if inputs.source is not None else inputs.tokens
    assert isinstance(rows, Padded)
    assert [row[-1] for row in rows.rows()] == [model.tokenizer.eos_id] * 2
    assert isinstance(model.run("en: 17"), str)


def test_every_kind_of_tokenizer_can_be_asked_for():
    assert {recipe(kind).tokenizer.kind for kind in KINDS} == set(KINDS)


def test_a_cased_tokenizer_keeps_capitals():
    texts = ["Der Hund", "der Hund"] * 3
    cased, uncased = (KINDS[kind].train(texts, 40) for kind in ("wordpiece_cased", "wordpiece"))
    assert cased.decode(cased.encode("Der Hund")) == "Der Hund"
    assert uncased.decode(uncased.encode("Der Hund")) == "der hund"

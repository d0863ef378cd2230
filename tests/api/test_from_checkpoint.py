"""Training that begins with a folder: what is kept, what is new, and what is refused."""

from pathlib import Path

import pytest
import torch

import regard
from regard.tasks.recipe import Recipe, read_recipe

LABELLED = "".join(
    f"{word} is good\tyes\n{word} is bad\tno\n"
    for word in ["one", "two", "three", "four", "five", "six", "seven", "eight"]
)
TRAINING = {"steps": 2, "batch_tokens": 100, "warmup": 1, "compile": False}
SMALL = {"width": 12, "heads": 2, "layers": 1, "feedforward_width": 7, "architecture": "encoder"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("from")
    (found / "labels.tsv").write_text(LABELLED)
    (found / "text.txt").write_text(LABELLED.replace("\t", " ") * 3)
    return found


def recipe(folder: Path, task: str, data: str, model: dict[str, object]) -> Recipe:
    table = {"train": data, "folder": str(folder), "window": 9}
    values = {"task": task, "data": table, "model": model, "training": TRAINING}
    kind = {} if "from" in model else {"tokenizer": {"kind": "wordpiece", "size": 80}}
    return Recipe.model_validate(values | kind)


@pytest.fixture(scope="module")
def masked(folder) -> regard.Model:
    return regard.train(recipe(folder, "masked", "text.txt", SMALL | {"head": "masked"}), folder / "masked")


class Heard:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, report: object) -> None:
        pass

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def test_a_classifier_begins_with_a_masked_model_and_a_new_head(folder, masked):
    heard = Heard()
    plan = recipe(folder, "classification", "labels.tsv", {"from": str(folder / "masked"), "dropout": 0.2})
    model = regard.train(plan, folder / "classifier", listener=heard)
    [said] = [one for one in heard.said if "begin as in" in one]
    assert "new: pooler.linear.weight, pooler.linear.bias, output.weight, output.bias" in said
    assert (model.module.config.outputs, model.module.config.labels) == ("labels", ("no", "yes"))
    assert model.module.config.dropout == 0.2
    assert model.tokenizer.to_json() == masked.tokenizer.to_json()
    assert set(model.run("one is good")) == {"yes", "no"}
    assert regard.load(folder / "classifier").run("one is good") == model.run("one is good")


@pytest.mark.parametrize("asked", ["recipe", "name"])
def test_a_run_goes_on_by_the_recipe_it_was_begun_with_whatever_the_folders_tokenizer(folder, masked, tmp_path, asked):
    """Its recipe says no kind of tokenizer; the run writes down that of the folder, here wordpiece and not bpe."""
    plan = recipe(folder, "classification", "labels.tsv", {"from": str(folder / "masked")})
    whole = regard.train(
        plan.model_copy(update={"training": plan.training.model_copy(update={"steps": 4})}), tmp_path / "whole"
    )
    named = tmp_path / "recipe.toml"
    named.write_text(plan.toml().replace('[tokenizer]\nkind = "bpe"', "[tokenizer]"))
    again: Recipe | str = plan if asked == "recipe" else str(named)
    regard.train(again, tmp_path / "run")
    regard.train(again, tmp_path / "run", resume=True)
    on = regard.train(again, tmp_path / "run", changes=["training.steps=4"], resume=True)
    for name, tensor in whole.module.state_dict().items():
        assert torch.equal(on.module.state_dict()[name], tensor), name


def test_the_weights_are_the_folders_before_the_first_step(folder, masked):
    from regard.api.training import prepare

    plan = recipe(folder, "classification", "labels.tsv", {"from": str(folder / "masked")})
    begun = prepare(plan, None).module.state_dict()
    for name, tensor in masked.module.state_dict().items():
        if name in begun and not name.startswith("output."):
            assert torch.equal(begun[name], tensor)


def test_a_recipe_made_for_training_from_scratch_gives_way_to_fine_tuning(folder, masked):
    begin = f"model.from={folder / 'masked'}"
    for changes in ([begin, "training.steps=7", "model.dropout=0.3"], ["model.dropout=0.3", "training.steps=7", begin]):
        plan = read_recipe("sst", changes)
        assert plan.model.begins_in == str(folder / "masked")
        assert (plan.training.steps, plan.training.learning_rate, plan.tokenizer.kind) == (7, 1e-4, "bpe")
        assert plan.model.dropout == 0.3


@pytest.mark.parametrize("changes", [["model.from=x", "model=luong"], ["model=luong", "model.from=x"]])
def test_a_folder_and_another_network_are_not_both_begun_with(changes):
    with pytest.raises(regard.ConfigError, match=r"'model.from=x' and 'model=luong' name two networks"):
        read_recipe("sst", changes)


@pytest.mark.parametrize(
    ("task", "data", "model", "said"),
    [
        ("language_modelling", "text.txt", {}, "cannot do task 'language_modelling'"),
        ("denoising", "text.txt", {}, "has no <extra_id_0>, which task 'denoising' needs"),
        ("classification", "labels.tsv", {"width": 7}, "key 'width' is unknown"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence(folder, masked, task, data, model, said, tmp_path):
    with pytest.raises(regard.RegardError, match=said):
        regard.train(recipe(folder, task, data, {"from": str(folder / "masked"), **model}), tmp_path / "out")


def test_a_folder_that_is_not_there_is_named(folder, tmp_path):
    plan = recipe(folder, "classification", "labels.tsv", {"from": str(tmp_path / "nowhere")})
    with pytest.raises(regard.FileError, match="nowhere"):
        regard.train(plan, tmp_path / "out")

"""Training that begins with a folder of Hugging Face's: families with tasks they can have, and what is refused."""

from pathlib import Path

import pytest
import torch
from tiny_folders import write

import regard
from regard.tasks.recipe import Recipe

TEXT = "the roses by the river are red and low, all of them; they don't know what is wide.\n\n" * 20
LABELLED = "".join(f"the river is {word}\tgood\nthe roses are {word}\tbad\n" for word in "abcdefgh")
PAIRS = "".join(f"the river {word}\tthe roses {word}\n" for word in "abcdefghijkl")
FILES = {"text.txt": TEXT, "labels.tsv": LABELLED, "pairs.tsv": PAIRS}
DATA = {
    "masked": "text.txt",
    "language_modelling": "text.txt",
    "classification": "labels.tsv",
    "translation": "pairs.tsv",
}
TRAINING = {"steps": 2, "batch_tokens": 200, "warmup": 1, "compile": False, "learning_rate": 1e-3}


def recipe(folder: Path, task: str, kind: str, **tables: dict[str, object]) -> Recipe:
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    begun = folder / "begun"
    if not begun.exists():
        write(kind, begun)
    data = {"train": DATA[task], "folder": str(folder)} | ({} if task == "translation" else {"window": 17})
    given = {"task": task, "data": data, "model": {"from": str(begun)}, "training": TRAINING}
    return Recipe.model_validate(given | tables)


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("bert", "masked"),
        ("bert masked", "masked"),
        ("roberta masked", "masked"),
        ("bert", "classification"),
        ("roberta masked", "classification"),
        ("bert labels", "classification"),
        ("gpt", "language_modelling"),
        ("llama", "language_modelling"),
        ("t5", "translation"),
        ("marian", "translation"),
    ],
)
def test_a_family_is_trained_on_for_a_task_it_can_have_and_comes_back(kind, task, tmp_path):
    plan = recipe(tmp_path, task, kind)
    before = regard.load(tmp_path / "begun").module.state_dict()
    model = regard.train(plan, tmp_path / "out", progress=False)
    after = model.module.state_dict()
    shared = [name for name in before if name in after and not name.startswith("output.")]
    moved = [name for name in shared if not torch.equal(before[name], after[name])]
    assert len(shared) > 3
    assert moved
    assert max(float((before[name] - after[name]).abs().max()) for name in shared) < 0.1  # it began there
    text = "the river"
    if task == "masked":
        text += f" is {model.tokenizer.token_text(model.tokenizer.mask_id)}"
    strategy = regard.Greedy() if task in ("language_modelling", "translation") else None
    answers = [one.run(text, strategy=strategy) for one in (model, regard.load(tmp_path / "out"))]
    if task == "masked":
        answers = [one[0] for one in answers]
    assert answers[0] == (pytest.approx(answers[1], abs=1e-6) if isinstance(answers[1], dict) else answers[1])


@pytest.mark.parametrize(
    ("kind", "task", "said"),
    [
        ("gpt", "classification", "task 'classification' cannot begin in .*begun: .*; begin with another model"),
        ("gpt", "masked", "has no <mask>, which task 'masked' needs; begin with a model that was trained for it"),
        ("bert masked", "language_modelling", "task 'language_modelling' cannot begin in .*; begin with another model"),
        ("marian", "language_modelling", "task 'language_modelling' cannot begin in .* reads a source"),
    ],
)
def test_a_task_it_cannot_have_is_refused_in_one_sentence(kind, task, said, tmp_path):
    with pytest.raises(regard.ConfigError, match=said):
        regard.train(recipe(tmp_path, task, kind), tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"tokenizer": {"size": 99}}, r"\[tokenizer\] size has no effect where \[model\] from names a folder"),
        ({"tokenizer": {"sample": 99}}, r"\[tokenizer\] sample has no effect where \[model\] from names a folder"),
        ({"tokenizer": {"kind": "wordpiece"}}, "leave it out: the folder's tokenizer is of kind 'pretrained'"),
        ({"model": {"from": "begun", "vectors": "v.txt"}}, r"\[model\] vectors = .* has no effect; leave it out"),
        ({"model": {"from": "begun", "folder": "x"}}, "key 'folder' is unknown; known: adapter, dropout, from$"),
    ],
)
def test_keys_that_the_folder_decides_are_refused(tables, said, tmp_path):
    with pytest.raises(regard.ConfigError, match=said):
        regard.train(recipe(tmp_path, "classification", "bert", **tables), tmp_path / "out", progress=False)


def test_a_window_wider_than_the_folders_positions_is_told_what_helps(tmp_path):
    plan = recipe(tmp_path, "classification", "bert")
    with pytest.raises(regard.ConfigError) as error:
        regard.train(plan, tmp_path / "out", changes=["data.window=99"], progress=False)
    assert error.value.remedy == "use data.window=67"

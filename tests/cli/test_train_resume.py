"""`regard train --resume`: what is a run, what may change, and following the advice of a refusal or of a failure."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from small_model import RECIPE, SMALL

from regard.data.batching import Batch
from regard.data.corpus import Pair
from regard.data.sources import PairList
from regard.text.tokenizer import Tokenizer
from regard.training import fingerprint, loop
from regard.training.fingerprint import ALL
from regard.training.trainable import TokenPrediction
from regard.training.updater import StepResult, Updater


def settings(*changes: str) -> list[str]:
    return [part for change in (*SMALL, *changes) for part in ("--set", change)]


def steps_of(folder: str | Path) -> list[int]:
    return [json.loads(line)["step"] for line in Path(folder, "metrics.jsonl").read_text().splitlines()]


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What is a run


@pytest.mark.parametrize("stray", ["notes.txt", "config.json", "model.safetensors", "state/step-3/progress.json"])
def test_a_folder_that_is_no_run_is_refused_and_left_alone(call, stray):
    path = Path("elsewhere", stray)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    before = tree(Path())
    answer = call("train", RECIPE, *settings(), "--out", "elsewhere", "--resume")
    assert answer.code == 1
    assert answer.err == (
        "regard: elsewhere is no run that can be resumed: it has no recipe.toml; "
        "give the --out of one, or an empty folder to train anew\n"
    )
    assert tree(Path()) == before


def test_a_run_killed_before_it_had_written_anything_whole_begins_anew(call):
    Path("new").mkdir()
    Path("new", ".partial-7-recipe.toml").write_text("[da")
    assert call("train", RECIPE, *settings(), "--out", "new", "--resume").code == 0
    assert steps_of("new") == [1, 2, 3]
    assert not Path("new", ".partial-7-recipe.toml").exists()


def test_a_finished_run_says_that_it_is_finished_and_is_left_as_it_is(call, model):
    shutil.copytree(model, "new")
    before = tree(Path("new"))
    answer = call("train", RECIPE, *settings(), "--out", "new", "--resume")
    assert answer.code == 0
    assert "new is finished after step 3: all 3 steps are taken" in answer.err
    assert tree(Path("new")) == before


# What may change


def test_more_steps_are_taken_when_they_are_asked_for_by_name(call, model):
    shutil.copytree(model, "new")
    answer = call("train", RECIPE, *settings("training.steps=5"), "--out", "new", "--resume")
    assert answer.code == 0, answer.err
    assert "training.steps is now 5, was 3" in answer.err
    assert steps_of("new") == [1, 2, 3, 4, 5]
    assert "steps = 5" in Path("new", "recipe.toml").read_text()


def test_a_recipe_that_merely_differs_is_refused_with_how_to_insist(call, model):
    """The key is changed in the file, not by `--set`: more likely another recipe than a wish."""
    shutil.copytree(model, "new")
    text = Path("new", "recipe.toml").read_text().replace("clip = 1.0\n", "clip = 2.0\n")
    Path("other.toml").write_text(text)
    before = tree(Path("new"))
    answer = call("train", "other.toml", "--out", "new", "--resume")
    assert answer.code == 1
    assert "the recipe in new differs in training.clip; resume with the same recipe, or say" in answer.err
    assert tree(Path("new")) == before
    change = re.search(r"with (--set \S+=)VALUE", answer.err).group(1)
    insisted = call("train", "other.toml", *f"{change}2.0".split(), "--out", "new", "--resume")
    assert insisted.code == 0, insisted.err
    assert "clip = 2.0" in Path("new", "recipe.toml").read_text()
    again = call("train", "other.toml", "--out", "new", "--resume")
    assert again.code == 0, "what was insisted on is remembered"


@pytest.mark.parametrize("change", ["training.seed=7", "training.batch_tokens=256", "training.average=2"])
def test_what_the_state_depends_on_may_not_change_even_by_name(call, model, change):
    shutil.copytree(model, "new")
    answer = call("train", RECIPE, *settings(change), "--out", "new", "--resume")
    assert answer.code == 1
    key = change.partition("=")[0]
    assert f"the recipe in new differs in {key}; resume with the same recipe, or train anew" in answer.err


# The data


PAIRS = [f"word {number}\tWort {number}" for number in range(7)]


def own(valid: list[str] = PAIRS[:2], train: list[str] = PAIRS) -> tuple[str, ...]:
    Path("train.tsv").write_text("\n".join(train) + "\n")
    Path("valid.tsv").write_text("\n".join(valid) + "\n")
    recipe = '[data]\ntrain = "train.tsv"\nvalid = "valid.tsv"\n[tokenizer]\nsize = 262\n'
    Path("own.toml").write_text(recipe + "[model]\nwidth = 8\nheads = 2\nlayers = 1\n[training]\nsteps = 2\n")
    return ("train", "own.toml", "--out", "new")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"train": [*PAIRS, "one more\teins mehr"]},
            r"data\.train is not what it was .*\(7 examples, .*, now 8 examples",
        ),
        ({"train": [*PAIRS[:3], "word 3\tWort drei", *PAIRS[4:]]}, r"data\.train is not what it was"),
        ({"train": PAIRS[::-1]}, r"data\.train is not what it was"),
        ({"valid": PAIRS[:1]}, r"data\.valid is not what it was .*2 examples.* 1 examples"),
    ],
)
def test_data_that_changed_since_the_run_began_is_named(call, changed, said):
    assert call(*own()).code == 0
    own(**changed)
    before = tree(Path("new"))
    answer = call(*own(**changed), "--resume")
    assert answer.code == 1
    assert re.search(said, answer.err)
    assert answer.err.count("\n") == 1
    assert tree(Path("new")) == before
    assert call(*own(), "--resume").code == 0, "as the remedy says"


def test_a_tokenizer_that_was_swapped_is_named(call):
    assert call(*own()).code == 0
    Path("new", "tokenizer.json").write_text(Tokenizer.train(["other words", "other words"], 262).to_json())
    assert "tokenizer is not what it was" in call(*own(), "--resume").err


def test_of_very_many_pairs_both_ends_and_some_between_are_looked_at(monkeypatch):
    monkeypatch.setattr(fingerprint, "ALL", 10)
    tokenizer = Tokenizer.train(["a"], 260)
    pairs = [Pair(f"s{number}", f"t{number}") for number in range(97)]

    def print_of(at: int) -> str:
        changed = [Pair("x", "y") if number == at else pair for number, pair in enumerate(pairs)]
        return fingerprint.fingerprint(PairList(changed), tokenizer)["train"]

    same = fingerprint.fingerprint(PairList(pairs), tokenizer)["train"]
    noticed = [at for at in range(97) if print_of(at) != same]
    assert {0, 96} <= set(noticed)
    assert 10 <= len(noticed) <= 12
    assert ALL > 100_000


# Failures, and their advice


def test_a_loss_that_is_not_a_number_is_mended_by_the_advice_it_gives(call, monkeypatch):
    """The words after `with` are typed as they stand."""
    take = Updater.take

    def diverging(self: Updater, number: int, rate: float) -> StepResult:
        taken = take(self, number, rate)
        if number == 4 and rate > 1.5e-3:
            taken.numbers.fill_(float("nan"))
        return taken

    monkeypatch.setattr(loop.Updater, "take", diverging)
    changes = settings("training.steps=5", "training.save_every=1", "training.schedule=constant")
    answer = call("train", RECIPE, *changes, "--out", "new")
    assert answer.code == 1
    assert "the loss became nan at step 4; go on after step 3 with --resume --set training.learning_rate=" in answer.err
    advice = shlex.split(re.search(r" with (--resume --set \S+),", answer.err).group(1))
    mended = call("train", RECIPE, *changes, "--out", "new", *advice)
    assert mended.code == 0, mended.err
    assert "training.learning_rate is now 0.001, was 0.002" in mended.err
    assert steps_of("new") == [1, 2, 3, 4, 5]


def test_ctrl_c_before_the_first_step_is_one_sentence(call, monkeypatch):
    def interrupted(self: TokenPrediction, batch: Batch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TokenPrediction, "loss", interrupted)
    answer = call("train", RECIPE, *settings(), "--out", "new")
    assert answer.code == 130
    assert (
        answer.err.splitlines()[-1]
        == "regard: stopped; a training that has saved a state goes on from it with --resume"
    )

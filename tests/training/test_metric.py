"""What "best" means: the run's metric decides which model is kept, when it stops, and what a resumed run goes on by."""

import re
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import BATCH, Ear, assert_same_run, climb, lines, real, states

import regard
from regard.data.corpus import Pair
from regard.errors import ConfigError, LengthWarning
from regard.tasks.recipe import Recipe, read_recipe
from regard.tasks.task import TASKS
from regard.training.interrupt import Stopped
from regard.training.loop import Run
from regard.training.metric import HIGHER_IS_BETTER, Metric
from regard.training.plan import TrainingPlan
from regard.training.updater import Updater


def judged(run: Run, name: str, best_at: float) -> Run:
    """A climber judged by how near it is to a place; the validation loss still likes 0.31 best."""
    module = run.trainable.module
    sign = 1 if HIGHER_IS_BETTER[name] else -1

    def measure() -> float:
        assert not module.training
        return sign * (1 - abs(float(module.place.detach()) - best_at))

    return replace(run, metric=Metric(name, measure))


@pytest.mark.parametrize("name", ["accuracy", "perplexity"])
def test_the_best_model_is_the_best_by_the_metric_and_patience_counts_by_it(tmp_path, name):
    run = judged(climb(tmp_path, patience=1), name, 0.5)
    progress = run.fit()
    assert (progress.step, progress.metric) == (6, name)
    assert float(load_file(tmp_path / "model.safetensors")["place"]) == pytest.approx(0.5, abs=1e-5)
    found = lines(tmp_path)
    values = [line[f"validation_{name}"] for line in found]
    assert progress.best == (max if name == "accuracy" else min)(values) == values[4]
    assert all("validation_loss" in line for line in found)
    assert f"no improvement of the validation {name} for 1 evaluation " in run.listener.said[-1]
    assert run.trainable.module.training


def test_the_metric_and_its_best_are_remembered_across_a_resume(tmp_path):
    judged(climb(tmp_path), "accuracy", 0.3).fit(until=5)
    progress = judged(climb(tmp_path), "accuracy", 0.3).fit()
    assert (progress.worse, progress.metric) == (4, "accuracy")
    assert float(load_file(tmp_path / "model.safetensors")["place"]) == pytest.approx(0.3, abs=1e-5)
    with pytest.raises(ConfigError, match=r"the best by accuracy, not by loss; go on with training\.metric=accuracy"):
        climb(tmp_path, steps=9).fit()


@pytest.mark.parametrize("average", [None, 2])
def test_a_run_stopped_before_its_first_evaluation_leaves_the_weights_it_had(tmp_path, undisturbed, average):
    plan = {"average": average, "keep": 3}
    run = real(tmp_path / "run", **plan)
    run.interrupt.ask()
    with pytest.raises(Stopped):
        run.fit()
    assert "no evaluation was made yet: the model is that of step 1" in run.listener.said
    kept, state = (
        load_file(tmp_path / "run" / name) for name in ("model.safetensors", "state/step-1/model.safetensors")
    )
    assert all(torch.equal(kept[key], state[key]) for key in state)
    real(tmp_path / "run", seed=23, **plan).fit()
    whole = undisturbed
    if average is not None:
        real(whole := tmp_path / "whole", **plan).fit()
    assert_same_run(tmp_path / "run", whole)
    assert states(tmp_path / "run") == states(whole)


def test_the_tokens_of_a_step_are_all_that_were_read_and_no_padding(tmp_path):
    run = real(tmp_path, accumulate=2)
    stream = run.batches.start(regard.data.stream.Position())
    first, second = (next(stream)[0] for _ in range(2))
    counted = sum(
        len(row)
        for batch in (first, second)
        for part in (batch.inputs.tokens, batch.inputs.source)
        for row in part.rows()
    )
    taken = Updater(
        run.trainable,
        torch.optim.SGD(run.trainable.module.parameters()),
        run.plan,
        iter(run.batches.start(regard.data.stream.Position())),
    ).take(1, 0.0)
    assert taken.tokens == counted > taken.count
    assert BATCH.tokens == 3


def test_the_longest_row_and_the_tokens_of_an_epoch_are_those_of_the_data(tmp_path):
    run = real(tmp_path)
    pairs = [Pair("a b c", "c"), Pair("d e f a b c d e f", "e"), Pair("b", "a b c d e f a b c d e f")]
    data = regard.data.sources.PairList(pairs)
    batches = replace(run.batches, corpus=data)
    encoded = batches.objective.encode(pairs)
    assert batches.longest() == max(len(one.source) for one in encoded) + 1
    assert batches.tokens_per_epoch() == sum(len(one.source) + len(one.target) + 2 for one in encoded)
    assert run.batches.tokens_per_epoch() is None, "a corpus without end has none"
    assert run.batches.longest() is None


@pytest.mark.parametrize(
    ("name", "metric", "known"),
    [
        ("copy", "bleu", "loss or exact_match"),
        ("gpt-shakespeare", "accuracy", "loss or perplexity or bits_per_byte"),
        ("copy", "losss", "loss or exact_match"),
    ],
)
def test_a_metric_that_the_task_does_not_have_is_refused_with_those_it_has(tmp_path, name, metric, known):
    recipe = read_recipe(name, [f"training.metric={metric}"])
    with pytest.raises(ConfigError, match=re.escape(f"metric {metric!r} is no metric of task")) as refused:
        TASKS[recipe.task.name]().check_metric(recipe)
    assert refused.value.remedy == f"use {known}"
    with pytest.raises(ConfigError, match="metric_examples has no effect with metric 'loss'"):
        TrainingPlan(metric_examples=3)


def test_every_figure_of_every_task_has_a_direction():
    assert {name for task in TASKS.values() for name in task().metrics(None)} | {"loss"} == set(HIGHER_IS_BETTER)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "t5"])
def test_a_translator_is_judged_by_its_answers_while_it_trains(tmp_path, positions):
    """Decoding between the steps changes no step: the losses are those of a run that is judged by its loss."""
    changes = [
        "data.options.held_out=5",
        "tokenizer.size=270",
        "tokenizer.sample=53",
        "model.width=16",
        "model.heads=2",
    ]
    changes += ["model.layers=1", "training.steps=4", "training.batch_tokens=128", "training.evaluate_every=2"]
    changes += [f"model.positions={positions}", "model.dropout=0.2", "decoding.max_new_tokens=5"]
    judged_by = ["training.metric=exact_match", "training.metric_examples=3"]
    ear = Ear()
    model = regard.train("copy", tmp_path / "by-answers", changes=[*changes, *judged_by], listener=ear)
    regard.train("copy", tmp_path / "by-loss", changes=changes)
    found, plain = (lines(tmp_path / folder) for folder in ("by-answers", "by-loss"))
    assert [line["loss"] for line in found] == [line["loss"] for line in plain]
    assert [line["validation_loss"] for line in found if "validation_loss" in line] == [
        line["validation_loss"] for line in plain if "validation_loss" in line
    ]
    assert all(0 <= line["validation_exact_match"] <= 1 for line in found if "validation_loss" in line)
    size = sum(parameter.numel() for parameter in model.module.parameters())
    assert ear.said[0] == f"{size:,} parameters on cpu in float32"
    assert ear.said[1] == "endless examples to train on, 5 to validate on"
    assert ear.said[2].startswith("the best model is the best by exact_match, on at most 3 validation examples")


def test_a_translator_says_that_a_source_is_longer_than_any_it_was_trained_on(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b c\tc b a\na b\tb a\nd e f\tf e d\n")
    recipe = {
        "data": {"train": "pairs.tsv", "valid": "pairs.tsv", "folder": str(tmp_path)},
        "tokenizer": {"size": 270},
        "model": {"width": 16, "heads": 2, "layers": 1},
        "training": {"steps": 1, "batch_tokens": 64},
        "decoding": {"max_new_tokens": 3},
    }
    model = regard.train(Recipe.model_validate(recipe), tmp_path / "run")
    trained = model.module.config.trained_length
    assert trained == max(len(model.tokenizer.encode(text)) for text in ("a b c", "d e f")) + 1
    longer = next(text for n in range(4, 99) if len(model.tokenizer.encode(text := " ".join("z" * n))) >= trained)
    with pytest.warns(LengthWarning, match=rf"a text of \d+ tokens is longer than any .* \({trained}\)"):
        model.run(longer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run("a b c")

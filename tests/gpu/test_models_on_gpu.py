"""A loaded model on a GPU: `run`, `evaluate` and `look` say in float32 what they say on the CPU."""

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data.corpus import Pair
from regard.inspection.contextual import word_in_sentences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DAYS = ["de: 3 mars 2001", "de: 17 april 1999", "fr: 5 mai 2011"]
CHANGES = [
    *("data.options.first_year=1990", "data.options.last_year=2019", "tokenizer.size=300", "tokenizer.sample=101"),
    *("model.width=32", "model.heads=2", "model.layers=2", "training.steps=40", "training.batch_tokens=1024"),
    *("training.warmup=5", "training.evaluate_every=40", "training.save_every=40", "decoding.max_new_tokens=11"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "dates"
    regard.train("dates", made, changes=[*CHANGES, "training.device=cpu"])
    return made


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[regard.Model, regard.Model]:
    return regard.load(folder, "cpu"), regard.load(folder, "cuda")


@pytest.fixture(autouse=True)
def _exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def test_auto_is_the_gpu_and_a_model_comes_back(folder, both):
    assert regard.load(folder).device.type == both[1].device.type == "cuda"
    moved = regard.load(folder, "cuda").to("cpu")
    assert (moved.device.type, moved.precision) == ("cpu", "float32")
    assert moved.run(DAYS) == both[0].run(DAYS)


@pytest.mark.parametrize("strategy", [regard.Greedy(), regard.Beam(3), regard.Sample(seed=5)], ids=str)
def test_the_text_is_that_of_the_cpu(both, strategy):
    slow, fast = ([one.score for one in model.hypotheses(DAYS, strategy)] for model in both)
    assert both[1].run(DAYS, strategy=strategy) == both[0].run(DAYS, strategy=strategy)
    assert fast == pytest.approx(slow, abs=1e-3)


def test_the_stream_and_the_figures_are_those_of_the_cpu(both):
    slow, fast = ("".join(model.run(DAYS[0], strategy=regard.Greedy(), stream=True)) for model in both)
    assert fast == slow
    pairs = [Pair(day, answer) for day, answer in zip(DAYS, both[0].run(DAYS), strict=True)]
    assert both[1].evaluate(pairs) == both[0].evaluate(pairs) == {"exact_match": 1.0}


def test_what_is_seen_is_what_is_seen_on_the_cpu(both, tmp_path):
    slow, fast = (model.look(DAYS[0], values=True) for model in both)
    assert fast.layers == slow.layers
    for layer in slow.layers:
        torch.testing.assert_close(fast.weights(layer).cpu(), slow.weights(layer), rtol=0, atol=1e-4)
    fast.save(tmp_path / "seen.png")
    fast.save(tmp_path / "seen.html")
    told = [model.look(DAYS[0], target="2001-03-03") for model in both]
    torch.testing.assert_close(
        told[1].weights(told[1].layers[-1]).cpu(), told[0].weights(told[0].layers[-1]), rtol=0, atol=1e-4
    )


def test_a_word_in_sentences_is_followed_on_a_gpu(both):
    slow, fast = (
        word_in_sentences(model.module, model.tokenizer, [DAYS[0], "de: 4 mars 1998"], "mars") for model in both
    )
    np.testing.assert_allclose(fast.cosines, slow.cosines, atol=1e-4)


def test_half_precision_runs_there(folder):
    half = regard.load(folder, "cuda", "bfloat16")
    assert half.precision == "bfloat16"
    assert all(isinstance(text, str) for text in half.run(DAYS))

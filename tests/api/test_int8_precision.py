"""A model loaded in int8: nearly what it was, smaller, said wherever its numbers are said, and never trained."""

from pathlib import Path

import pytest
import torch

import regard
from regard.data import stream
from regard.data.splits import TextDocument
from regard.errors import InputError
from regard.models.size import size_of

SHAPE = ["model.width=32", "model.heads=2", "model.layers=2", "model.feedforward_width=48", "tokenizer.size=300"]
TRAINING = ["training.steps=120", "training.batch_tokens=512", "training.warmup=5", "training.learning_rate=1e-2"]
TRAINING += [
    "training.evaluate_every=60",
    "data.window=32",
    "decoding.temperature=",
    "decoding.strategy=greedy",
    "decoding.max_new_tokens=24",
]


def sentences(count: int, first: int = 0) -> str:
    """A cat, a dog and numbers that follow from each other: a text with little to guess."""
    names, things = ("cat", "dog", "hen", "fox", "owl"), ("mat", "roof", "lake", "hill")
    lines = []
    for number in range(first, first + count):
        name, thing = names[number * 7 % 5], things[number * number % 4]
        lines.append(f"the {name} sat on the {thing} and the {name} saw the {thing}.")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small language model that has learnt these sentences."""
    folder = tmp_path_factory.mktemp("int8")
    (folder / "text.txt").write_text(sentences(400))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 64)
        regard.train("gpt", folder / "run", data=[folder / "text.txt"], changes=[*SHAPE, *TRAINING])
    return folder / "run"


def test_a_trained_model_loses_next_to_nothing(trained):
    told = [TextDocument(sentences(20, first=1000))]
    before, after = (regard.load(trained, "cpu", precision) for precision in ("float32", "int8"))
    plain, rounded = (one.evaluate(told)["perplexity"] for one in (before, after))
    assert plain < 2  # it has learnt something
    assert plain != rounded
    assert abs(rounded - plain) < 0.01 * plain
    begun = ["the cat sat on", "the owl sat on the hill and", "the fox"]
    assert after.run(begun, max_new_tokens=6) == before.run(begun, max_new_tokens=6)


def test_its_numbers_are_counted_and_its_size_is_told(trained):
    model = regard.load(trained, "cpu", "int8")
    size = size_of(model.module.config)
    assert model.precision == "int8"
    assert model.facts["parameters"] == f"{size.parameters:,}"
    assert "int8" in model.facts["device"]
    there = sum(one.numel() * one.element_size() for one in model.module.parameters())
    held = [one.int8 for one in model.module.modules() if getattr(one, "int8", None) is not None]
    there += sum(one.numbers.numel() + 4 * len(one.scales) for one in held)
    assert size.int8_weights.float32 == there
    assert there < 0.7 * size.weights.float32  # a third of this one is a table that is looked up


def test_it_answers_alike_alone_and_among_others(trained):
    model = regard.load(trained, "cpu", "int8")
    texts = ["the cat sat on", "the hen sat on the mat and the hen saw", "the", "the dog sat on the roof"]
    assert model.run(texts) == [model.run(text) for text in texts]
    assert len(model.run(texts[0], strategy=regard.Beam(3), max_new_tokens=8)) > 8


def test_there_is_no_way_back(trained, tmp_path):
    model = regard.load(trained, "cpu", "int8")
    with pytest.raises(InputError, match="int8 are not float32 again; load the model anew"):
        model.to(precision="float32")
    with pytest.raises(InputError, match="rounded to int8"):
        model.save(tmp_path / "saved")
    with pytest.raises(InputError, match="int8 cannot be trained"):
        model.module.train()
    rounded = regard.load(trained, "cpu", "float32").to(precision="int8")
    assert rounded.precision == "int8"
    assert rounded.run("the cat sat on") == model.run("the cat sat on")


def test_attention_is_watched_in_int8_as_in_float32(trained):
    before, after = (
        regard.load(trained, "cpu", precision).look("the cat sat on the") for precision in ("auto", "int8")
    )
    for layer in before.layers:
        torch.testing.assert_close(after.weights(layer, 0), before.weights(layer, 0), rtol=0.0, atol=0.1)

"""Models that were trained, in float32: every way to decode gives the same tokens, and in the engine's rows too.

stories260K and the sorter of three letters are not part of the project; without them their tests skip. Any other
trained folders are named in REGARD_TRAINED, one after the other as PATH has them.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.hypothesis import Stop
from regard.decoding.speculative import PromptLookup
from regard.decoding.strategies import Greedy, Sample
from regard.models.network import Network
from regard.models.transformer import Transformer

STORIES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "stories260K" / "stories260K.bin"
BEGINNINGS = ["Once upon a time", "Lily and Tom went to the park. They saw", "One day", "The cat sat down, and then it"]
TRAINED = [Path(one) for one in os.environ.get("REGARD_TRAINED", "").split(os.pathsep) if one]
STRATEGIES = (Greedy(), Sample(0.8, top_k=20, seed=3))


def agree(model: Network, inputs: Inputs, stop: Stop, strategy: Greedy | Sample, monkeypatch) -> list[tuple[int, ...]]:
    """What all ways to decode write, which is the same; one row after the other also by whole passes."""
    together = [one.ids for one in generate(model, inputs, strategy, stop)]
    for row, ids in enumerate(together):
        own = inputs.select([row])
        first = strategy if isinstance(strategy, Greedy) else replace(strategy, first=row)
        assert generate(model, own, first, stop)[0].ids == ids
        if isinstance(strategy, Greedy):
            prompt = own.tokens.rows()[0]
            with torch.no_grad():
                likely = model(Inputs(Padded.of([[*prompt, *ids]]), own.source))[0, len(prompt) - 1 : -1]
            assert tuple(likely.argmax(dim=-1).tolist()) == ids
    with monkeypatch.context() as anywhere:
        anywhere.setattr(paths, "DEVICES", {"cpu"})
        found = generate(model, inputs, strategy, stop)
    assert {one.path for one in found} <= {"in place", "rows"}
    assert [one.ids for one in found] == together
    if isinstance(model, Transformer):
        guessed = generate_ranked(model, inputs, strategy, stop, draft=PromptLookup())
        assert [one.ids for [one] in guessed] == together
    return together


def agree_on(model: regard.Model, texts: list[str], tokens: int, strategy: Greedy | Sample, monkeypatch) -> None:
    assert model.module.dtype == torch.float32
    end, *also = model.writer.endings(model)
    inputs = model.writer.prompt(model, texts)
    written = agree(model.module, inputs, Stop(end, tokens, tuple(also)), strategy, monkeypatch)
    assert len(set(written)) > 1


@pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES.name} is not there")
@pytest.mark.parametrize("tokens", [8, pytest.param(90, marks=pytest.mark.slow)])
def test_stories_are_told_alike_in_every_way(tokens, monkeypatch):
    for strategy in STRATEGIES[: 1 if tokens < 10 else 2]:
        agree_on(regard.load(STORIES), BEGINNINGS[: tokens // 3], tokens, strategy, monkeypatch)


@pytest.mark.parametrize("folder", TRAINED, ids=lambda one: one.name)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_a_trained_folder_answers_alike_in_every_way(folder, strategy, monkeypatch):
    """It has a file `asked.txt` with a text in each line."""
    texts = (folder / "asked.txt").read_text(encoding="utf-8").splitlines()
    agree_on(regard.load(folder), texts, 60, strategy, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("network", [("model=bahdanau", "model.cell=gru"), ("model=luong", "model.cell=lstm"), ()])
def test_what_learns_to_write_backwards_does_so_alike_in_every_way(network, tmp_path, monkeypatch):
    sizes = ["model.layers=1", "model.width=64"] if network else []
    changes = [*network, *sizes, "training.steps=200", "training.learning_rate=5e-3", "training.evaluate_every=200"]
    model = regard.train("reverse", tmp_path / "run", changes=changes, progress=False)
    for strategy in STRATEGIES:
        agree_on(model, ["a b c", "hello", "x y", "regard", "backwards and on"], 30, strategy, monkeypatch)

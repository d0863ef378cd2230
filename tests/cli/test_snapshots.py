"""Weights that a run keeps on purpose: the very weights of those steps, and what its heads were then."""

import json

import pytest
import torch
from small_model import RECIPE, SMALL

import regard
from regard.api.snapshots import head_history
from regard.data.repeats import Repeats
from regard.errors import ConfigError, FileError, InputError
from regard.models.checkpoint import load_tensors, snapshot_file, snapshots_of

KEPT = [*SMALL, "training.save_every=1", "training.keep=3", "training.snapshots=[0, 2, 3]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, _quick):
    folder = tmp_path_factory.mktemp("kept") / "run"
    regard.train(RECIPE, folder, changes=KEPT)
    return folder


def test_a_snapshot_is_the_weights_of_its_step(run):
    assert snapshots_of(run) == [0, 2, 3]
    for step in (2, 3):
        state = load_tensors(run / "state" / f"step-{step}" / "model.safetensors")
        kept = load_tensors(snapshot_file(run, step))
        assert kept.keys() == state.keys()
        assert all(torch.equal(kept[name], state[name]) for name in kept)
    first, last = regard.load(run, snapshot=0), regard.load(run, snapshot=3)
    drawn = load_tensors(snapshot_file(run, 0))
    assert all(torch.equal(value, drawn[name]) for name, value in first.module.state_dict().items())
    assert not torch.equal(first.module.embedding.weight, last.module.embedding.weight)


def test_a_resumed_run_keeps_the_same(run, tmp_path):
    regard.train(RECIPE, tmp_path / "run", changes=[*KEPT, "training.steps=2", "training.snapshots=[0, 2]"])
    regard.train(None, tmp_path / "run", resume=True, changes=["training.steps=3", "training.snapshots=[0, 2, 3]"])
    for step in (0, 2, 3):
        one, other = (load_tensors(snapshot_file(folder, step)) for folder in (run, tmp_path / "run"))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_history_of_heads_is_that_of_each_snapshot(run, call, tmp_path):
    texts = ["de: 3 mars 2011", "it: 5 aprile 1999"]
    found = head_history(run, texts)
    assert found.steps == (0, 2, 3)
    for step, report in zip(found.steps, found.reports, strict=True):
        assert report == regard.load(run, snapshot=step).heads(texts)
    answer = call("look", run, *texts, "--heads", "--snapshots", "--to", "h.svg")
    assert (answer.code, answer.err) == (0, "")
    assert "step 0" in answer.out
    assert "what came next last time" in (tmp_path / "h.svg").read_text(encoding="utf-8")
    record = json.loads(call("look", run, *texts, "--heads", "--snapshots", "--json", "--to", "h.svg", "--force").out)
    assert [one["step"] for one in record["snapshots"]] == [0, 2, 3]
    assert record["snapshots"][2]["heads"][1]["sink"] == pytest.approx(found.reports[2].heads[1].sink)


@pytest.mark.slow
def test_an_induction_head_is_born_while_the_repeats_are_learnt(tmp_path):
    """The recipe as it is shipped, a few minutes: no head copies at first, and one of the second layer does at last."""
    regard.train("repeats", tmp_path / "run", progress=False)
    rows = [Repeats().example("test", place).text for place in range(8)]
    found = head_history(tmp_path / "run", rows)
    assert all(one.character != "induction" for one in found.reports[0].heads)
    born = [one for one in found.reports[-1].heads if one.character == "induction"]
    assert born
    assert {one.layer for one in born} == {"decoder.1.self"}
    assert max(one.repeated or 0 for one in born) > 0.3  # on random letters too, where nothing else is to be learnt


def test_what_was_not_kept_is_refused_in_a_sentence(run, model, call):
    with pytest.raises(FileError, match="kept no weights of step 1"):
        regard.load(run, snapshot=1)
    with pytest.raises(InputError, match="kept no weights while it trained"):
        head_history(model)
    with pytest.raises(ConfigError, match="the snapshot of step 9 is never taken"):
        regard.train(RECIPE, run.parent / "never", changes=[*SMALL, "training.snapshots=[9]"])
    answer = call("look", run, "de: 3 mars 2011", "--snapshots")
    assert (answer.code, "--snapshots has no effect" in answer.err) == (1, True)

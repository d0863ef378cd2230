"""`training.compile`: the same course to rounding, the same names on the disk, a plain module afterwards."""

import os
from pathlib import Path

import pytest
import torch

import regard
from regard.api import Model
from regard.models.checkpoint import load_tensors
from regard.training.reports import Report

assert os.environ.get("REGARD_SHAPES") == "off", "compiled code cannot run under the shape hook: set REGARD_SHAPES=off"

CHANGES = [
    *("data.options.held_out=29", "tokenizer.size=270", "tokenizer.sample=53", "model.width=16", "model.heads=2"),
    *("model.layers=1", "training.batch_tokens=256", "training.steps=9", "training.warmup=3"),
    *("training.evaluate_every=4", "training.save_every=4", "training.keep=3"),
]


class Ear:
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.said: list[str] = []

    def __call__(self, report: Report) -> None:
        self.losses.append(report.loss)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def train(folder: Path, *changes: str, resume: bool = False) -> tuple[Model, Ear]:
    ear = Ear()
    return regard.train("copy", folder, changes=[*CHANGES, *changes], resume=resume, listener=ear), ear


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    torch._dynamo.reset()


def test_a_compiled_run_takes_the_same_course_saves_the_same_names_and_can_go_on_plain(tmp_path):
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    compiled, heard = train(tmp_path / "compiled", "training.compile=true")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > before, "something was compiled"
    assert heard.said[-1] == "compiling the model: the first steps and the first validation take longer"
    _, reference = train(tmp_path / "plain")
    assert heard.losses == pytest.approx(reference.losses, rel=1e-4)
    for name in ("model.safetensors", "state/step-8/model.safetensors", "state/step-8/optimizer.safetensors"):
        one, other = load_tensors(tmp_path / "compiled" / name), load_tensors(tmp_path / "plain" / name)
        assert one.keys() == other.keys()
        assert not any("_orig_mod" in key for key in one)
    assert compiled.module._compiled_call_impl is None
    with regard.watch(compiled) as seen:
        compiled.run(["a b c d"])
    assert seen.weights("decoder.0.cross", 0, rows=[-1]).sum() == pytest.approx(1, abs=1e-5)
    _, first = train(tmp_path / "compiled", "training.compile=false", "training.steps=11", resume=True)
    _, second = train(tmp_path / "plain", "training.steps=11", resume=True)
    assert len(first.losses) == len(second.losses) == 2
    assert first.losses == pytest.approx(second.losses, rel=1e-3), "a compiled run goes on plain"


def test_without_a_cpp_compiler_a_run_says_so_and_takes_the_course_as_written(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "empty"))
    with torch._inductor.config.patch({"cpp.cxx": (None, "no-such-compiler"), "fx_graph_cache": False}):
        _, heard = train(tmp_path / "compiled", "training.compile=true")
    assert heard.said[-1].startswith("the model cannot be compiled here (")
    assert heard.said[-1].endswith("), so it runs as written")
    assert capfd.readouterr() == ("", "")
    _, reference = train(tmp_path / "plain", "training.compile=false")
    assert heard.losses == reference.losses

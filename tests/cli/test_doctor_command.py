"""`regard doctor`: a table for people, an object for programs, an exit code for both."""

import json
import subprocess
import sys

import pytest
import torch

import regard
from regard.inspection.laws import LAWS
from regard.models import checkpoint


def test_a_trained_model_is_healthy_and_every_law_is_told(call, model):
    answer = call("doctor", model, "--json")
    assert answer.code == 0, answer.out
    found = json.loads(answer.out)
    assert found["healthy"]
    assert [one["law"] for one in found["laws"]] == [law.name for law in LAWS]
    told = {one["law"]: one for one in found["laws"]}
    assert all(told[name]["status"] == "pass" for name in ("padding", "caching", "weights", "tokenizer", "resume"))
    assert told["packing"]["reason"] == "it reads one text in each row"
    assert told["caching"]["measured"] <= told["caching"]["tolerance"] == 1e-5


def test_a_model_that_was_loaded_is_as_healthy_as_its_folder(model):
    """It keeps its weights in another layout, of which a copy knows nothing."""
    loaded = regard.load(model, "cpu")
    loaded.run("de: 3 May 2001", max_new_tokens=3)
    found = regard.doctor(loaded, folder=model, only=["accumulation", "resume", "save_load", "weights", "caching"])
    assert found.healthy, str(found)


def test_nothing_but_the_findings_is_printed(model):
    """PyTorch's profiler tells stderr of itself, once in a process."""
    asked = f"import regard; print(regard.doctor({str(model)!r}, only='kernel').healthy)"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("True\n", "")


def test_a_broken_model_is_told_and_the_exit_code_is_1(call, model, monkeypatch):
    read = checkpoint.load_tensors

    def forgetful(path):
        tensors = read(path)
        return tensors | {"decoder.layers.1.feedforward.up.weight": torch.zeros(11, 16)}

    monkeypatch.setattr(checkpoint, "load_tensors", forgetful)
    answer = call("doctor", model, "--only", "weights", "--only", "lengths", "--quiet")
    assert answer.code == 1
    assert "1 passed, 1 broken" in answer.out
    assert "broken by  decoder.layers.1.feedforward.up.weight\n" in answer.out
    assert "a tensor was not loaded" in answer.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["{}", "--only", "cashing"], "there is no law 'cashing'; did you mean 'caching'?"),
        (["{}", "--device", "tpu"], "device 'tpu' cannot be used here"),
        (["{}", "--precision", "int3"], "precision 'int3' is unknown"),
    ],
)
def test_what_cannot_be_examined_is_refused_in_a_line(call, model, arguments, said):
    answer = call("doctor", *(one.format(model) for one in arguments))
    assert answer.code == 1
    assert answer.out == ""
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_something_is_no_model(call, model, tmp_path, missing):
    for path in model.iterdir():
        if path.is_file() and path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    answer = call("doctor", tmp_path)
    assert answer.code == 1
    assert missing in answer.err
    assert answer.err.count("\n") == 1

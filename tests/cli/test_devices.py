"""`--device` and `--precision`: every verb that computes has them and says what it computed on and in."""

import json

import pytest
import torch

import regard
from regard.devices import in_memory, usable_device
from regard.errors import InputError

DAY = "de: 3 mars 2001"
ASKED = {
    "run": (DAY,),
    "evaluate": ("--examples", "3"),
    "look steps": (DAY, "--steps", "--force"),
    "look meaning": (DAY, "de: 4 mars 2001", "--meaning", "mars", "--force"),
    "look word": (DAY, "--word", "mars", "--force"),
}


def ask(call, model, verb: str, *more: str) -> dict:
    answer = call(verb.split(maxsplit=1)[0], model, *ASKED[verb], "--json", *more)
    assert (answer.code, answer.err) == (0, ""), answer
    return json.loads(answer.out)


@pytest.mark.parametrize("verb", ASKED)
def test_json_says_the_device_and_the_precision(call, model, verb):
    found = ask(call, model, verb, "--device", "cpu")
    assert (found["device"], found["precision"]) == ("cpu", "float32")
    half = ask(call, model, verb, "--device", "cpu", "--precision", "bfloat16")
    assert half["precision"] == "bfloat16"
    assert half.keys() == found.keys()


def test_half_precision_computes_in_half_precision(model):
    full, half = (regard.load(model, "cpu", precision) for precision in ("auto", "bfloat16"))
    assert (full.precision, half.precision) == ("float32", "bfloat16")
    for one, other in zip(full.module.parameters(), half.module.parameters(), strict=True):
        assert torch.equal(one.bfloat16(), other)
    whole, rounded = ([one.score for one in model.hypotheses([DAY])] for model in (full, half))
    assert whole != rounded
    assert whole == pytest.approx(rounded, rel=0.05)


def test_a_model_moves_and_says_where_it_is(model):
    loaded = regard.load(model, "cpu")
    before = loaded.run(DAY)
    assert loaded.to(precision="bfloat16") is loaded
    assert loaded.to("cpu").precision == "bfloat16"
    assert (loaded.to(precision="float32").precision, loaded.device) == ("float32", torch.device("cpu"))
    assert regard.load(model, "cpu").run(DAY) == before


def test_train_takes_its_device_and_precision_as_the_recipe_does(call, tmp_path):
    answer = call("train", "copy", "--out", tmp_path / "run", "--device", "abacus")
    assert answer.err.startswith("regard: device 'abacus' cannot be used here; use auto")
    answer = call("train", "copy", "--out", tmp_path / "run", "--precision", "float8")
    assert "precision = 'float8' cannot be used" in answer.err


@pytest.mark.parametrize("verb", ASKED)
def test_what_is_not_there_is_refused_before_the_model_is_read(call, verb):
    answer = call(verb.split()[0], "no-such-folder", *ASKED[verb], "--device", "abacus")
    assert answer.err.startswith("regard: device 'abacus' cannot be used here; use auto")
    answer = call(verb.split()[0], "no-such-folder", *ASKED[verb], "--device", "cpu", "--precision", "bfloat61")
    assert answer.err.startswith("regard: precision 'bfloat61' is unknown; did you mean 'bfloat16'?")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused(call, model):
    assert usable_device() == usable_device("auto") == torch.device("cpu")
    answer = call("run", model, DAY, "--device", "cuda")
    assert (answer.code, answer.err) == (1, "regard: device 'cuda' cannot be used here; use auto or cpu\n")
    with pytest.raises(InputError, match="device 'cuda' cannot be used here; use auto or cpu"):
        regard.load(model, device="cuda")


def test_only_an_error_of_memory_is_called_one():
    with pytest.raises(InputError, match="a table does not fit in memory"), in_memory("a table"):
        torch.empty(2**61)
    with pytest.raises(RuntimeError, match="size of tensor"), in_memory("a table"):
        torch.ones(2) + torch.ones(3)

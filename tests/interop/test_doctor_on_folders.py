"""The doctor on Hugging Face's folders: tiny models of every family, and what goes wrong when one is loaded."""

import json
import logging

import pytest
import torch

pytest.importorskip("transformers")

from tiny_folders import FOLDERS, write
from tiny_peers import PEERS, saved

import regard
from regard.interop import names
from regard.interop.huggingface import read_model

logging.getLogger("transformers").setLevel(logging.ERROR)
FIVE = ("bert", "roberta labels", "gpt", "llama", "t5")


@pytest.mark.parametrize(
    "name", [*FIVE, *(pytest.param(one, marks=pytest.mark.slow) for one in FOLDERS if one not in FIVE)]
)
def test_a_folder_obeys_every_law(name, tmp_path):
    found = regard.doctor(write(name, tmp_path))
    assert found.healthy, str(found)
    assert {"pass"} == {found.verdict(law).status for law in ("weights", "tokenizer", "padding", "capture", "kernel")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_every_family_obeys_every_law(name, tmp_path):
    folder = saved(PEERS[name].build(), tmp_path)
    found = regard.doctor(read_model(folder), folder=folder)
    assert found.healthy, str(found)
    assert found.verdict("weights").status == "pass"


def test_a_tensor_that_was_not_loaded_is_named(tmp_path, monkeypatch):
    folder = write("gpt", tmp_path)
    read = names.WeightReader.tensors

    def forgetful(self, shapes):
        for name, tensor in read(self, shapes):
            yield name, torch.zeros_like(tensor) if name.endswith("layers.1.self_attention.key.weight") else tensor

    monkeypatch.setattr(names.WeightReader, "tensors", forgetful)
    found = regard.doctor(folder, only=["weights"]).verdict("weights")
    assert (found.status, found.measured, found.smallest) == ("broken", 1.0, "transformer.h.1.attn.c_attn.weight")
    assert "left at its initial value" in found.cause


def test_special_tokens_that_a_text_can_spell_are_found(tmp_path):
    model = regard.load(write("gpt", tmp_path))
    spelling = regard.doctor(model, only=["tokenizer"])
    assert spelling.healthy, str(spelling)
    vars(model.tokenizer)["_encode"] = model.tokenizer.parsing_special_tokens.encode
    found = regard.doctor(model, only=["tokenizer"]).verdict("tokenizer")
    assert found.status == "broken"
    assert "special tokens are recognised" in found.cause
    assert found.smallest == "the text '<|endoftext|>', special tokens spelled"


def test_weights_in_half_precision_are_compared_as_they_are(tmp_path):
    folder = saved(PEERS["llama tied"].build().half(), tmp_path)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    found = regard.doctor(read_model(folder), folder=folder)
    assert found.healthy, str(found)
    assert found.verdict("weights").status == "pass"

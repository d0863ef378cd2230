"""`regard size`: what it prints of families, recipes, folders and files, and what it refuses."""

import json
import struct
from pathlib import Path

import pytest
from small_model import RECIPE

import regard
from regard.interop.huggingface import write_model
from regard.models.checkpoint import load_model
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.network import NETWORKS
from regard.models.size import size_of
from regard.models.transformer import Transformer
from regard.tasks.recipe import Recipe


def asked(call, *arguments: object) -> dict:
    answer = call("size", *arguments, "--json")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


@pytest.mark.parametrize("name", ["gpt3", "gpt-3", "GPT-3"])
def test_a_name_is_known_as_people_write_it(call, name):
    record = asked(call, name)
    assert record["parameters"]["total"] == 174_604_259_328  # Brown et al. 2020
    assert record["bytes"]["cache"]["bfloat16"] == 2 * 96 * 12288 * 2
    assert record["context"] == 2048


def test_a_page_states_its_numbers_and_how_they_come_about(call):
    answer = call("size", "gpt2")
    assert (answer.code, answer.err) == (0, "")
    lines = {line.strip().split("  ")[0]: line.split() for line in answer.out.splitlines() if line}
    assert lines["parameters"][-1] == "124,439,808"
    assert lines["feedforward"][1:] == ["56,669,184", "45.5", "%"]
    assert lines["weights"][1:5] == ["474.7", "MiB", "710.3", "MiB"]  # 12 × 12 × 768² and the tied table twice
    assert lines["cache, 1,024 tokens"][3:] == ["72.0", "MiB", "36.0", "MiB"]
    assert "2 × layers × key/value heads × head width" in answer.out
    assert "training 3 ×" in answer.out


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("bert", "t5") else [pytest.mark.slow]) for name in FAMILIES]
)
def test_a_family_is_a_line_for_every_size(call, name):
    assert set(asked(call, FAMILIES[name].name)) == set(FAMILIES[name].sizes)
    answer = call("size", name)
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == list(FAMILIES[name].sizes)


def test_every_registered_network_has_a_page(call, tmp_path):
    for name in ("seq2seq", "bahdanau", "luong"):
        (tmp_path / "one.toml").write_text(f'task = "translation"\ndata = "copy"\nmodel = "{name}"\n')
        answer = call("size", tmp_path / "one.toml")
        assert (answer.code, answer.err) == (0, "")
        assert f"{name}, 1 layer of gru" in answer.out
        assert ("cache, a token" in answer.out) == (name != "seq2seq")
        assert "activations" not in answer.out  # nothing is known of them, and nothing is said
        record = asked(call, tmp_path / "one.toml")
        assert sum(record["parameters"].values()) == 2 * record["parameters"]["total"]
        config = NETWORKS[name].config(vocabulary=record["vocabulary_at_most"])
        assert record["parameters"]["total"] == sum(one.numel() for one in config.build().parameters())


def test_longer_texts_take_more_cache_and_more_work_and_no_more_weights(call):
    short, long = asked(call, "llama-7b"), asked(call, "llama-7b", "--context", 4096)
    assert (short["context"], long["context"]) == (2048, 4096)
    assert long["parameters"] == short["parameters"]
    assert long["bytes"]["whole_cache"]["float32"] == 2 * short["bytes"]["whole_cache"]["float32"]
    work = long["flops_per_token"]["forward"] - short["flops_per_token"]["forward"]
    assert work == 4 * 32 * 4096 * 2048 / 2


def test_a_folder_and_the_recipe_it_came_from(call, model):
    total = sum(parameter.numel() for parameter in load_model(model).parameters())
    assert asked(call, model)["parameters"]["total"] == total
    assert asked(call, model / "recipe.toml")["parameters"]["total"] == total
    assert asked(call, RECIPE)["parameters"]["total"] > total


def test_a_recipe_gives_its_window_and_of_the_vocabulary_what_can_be_known_before_it_is_learnt(call, tmp_path):
    record = asked(call, "gpt-shakespeare")
    assert (record["context"], record["vocabulary_at_most"]) == (256, 512)
    assert "vocabulary at most 512, texts of 256 tokens" in call("size", "gpt-shakespeare").out
    assert asked(call, "gpt-shakespeare", "--context", 31)["context"] == 31
    assert asked(call, "sst")["context"] == 64
    assert asked(call, "dates")["context"] == 512, "pairs are read whole"
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 31)
    data = {"train": "text.txt", "valid": "text.txt", "folder": str(tmp_path), "window": 13, "format": "whole"}
    shape = {"architecture": "decoder", "width": 12, "heads": 2, "layers": 1}
    values = {"task": "language_modelling", "data": data, "tokenizer": {"kind": "characters"}, "model": shape}
    plan = Recipe.model_validate(values | {"training": {"steps": 1, "batch_tokens": 64, "warmup": 1}})
    regard.train(plan, tmp_path / "run")
    record = asked(call, tmp_path / "run")
    assert (record["context"], record["vocabulary"]) == (13, len(set("to be or not to be\n")) + 4)
    assert f"vocabulary {record['vocabulary']}, texts of 13 tokens" in call("size", tmp_path / "run").out


def test_a_folder_of_another_library(call, tmp_path):
    shape = {
        "width": 12,
        "heads": 3,
        "layers": 2,
        "vocabulary": 31,
        "max_positions": 17,
        "head": "none",
        "pooled": True,
    }
    family = FAMILIES["bert"]
    module = Transformer(TransformerConfig(**(family.shape | shape | {"output_bias": False})))
    write_model(tmp_path / "bert", module, family)
    total = sum(parameter.numel() for parameter in module.parameters())
    assert asked(call, tmp_path / "bert")["parameters"]["total"] == total
    (tmp_path / "bert" / "model.safetensors").unlink()
    assert asked(call, tmp_path / "bert")["parameters"]["total"] == total - (12 + 1) * 12, "the pooler is not known of"


def test_a_file_of_llama2c(call, tmp_path):
    path = tmp_path / "model.bin"
    numbers = (8, 11, 2, 2, 1, -13, 7)
    layer = 2 * 8 + 2 * 8 * 8 + 2 * 4 * 8 + 3 * 8 * 11
    weights = 2 * 13 * 8 + 2 * layer + 8
    path.write_bytes(struct.pack("<7i", *numbers) + bytes(4 * (weights + 2 * 7 * 2)))
    assert asked(call, path)["parameters"]["total"] == weights


def test_every_shipped_recipe_has_a_size(call):
    from regard.tasks.recipe import read_recipe, shipped

    for name in shipped().keys() - FAMILIES.keys():  # a family of the same name comes first
        if read_recipe(name).model.begins_in is not None:  # that is the size of a user's folder
            continue
        assert asked(call, name)["parameters"]["total"] > 0


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gpt2-xxl", "'gpt2-xxl' is no family, size, recipe or model folder; did you mean 'gpt2-xl'?"),
        ("none.toml", "there is no recipe 'none.toml'"),
        ("empty", "config.json does not exist; give the folder of a trained model"),
        ("damaged", "config.json is damaged"),
        ("strange", "model_type = 'mamba', a family that is not known here"),
        ("odd", "activation_function = 'unheard-of' is not known"),
        ("x" * 300, "is no family"),
    ],
)
def test_what_has_no_size_is_refused_in_a_sentence(call, tmp_path, what, said):
    files = {
        "damaged": "{",
        "strange": json.dumps({"model_type": "mamba"}),
        "odd": json.dumps({"model_type": "gpt2", "activation_function": "unheard-of"}),
    }
    Path("empty").mkdir()
    for name, content in files.items():
        Path(name).mkdir()
        (Path(name) / "config.json").write_text(content)
    answer = call("size", what)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1
    assert json.loads(call("size", what, "--json").err).keys() == {"error", "remedy"}


def test_the_library_says_the_same(call):
    size = size_of(FAMILIES["t5"].config("t5-small"))
    record = asked(call, "t5-small")
    assert record["flops_per_token"] == {"forward": size.work.forward, "training": size.work.training}
    assert record["bytes"]["state"] == vars(size.state)

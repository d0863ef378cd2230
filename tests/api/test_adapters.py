"""Adapters beside a base: what they change, what they leave, what is kept of them, and what is refused."""

import copy
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.api.training import prepare
from regard.models.lora import adapted, identity, merge
from regard.tasks.recipe import Recipe, change_recipe
from rounding import assert_close

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
LABELLED = "".join(f"{word} is good\tyes\n{word} is bad\tno\n" for word in WORDS)
TRAINING = {"steps": 4, "batch_tokens": 100, "warmup": 1, "compile": False, "evaluate_every": 2, "save_every": 2}
SMALL = {"width": 12, "heads": 2, "layers": 2, "feedforward_width": 7, "architecture": "encoder", "head": "masked"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A masked model to begin in, `base`, another one, `other`, and files to learn from."""
    found = tmp_path_factory.mktemp("adapters")
    (found / "labels.tsv").write_text(LABELLED)
    (found / "text.txt").write_text(LABELLED.replace("\t", " ") * 3)
    for name, seed in (("base", 0), ("other", 1)):
        values = {"task": "masked", "data": data(found, "text.txt"), "model": SMALL}
        tables = {"tokenizer": {"kind": "wordpiece", "size": 80}, "training": TRAINING | {"steps": 1, "seed": seed}}
        regard.train(Recipe.model_validate(values | tables), found / name, progress=False)
    return found


def data(folder: Path, name: str) -> dict[str, object]:
    return {"train": name, "folder": str(folder), "window": 9}


def recipe(folder: Path, **adapter: object) -> Recipe:
    table = {"rank": 2, "alpha": 3.0, "targets": ["query", "up"], **adapter}
    model = {"from": str(folder / "base"), "adapter": table}
    training = TRAINING | {"learning_rate": 0.05}
    return Recipe.model_validate(
        {"task": "classification", "data": data(folder, "labels.tsv"), "model": model, "training": training}
    )


@pytest.fixture(scope="module")
def trained(folder) -> regard.Model:
    return regard.train(recipe(folder, dropout=0.1), folder / "run", progress=False)


TEXTS = ["one is good", "seven is bad and two is good"]


def probabilities(model: regard.Model) -> torch.Tensor:
    return torch.tensor([[answer[name] for name in ("yes", "no")] for answer in model.run(TEXTS)])


# What it is


def test_adapters_change_nothing_before_the_first_step(folder):
    made = prepare(recipe(folder), None)
    batch = made.training_data.validation[0].inputs
    with torch.no_grad():
        network = made.module.eval()
        beside = network(batch)
        assert adapted(network)
        assert torch.equal(merge(copy.deepcopy(network))(batch), beside)
        for _, one, _ in adapted(network):
            one.adapter = None
        assert torch.equal(network(batch), beside)


def test_what_it_adds_is_hus_formula(folder, trained):
    """`W x + b + α/r · B (A x)` (Hu et al. 2021, eq. 3), written out in float64."""
    [(name, one, low), *_] = adapted(trained.module)
    inputs = torch.randn(3, 5, one.in_features, dtype=torch.float64)
    weight, bias = one.weight.double(), one.bias.double()
    expected = inputs @ weight.T + bias + 3.0 / 2 * ((inputs @ low.down.double().T) @ low.up.double().T)
    assert_close(copy.deepcopy(one).double()(inputs), expected, 1e-12)
    assert bool(low.up.ne(0).any()), name


def test_only_adapters_and_the_new_head_learn_and_are_kept(folder, trained):
    base = regard.load(folder / "base").module.state_dict()
    for name, tensor in trained.module.state_dict().items():
        if name in base and not name.startswith("output."):
            assert torch.equal(tensor, base[name]), name
    kept = set(load_file(folder / "run/state/step-4/model.safetensors"))
    assert {name.partition(".adapter.")[0].rpartition(".")[2] for name in kept if "adapter" in name} == {"query", "up"}
    heads = {"output.weight", "output.bias", "pooler.linear.weight", "pooler.linear.bias"}
    assert {name for name in kept if "adapter" not in name} == heads
    assert len(kept) == len(heads) + 2 * 2 * 2
    assert not (folder / "run/model.safetensors").exists()


def test_merged_equals_unmerged(folder, trained, tmp_path):
    trained.save(tmp_path / "merged")
    assert not adapted(regard.load(tmp_path / "merged").module)
    assert_close(probabilities(regard.load(tmp_path / "merged")), probabilities(trained), 1e-5)


def test_a_run_is_loaded_alone_or_by_name_beside_its_base(folder, trained):
    alone = regard.load(folder / "run")
    base = regard.load(folder / "base", adapters={"mine": folder / "run", "again": folder / "run"})
    assert base.task.name == "masked"
    assert set(base.adapters) == {"mine", "again"}
    for model in (alone, *base.adapters.values()):
        assert model.task.name == "classification"
        assert model.recipe == trained.recipe
        assert_close(probabilities(model), probabilities(trained), 1e-6)
    assert len(base.run("one is [MASK]")[0]) == 5


def test_adapters_share_the_weights_of_their_base_packed_or_plain(folder, trained):
    base = regard.load(folder / "base", adapters={"a": folder / "run", "b": folder / "run"})
    name = "encoder.layers.1.self_attention.key"
    tables = [one.module.get_submodule(name)._parameters for one in (base, *base.adapters.values())]
    assert tables[0] is tables[1] is tables[2]
    before = probabilities(base.adapters["a"])
    base.run("one is [MASK]")
    assert_close(probabilities(base.adapters["b"]), before, 1e-6)
    moved = base.to(precision="bfloat16").adapters["a"]
    assert {one.dtype for one in moved.module.parameters()} == {torch.bfloat16}
    assert_close(probabilities(moved), before, 0.05)


def test_training_goes_on_where_it_was_stopped_bit_for_bit(folder, trained, tmp_path):
    plan = recipe(folder, dropout=0.1)
    regard.train(change_recipe(plan, ["training.steps=2"]), tmp_path / "run", progress=False)
    regard.train(None, tmp_path / "run", changes=["training.steps=4"], resume=True, progress=False)
    for name in ("adapter_model.safetensors", "state/step-4/model.safetensors", "state/step-4/optimizer.safetensors"):
        one, two = load_file(folder / "run" / name), load_file(tmp_path / "run" / name)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one), name


def test_the_model_may_be_the_mean_of_the_last_states(folder, tmp_path):
    plan = change_recipe(recipe(folder), ["training.average=2"])
    regard.train(plan, tmp_path / "run", progress=False)
    states = [load_file(tmp_path / f"run/state/step-{step}/model.safetensors") for step in (2, 4)]
    found = load_file(tmp_path / "run/adapter_model.safetensors")
    mean = (states[0]["output.bias"] + states[1]["output.bias"]) / 2
    assert_close(found["base_model.model.output.bias"], mean, 1e-6)


def test_training_begins_in_an_adapters_folder_with_its_weights_merged(folder, trained):
    values = recipe(folder).model_dump(mode="json", by_alias=True, exclude_none=True)
    values["model"] = {"from": str(folder / "run")}
    made = prepare(Recipe.model_validate(values), None)
    whole = merge(copy.deepcopy(trained.module)).state_dict()
    found = made.module.state_dict()
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)


# What is refused


def test_an_adapter_of_another_base_is_refused(folder, trained, tmp_path):
    with pytest.raises(
        regard.FileError, match=r"is an adapter of the base \w{12}…, and these weights are \w{12}…; name"
    ):
        regard.load(folder / "other", adapters={"mine": folder / "run"})
    base = identity(regard.load(folder / "base").module)
    assert base != identity(regard.load(folder / "other").module)
    shutil.copytree(folder / "base", tmp_path / "moved")
    assert identity(regard.load(tmp_path / "moved").module) == base


def test_a_base_that_changed_is_noticed_when_a_run_goes_on(folder, trained, tmp_path):
    shutil.copytree(folder / "base", tmp_path / "base")
    plan = change_recipe(recipe(folder), [f"model.from={tmp_path / 'base'}", "training.steps=2"])
    regard.train(plan, tmp_path / "run", progress=False)
    shutil.copy(folder / "other/model.safetensors", tmp_path / "base/model.safetensors")
    with pytest.raises(regard.FileError, match=r"base is not what it was when the run in .* began"):
        regard.train(None, tmp_path / "run", changes=["training.steps=4"], resume=True, progress=False)


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        ({"rank": 0}, r"rank = 0 cannot be used .*; it should be greater than or equal to 1"),
        (
            {"rank": 8},
            r"rank = 8 is more than encoder.layers.0.feedforward.up has, a map from 12 to 7; use a rank of 7",
        ),
        ({"targets": ["querry"]}, r"targets: 'querry' names no map of this network; did you mean 'query'\? known: "),
        ({"targets": ["pooler.linear"]}, "'pooler.linear' names no map of this network"),
        ({"targets": []}, r"targets = \[\] cannot be used"),
        ({"name": "dora"}, "name = 'dora' cannot be used"),
        ({"ranks": 3}, r"key 'ranks' is unknown; did you mean 'rank'\?"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(folder, adapter, said):
    with pytest.raises(regard.ConfigError, match=said):
        prepare(recipe(folder, **adapter), None)


def test_an_adapter_of_a_network_that_is_drawn_anew_is_refused():
    with pytest.raises(regard.ConfigError, match="'adapter' has no effect on a transformer network that is drawn anew"):
        Recipe.model_validate({"model": {"adapter": "lora"}})


def test_freezing_beside_an_adapter_is_refused(folder):
    with pytest.raises(regard.ConfigError, match=r"freeze has no effect beside \[model.adapter\]"):
        change_recipe(recipe(folder), ['training.freeze=["embedding"]'])


def broken(folder: Path, into: Path, how: str) -> Path:
    shutil.copytree(folder / "run", into, ignore=shutil.ignore_patterns("state"))
    weights, config = into / "adapter_model.safetensors", into / "adapter_config.json"
    tensors = load_file(weights)
    first = next(name for name in tensors if "lora_A" in name)
    if how == "cut short":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "pickle":
        weights.rename(into / "adapter_model.bin")
    elif how == "absent":
        weights.unlink()
    elif how == "no head":
        save_file({name: one for name, one in tensors.items() if not name.endswith("output.bias")}, weights)
    elif how == "half a pair":
        save_file({name: one for name, one in tensors.items() if name != first}, weights)
    elif how == "other width":
        save_file(tensors | {first: torch.zeros(2, 13)}, weights)
    elif how == "unknown map":
        save_file(tensors | {first.replace("layers.0", "layers.9"): tensors[first].clone()}, weights)
    elif how == "unknown tensor":
        save_file(tensors | {"base_model.model.gate.weight": torch.zeros(2, 13)}, weights)
    else:
        values = json.loads(config.read_text())
        key, _, value = how.partition("=")
        config.write_text(json.dumps(values | {key: json.loads(value)}))
    return into


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut short", "adapter_model.safetensors is damaged: "),
        ("pickle", "adapter_model.bin is a pickle, which can run any program when it is opened; save it again"),
        ("absent", "has no adapter_model.safetensors; train it to its first evaluation, or copy it again"),
        ("no head", "lacks the tensor 'output.bias'"),
        ("half a pair", r"lacks the tensor 'encoder.layers.\d.\w+.\w+.lora_A.weight'"),
        ("other width", r"has an adapter from 13 to \d+ numbers at 'encoder.* where this base has a map from 12 to"),
        ("unknown map", "has an adapter of 'encoder.layers.9.* which this base does not have; name the base"),
        ("unknown tensor", "has a tensor 'gate.weight' this base does not know"),
        ("r=5", "has an adapter of rank 2 at 'encoder.* and its config says r = 5"),
        ("use_dora=true", "says use_dora = True, which is not known here; this version reads adapters with use_dora"),
        ('peft_type="IA3"', "says peft_type = 'IA3', which is not known here"),
        ('bias="all"', "says bias = 'all', which is not known here"),
        ('init_lora_weights="pissa"', "says init_lora_weights = 'pissa', which is not known here"),
    ],
)
def test_a_broken_adapter_is_named_in_one_sentence(folder, trained, tmp_path, how, said):
    bad = broken(folder, tmp_path / "bad", how)
    with pytest.raises(regard.FileError, match=said) as error:
        regard.load(folder / "base", adapters={"bad": bad})
    assert str(tmp_path) in error.value.problem


def test_a_folder_that_is_no_adapter_and_a_base_that_is_gone_are_named(folder, trained, tmp_path):
    with pytest.raises(regard.FileError, match=r"base is no adapter; give a folder with adapter_config.json"):
        regard.load(folder / "base", adapters={"mine": folder / "base"})
    lost = broken(folder, tmp_path / "lost", 'base_model_name_or_path="bert-base-uncased"')
    with pytest.raises(
        regard.FileError, match=r"is an adapter of bert-base-uncased, which is no folder here; name the"
    ):
        regard.load(lost)
    assert_close(
        probabilities(regard.load(folder / "base", adapters={"x": lost}).adapters["x"]), probabilities(trained), 1e-6
    )

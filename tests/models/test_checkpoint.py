"""A model in a folder: what is loaded equals what was saved, and anything else is refused by name."""

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.data.batching import Inputs, Padded
from regard.errors import FileError
from regard.files import PARTIAL
from regard.models.checkpoint import load_model, load_tensors, save_model, save_tensors
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

ARCHITECTURES = ("encoder_decoder", "encoder", "decoder")
INPUTS = Inputs(Padded.of([[1, 5, 7, 3], [1, 2]]), Padded.of([[4, 6, 8], [9, 3, 5]]))
BASE = {"vocabulary": 11, "width": 12, "heads": 3, "layers": 2, "feedforward_width": 7, "max_positions": 13}


def built(**shape: object) -> Transformer:
    return Transformer(TransformerConfig.model_validate(BASE | shape)).eval()


def saved(folder: Path, **shape: object) -> Transformer:
    model = built(**shape)
    save_model(folder, model)
    return model


def assert_same_model(loaded: Transformer, model: Transformer) -> None:
    assert loaded.config == model.config
    one, other = loaded.state_dict(), model.state_dict()
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert torch.equal(one[name], other[name]), name
    with torch.no_grad():
        assert torch.equal(loaded(INPUTS), model(INPUTS))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_every_architecture_comes_back_equal(tmp_path, architecture, tied):
    model = saved(tmp_path, architecture=architecture, tie_embeddings=tied)
    assert_same_model(load_model(tmp_path), model)


@pytest.mark.parametrize(
    "shape",
    [
        {"positions": "learned"},
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"positions": "t5"},
        {"positions": "none"},
        {"similarity": "general"},
        {"similarity": "additive"},
        {"similarity": "cosine"},
        {"norm": "rms", "norm_placement": "pre"},
        {"feedforward": "swiglu", "key_value_heads": 1},
        {"feedforward": "geglu", "scale_embeddings": False},
    ],
    ids=str,
)
def test_every_part_comes_back_equal(tmp_path, shape):
    """Whatever a part keeps or computes: nothing is left behind on the way."""
    model = saved(tmp_path, **shape)
    assert_same_model(load_model(tmp_path), model)


def test_saving_what_was_loaded_writes_the_same_bytes(tmp_path):
    saved(tmp_path / "one")
    save_model(tmp_path / "two", load_model(tmp_path / "one"))
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_loaded_model_is_ready_to_answer_and_to_be_trained(tmp_path):
    saved(tmp_path, dropout=0.5)
    model = load_model(tmp_path)
    assert not model.training
    assert all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in model.parameters())
    model(INPUTS).sum().backward()


def test_a_tied_table_is_written_once(tmp_path):
    saved(tmp_path / "tied")
    saved(tmp_path / "untied", tie_embeddings=False)
    names = [set(load_file(tmp_path / kind / "model.safetensors")) for kind in ("tied", "untied")]
    assert names[1] - names[0] == {"output.weight"}


def test_the_config_says_what_it_is(tmp_path):
    saved(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard-transformer"


# Damage


def change_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


DAMAGE = {
    "missing tensor": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("embedding.weight")),
        r"model\.safetensors lacks the tensor 'embedding\.weight'",
    ),
    "extra tensor": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update(spare=torch.zeros(2))),
        r"model\.safetensors has a tensor 'spare' this model does not know",
    ),
    "wrong shape": (
        lambda folder: change_tensors(
            folder, lambda tensors: tensors.update({"embedding.weight": torch.zeros(11, 13)})
        ),
        r"'embedding\.weight' shaped \[11, 13\], the config \[11, 12\]",
    ),
    "whole numbers": (
        lambda folder: change_tensors(
            folder, lambda tensors: tensors.update({"embedding.weight": torch.zeros(11, 12, dtype=torch.int64)})
        ),
        r"'embedding\.weight' as torch\.int64, the model needs torch\.float32",
    ),
    "config of a wider model": (
        lambda folder: change_config(folder, width=24),
        r"shaped \[11, 12\], the config \[11, 24\]",
    ),
    "config of a deeper model": (lambda folder: change_config(folder, layers=3), "lacks the tensor"),
    "config of a shallower model": (lambda folder: change_config(folder, layers=1), "this model does not know"),
    "weights cut": (lambda folder: cut(folder / "model.safetensors", -5), r"model\.safetensors is damaged"),
    "weights cut in their header": (lambda folder: cut(folder / "model.safetensors", 20), "is damaged"),
    "weights empty": (lambda folder: cut(folder / "model.safetensors", 0), "is damaged"),
    "weights missing": (lambda folder: (folder / "model.safetensors").unlink(), "does not exist"),
    "config missing": (lambda folder: (folder / "config.json").unlink(), r"config\.json does not exist"),
    "config cut": (lambda folder: cut(folder / "config.json", -5), r"config\.json is damaged"),
    "config not an object": (lambda folder: (folder / "config.json").write_text("[]"), "holds list, not an object"),
    "unknown key": (lambda folder: change_config(folder, widht=3), r"key 'widht' is unknown; did you mean 'width'"),
    "impossible value": (
        lambda folder: change_config(folder, heads=5),
        "width 12 does not split into 5 heads; use 1, 2",
    ),
    "another model": (lambda folder: change_config(folder, model_type="bert"), "describes a 'bert' model"),
    "no model type": (lambda folder: change_config(folder, model_type=None), "does not say its model_type"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_does_not_fit_is_named(tmp_path, damage):
    saved(tmp_path)
    harm, said = DAMAGE[damage]
    harm(tmp_path)
    with pytest.raises(FileError, match=said) as caught:
        load_model(tmp_path)
    assert str(tmp_path) in caught.value.problem
    assert caught.value.remedy


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileError, match="none is not a folder; give the folder of a trained model"):
        load_model(tmp_path / "none")


# Pickles


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_place_of_weights_is_refused_and_never_opened(tmp_path):
    saved(tmp_path)
    sprung = tmp_path / "sprung"
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps({"embedding.weight": Trap(sprung)}))
    with pytest.raises(FileError, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)
    torch.save({"embedding.weight": torch.zeros(11, 12)}, tmp_path / "model.safetensors")
    with pytest.raises(FileError, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)
    assert not sprung.exists()


def test_nothing_that_is_written_is_a_pickle(tmp_path):
    saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    head = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(head[:8], "little")
    assert {"embedding.weight"} <= set(json.loads(head[8 : 8 + size]))


# Tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
def test_tensors_come_back_equal_whatever_their_layout(tmp_path, dtype):
    tensors = {"turned": torch.arange(6).reshape(2, 3).to(dtype).T, "scalar": torch.ones((), dtype=dtype)}
    save_tensors(tmp_path / "some.safetensors", tensors)
    loaded = load_tensors(tmp_path / "some.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == dtype
        assert torch.equal(loaded[name], tensor)


def test_whatever_stands_in_the_folder_during_a_save_has_the_name_of_something_half_written(tmp_path):
    """Else a kill at that moment would leave it there for good: the library writes to a file of its own choice."""
    tensors = {"weight": torch.zeros(2**24)}
    with ThreadPoolExecutor(1) as other:
        saving = other.submit(save_tensors, tmp_path / "model.safetensors", tensors)
        seen = set()
        while not saving.done():
            seen |= set(os.listdir(tmp_path))
        saving.result()
    assert any(name.startswith(PARTIAL) for name in seen)
    assert {name for name in seen if not name.startswith(PARTIAL)} <= {"model.safetensors"}
    assert os.listdir(tmp_path) == ["model.safetensors"]

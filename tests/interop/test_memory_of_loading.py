"""Loading takes the memory of the weights and little more: from one file, from shards, as float32 and as bfloat16."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard.files import write_json
from regard.interop.names import hf_tensors
from regard.models.families import FAMILIES
from regard.models.transformer import Transformer

TOUCHING = """
def work(model):
    for one in model.parameters():
        one.detach().flatten()[::512].clone()  # every page is there now, mapped or not
"""
CODE = """
import json, sys
from pathlib import Path
import torch
import regard.interop.huggingface as huggingface

def memory(name):
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index(name + ":") + 1]) * 1024

small, large = map(Path, sys.argv[1:])
work(huggingface.read_model(small))  # what is imported and allocated once, whatever the size
before = memory("VmRSS")
model = huggingface.read_model(large)
work(model)
taken = memory("VmHWM") - before
total = sum(one.numel() * one.element_size() for one in model.parameters())
print(json.dumps({"weights": total, "taken": taken}))
"""
GENERATING = """
import regard
from regard.data.batching import Inputs, Padded
from regard.layers.linear import keep_packed

def work(model):
    keep_packed(model)  # as `regard.load` does
    inputs = Inputs(Padded.of([[3, 5, 7, 11]]))
    regard.generate(model, inputs, regard.Greedy(), regard.Stop(-1, 5))
"""
SHAPES = {
    "gpt": {"layers": 4, "width": 1280, "heads": 20, "vocabulary": 29_000},
    "llama": {"layers": 5, "width": 1024, "heads": 16, "feedforward_width": 2816, "vocabulary": 32_000},
    "t5": {"layers": 4, "width": 1024, "heads": 16, "vocabulary": 32_128},
}
LIMIT = 1.2


def write(folder: Path, family: str, dtype: torch.dtype, shards: int, **changes: int) -> Path:
    """A folder of Hugging Face's with noughts for weights, in one file or several."""
    page = FAMILIES[family]
    size = next(iter(page.sizes))
    config = page.config(size).model_copy(update=SHAPES[family] | changes)
    with torch.device("meta"):
        module = Transformer(config)
    actual = {name: torch.zeros(one.shape, dtype=dtype) for name, one in module.state_dict().items()}
    peer = hf_tensors(page.names(config), actual)
    folder.mkdir()
    write_json(folder / "config.json", page.write(config))
    if shards == 1:
        save_file(peer, folder / "model.safetensors")
        return folder
    names = {name: f"model-{place % shards}.safetensors" for place, name in enumerate(peer)}
    for file in set(names.values()):
        save_file({name: one for name, one in peer.items() if names[name] == file}, folder / file)
    write_json(folder / "model.safetensors.index.json", {"weight_map": names})
    return folder


def measured(work: str, small: Path, large: Path) -> dict[str, int]:
    """What a process of its own takes for a large model, beyond what it took for a small one."""
    command = [sys.executable, "-c", work + CODE, small, large]
    done = subprocess.run(command, capture_output=True, check=True, env=os.environ)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", list(SHAPES))
def test_loading_takes_at_most_a_fifth_more_than_the_weights(family, dtype, shards, tmp_path):
    small = write(tmp_path / "small", family, dtype, shards, layers=1, width=64, heads=2, vocabulary=97)
    large = write(tmp_path / "large", family, dtype, shards)
    found = measured(TOUCHING, small, large)
    print(family, dtype, shards, found, found["taken"] / found["weights"])
    assert found["weights"] > 1.2e8
    assert 0.9 < found["taken"] / found["weights"] <= LIMIT


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loading_and_generating_takes_the_weights_once(dtype, tmp_path):
    """Grouped heads and a large table that is read from both ends."""
    shape = {"heads": 9, "key_value_heads": 3, "width": 576, "feedforward_width": 1536, "tie_embeddings": True}
    small = write(tmp_path / "small", "llama", dtype, 1, **shape, layers=1, vocabulary=97)
    large = write(tmp_path / "large", "llama", dtype, 1, **shape, layers=30, vocabulary=49_152)
    found = measured(GENERATING, small, large)
    print(dtype, found, found["taken"] / found["weights"])
    assert 0.9 < found["taken"] / found["weights"] <= 1.1

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

CODE = """
import json, sys
from pathlib import Path
import torch
import regard.interop.huggingface as huggingface

def memory(name):
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index(name + ":") + 1]) * 1024

small, large = map(Path, sys.argv[1:])
huggingface.read_model(small)  # what is imported and allocated once, whatever the size
before = memory("VmRSS")
model = huggingface.read_model(large)
total = sum(one.numel() * one.element_size() for one in model.parameters())
for one in model.parameters():
    one.detach().flatten()[::512].clone()  # every page is there now, mapped or not
print(json.dumps({"weights": total, "taken": memory("VmHWM") - before}))
"""
SHAPES = {
    "gpt": {"layers": 4, "width": 1280, "heads": 20, "vocabulary": 29_000},
    "llama": {"layers": 5, "width": 1024, "heads": 16, "feedforward_width": 2816, "vocabulary": 32_000},
    "t5": {"layers": 4, "width": 1024, "heads": 16, "vocabulary": 32_128},
}
LIMIT = 1.2


def write(folder: Path, family: str, dtype: torch.dtype, shards: int, **changes: int) -> Path:
    """A folder of theirs with noughts for weights, in one file or several."""
    page = FAMILIES[family]
    size = next(iter(page.sizes))
    config = page.config(size).model_copy(update=SHAPES[family] | changes)
    with torch.device("meta"):
        module = Transformer(config)
    ours = {name: torch.zeros(one.shape, dtype=dtype) for name, one in module.state_dict().items()}
    theirs = hf_tensors(page.names(config), ours)
    folder.mkdir()
    write_json(folder / "config.json", page.write(config))
    if shards == 1:
        save_file(theirs, folder / "model.safetensors")
        return folder
    names = {name: f"model-{place % shards}.safetensors" for place, name in enumerate(theirs)}
    for file in set(names.values()):
        save_file({name: one for name, one in theirs.items() if names[name] == file}, folder / file)
    write_json(folder / "model.safetensors.index.json", {"weight_map": names})
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", list(SHAPES))
def test_loading_takes_at_most_a_fifth_more_than_the_weights(family, dtype, shards, tmp_path):
    small = write(tmp_path / "small", family, dtype, shards, layers=1, width=64, heads=2, vocabulary=97)
    large = write(tmp_path / "large", family, dtype, shards)
    done = subprocess.run([sys.executable, "-c", CODE, small, large], capture_output=True, check=True, env=os.environ)
    found = json.loads(done.stdout)
    print(family, dtype, shards, found, found["taken"] / found["weights"])
    assert found["weights"] > 1.2e8
    assert 0.9 < found["taken"] / found["weights"] <= LIMIT

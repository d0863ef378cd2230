"""What decoding holds on to: the cache, and nothing of the steps before."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
from pathlib import Path
from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.models.config import TransformerConfig

torch.set_num_threads(1)
sizes = {"vocabulary": 20_000, "width": 32, "heads": 2, "layers": 2, "norm_placement": "pre"}
exact = TransformerConfig(architecture="decoder", positions="rotary", **sizes).build().eval()
linear = TransformerConfig(architecture="decoder", attention="linear", **sizes).build().eval()


def peak(model, strategy, tokens):
    Path("/proc/self/clear_refs").write_text("5")
    [found] = generate(model, Inputs(Padded.of([[5, 3]])), strategy, Stop(-5, tokens))
    assert len(found.ids) == tokens
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


for model, strategy, devices in (
    (exact, Greedy(), set()),
    (exact, Sample(top_k=5), set()),
    (exact, Greedy(), {"cpu"}),  # the engine, in place
    (linear, Greedy(), {"cpu"}),  # the engine's rows in groups
):
    paths.DEVICES = devices
    peak(model, strategy, 100)
    print(peak(model, strategy, 2000) - peak(model, strategy, 100))
"""
CACHE = 2 * 2 * 2000 * 32 * 4 // 1024
"""Of keys and values of two layers, in KiB; the logits of 2,000 steps would be 156,250."""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the peak")
@pytest.mark.slow
def test_two_thousand_tokens_take_no_more_than_the_cache():
    """Room is made by quarters, and the old is let go when the new is there: three caches at the most."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    for more in map(int, done.stdout.split()):
        assert more < 3 * CACHE + 8 * 1024

"""Attention of one token per row as one kernel for a GPU, run by Triton's interpreter; on a GPU in tests/gpu."""

import os
import subprocess
import sys

import pytest

STEPS = """
import torch
from regard.attention import step_triton
from regard.attention.cache import StaticKeyValues
from regard.attention.rotary import Rotation
from regard.attention.step_triton import StepShape, attend_plain, attend_step, runs_here

torch.manual_seed(0)


def compare(shape, lengths, dtype, near, turns):
    rows, width, room = len(lengths), shape.head_width, max(lengths) + 3
    lengths = torch.tensor(lengths)
    mixed = torch.randn(rows, (shape.heads + 2 * shape.key_value_heads) * width).to(dtype)
    memory = torch.randn(2, rows + 1, shape.key_value_heads, room + 5, width).to(dtype)
    behind = torch.arange(room + 5) >= torch.cat([lengths, lengths[:1]])[:, None]
    angles = (lengths[:, None] * torch.linspace(0.1, 1, width // 2)).view(rows, 1, 1, -1)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype)) if turns else None
    found = []
    for attend, rest in ((attend_step, torch.nan), (attend_plain, 0.0)):  # what stands behind a row is never read
        held = StaticKeyValues(*memory.masked_fill(behind[:, None, :, None], rest)).part(rows, room)
        out = attend(mixed, held, lengths, rotation, shape)
        every = torch.arange(rows)
        found.append((out, held.keys[every, :, lengths], held.values[every, :, lengths]))
    for own, plain in zip(*found, strict=True):
        assert own.dtype == dtype and (own.double() - plain.double()).abs().max() <= near, (shape, lengths, dtype)


for dtype, near in ((torch.float32, 2e-6), (torch.float64, 1e-14), (torch.float16, 5e-3)):
    assert runs_here(torch.empty(0, dtype=dtype))
    compare(StepShape(3, 3, 5, 0.3), [1, 33], dtype, near, False)
    compare(StepShape(6, 2, 6, 0.4, window=9), [40, 64, 3], dtype, near, True)
    step_triton.PART = 64  # several parts of a long row
    compare(StepShape(2, 1, 64, 0.1), [255, 256, 0], dtype, near, True)
    compare(StepShape(2, 1, 64, 0.1, window=130), [255, 7], dtype, near, False)
    step_triton.MANY = 0  # small blocks, as where there are many rows
    compare(StepShape(2, 2, 128, 0.1), [0, 31, 32, 65], dtype, near, True)
    step_triton.PART, step_triton.MANY = 512, 264
print("equal")
"""


def test_the_kernel_reads_and_writes_what_plain_attention_does():
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", STEPS], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr

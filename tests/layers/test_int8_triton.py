"""The kernel for a GPU, run by Triton's interpreter where Triton is; on a GPU itself it is in tests/gpu."""

import os
import subprocess
import sys

import pytest

PRODUCTS = """
import torch
from regard.layers.int8_triton import int8_times

torch.manual_seed(0)
for rows, width, out in ((1, 43, 53), (3, 1024, 8), (2, 2051, 17), (4, 16, 1)):
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 5e-3)):
        inputs, scales = torch.randn(rows, width).to(dtype), torch.rand(out)
        numbers = torch.randint(-127, 128, (out, width), dtype=torch.int8)
        expected = inputs.double() @ numbers.double().T * scales.double()
        found = int8_times(inputs, numbers, scales)
        assert found.dtype == dtype
        assert (found.double() - expected).abs().max() <= near * expected.abs().max()
print("equal")
"""


def test_it_is_the_product_with_the_rounded_weight():
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal\n", done.stderr

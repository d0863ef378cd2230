"""Kernels for a GPU between and in the products of a step, run by Triton's interpreter; on a GPU in tests/gpu.

Each script runs in a process of its own: Triton decides when it is imported whether it interprets. It computes bfloat16
by cutting digits off, so half precision is float16 here.
"""

import os
import subprocess
import sys

import pytest
import torch

from regard.layers import triton_kernel

PRODUCTS = """
import torch
from regard.layers.few_rows_triton import few_rows_times, suits

torch.manual_seed(0)
sizes = ((1, 43, 53), (1, 2051, 17), (1, 16, 1), (3, 300, 19), (16, 75, 37))
for rows, width, out in sizes:
    for dtype, near in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        for rounded in (False, True):
            if rows > 1 and (not rounded or dtype == torch.float32):
                continue
            inputs, bias = torch.randn(rows, width).to(dtype), torch.randn(out).to(dtype)
            scales = torch.rand(out) / 64 if rounded else None
            weight = torch.randint(-128, 128, (out, width))
            weight = weight.to(torch.int8) if rounded else (weight / 64).to(dtype)
            expected = inputs.double() @ weight.double().T
            expected = expected * scales.double() if rounded else expected
            assert suits(inputs, weight)
            for added in (None, bias):
                found = few_rows_times(inputs, weight, scales, added)
                assert found.dtype == dtype
                right = expected if added is None else expected + bias.double()
                assert (found.double() - right).abs().max() <= near * right.abs().max()
assert not suits(torch.randn(17, 4), torch.zeros(3, 4, dtype=torch.int8))
assert not suits(torch.randn(2, 4), torch.randn(3, 4))
print("equal")
"""

NORMS = """
import torch
from torch import nn
from torch.nn import functional as F
from regard.layers.norm_triton import added_norm, gated
from regard.layers.triton_kernel import _right

torch.manual_seed(0)
for dtype, near in ((torch.float32, 1e-5), (torch.float64, 1e-13), (torch.float16, 4e-3)):
    for rows, width in ((1, 64), (3, 43), (2, 769)):
        stream, made = (3 * torch.randn(rows, width) + 1).to(dtype), torch.randn(rows, width).to(dtype)
        for norm in (nn.LayerNorm(width), nn.LayerNorm(width, bias=False), nn.RMSNorm(width, eps=1e-6)):
            for parameter in norm.parameters():
                nn.init.normal_(parameter)
            norm = norm.to(dtype)
            for added in (None, made):
                total, found = added_norm(stream, added, norm)
                right = stream if added is None else stream + added
                assert (total - right).abs().max() <= near * right.abs().max()
                assert (found - norm(right)).abs().max() <= near * norm(right).abs().max()
        both = torch.randn(rows, 2 * width).to(dtype) * 4
        gate, up = both.chunk(2, dim=1)
        right = F.silu(gate) * up
        assert (gated(both, F.silu) - right).abs().max() <= near * right.abs().max()
        assert torch.equal(gated(both, F.gelu), F.gelu(gate) * up)
assert len(_right) == 6 and all(_right.values())
print("equal")
"""


@pytest.mark.parametrize("script", [PRODUCTS, NORMS], ids=["products", "norms"])
def test_the_kernels_compute_what_pytorch_computes(script):
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr


def test_a_kernel_that_is_wrong_or_does_not_compile_is_left_out_and_told_of(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_kernel, "available", lambda: True)
    monkeypatch.setattr(triton_kernel, "_right", {})
    right, tried = torch.ones(3), []

    def compiles() -> tuple[torch.Tensor, torch.Tensor]:
        tried.append(1)
        return right, right

    def fails() -> tuple[torch.Tensor, torch.Tensor]:
        raise NameError("no compiler")

    def asked(name, example):
        return triton_kernel.runs(name, right.device, right.dtype, example)

    assert asked("norm", compiles)
    assert asked("norm", compiles)
    assert len(tried) == 1
    with pytest.warns(RuntimeWarning, match=r"'gate' is not used for torch.float32: NameError: no compiler"):
        assert not asked("gate", fails)
    with pytest.warns(RuntimeWarning, match="'head' is not used for torch.float32: it is off by 0.5"):
        assert not asked("head", lambda: (right, right + 0.5))
    assert list(triton_kernel.tried().values()) == [True, False, False]
    monkeypatch.setenv("REGARD_WITHOUT", "head,norm")
    assert not asked("norm", compiles)
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not asked("draw", compiles)

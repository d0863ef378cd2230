"""Linear recurrences, Performer, Linformer and Nyström on a GPU: equal to float64, and memory that grows with the text.

Run with `pytest -m gpu`.
"""

import math

import pytest
import torch

from regard.attention.core import attend
from regard.attention.efficient.chunked import scan
from regard.attention.efficient.gated_linear import GatedLinearShape
from regard.attention.efficient.linear import LinearShape
from regard.attention.efficient.linformer import LinformerShape
from regard.attention.efficient.nystrom import NystromShape, nystrom_attention
from regard.attention.efficient.performer import PerformerShape, orthogonal_features, performer_attention
from regard.attention.mask import Causal
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Slot

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LONGEST = 131_072
CASES = {
    "linear": (LinearShape(), False),
    "linear, causal": (LinearShape(), True),
    "performer": (PerformerShape(), False),
    "performer, causal": (PerformerShape(), True),
    "gated by feature": (GatedLinearShape(), True),
    "gated by head": (GatedLinearShape(gates="head"), True),
    "linformer": (LinformerShape(max_tokens=LONGEST), False),
    "nystrom": (NystromShape(), False),
}


def tensors(tokens: int, width: int = 64, dtype=torch.float32):
    draws = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(2, 3, tokens, width, device="cuda", generator=draws).to(dtype) for _ in range(3)]


def outcome(compute, given, dtype):
    leaves = [one.detach().to(dtype).requires_grad_() for one in given]
    out = compute(*leaves)
    towards = torch.cos(torch.arange(out.numel(), device="cuda")).view(out.shape).to(out)
    return [out.detach(), *torch.autograd.grad((out * towards).sum(), leaves)]


@pytest.mark.parametrize("gates", [None, 1, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_chunked_recurrence_equals_itself_in_float64(gates, dtype):
    query, key, value = tensors(1000, dtype=dtype)
    more = () if gates is None else (-torch.rand(2, 3, 1000, gates, device="cuda").to(dtype),)
    given = (query / 8, key, value, *more)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = outcome(lambda *at: scan(*at)[0], given, dtype)
    exact = outcome(lambda *at: scan(*at)[0], given, torch.float64)
    for one, other in zip(found, exact, strict=True):
        assert (one.double() - other).norm() / other.norm() < (1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_performer_estimates_softmax_attention(causal):
    query, key, value = tensors(500)
    query, key = query / 4, key / 4
    exact = attend(query, key, value, mask=Causal() if causal else None)
    errors = []
    for features in (64, 4096):
        omega = orthogonal_features(features, 64, seed=1).cuda()
        found = performer_attention(query, key, value, omega, causal=causal)
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors[1] < errors[0] / 3


def test_nystrom_with_every_token_a_landmark_is_exact_attention():
    given = [one.double() for one in tensors(97)]
    assert (nystrom_attention(*given, landmarks=97, iterations=None) - attend(*given)).abs().max() < 1e-8


@pytest.mark.parametrize("name", CASES)
def test_memory_grows_with_the_length_alone_to_131072_tokens(name):
    shape, causal = CASES[name]
    slot = Slot(256, 4, 4, 64, causal=causal)
    context = LayerContext(Causal() if causal else None)
    mechanism, peaks = shape.build(slot).cuda(), []
    for tokens in (LONGEST // 4, LONGEST):
        inputs = torch.randn(1, tokens, 256, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = mechanism(inputs, None, context)[0]
        out.float().square().sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        assert inputs.grad.isfinite().all()
        mechanism.zero_grad(set_to_none=True)
        del inputs, out
    assert math.log(peaks[1] / peaks[0], 4) < 1.1

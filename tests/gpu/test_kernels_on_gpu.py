"""Every kernel on a GPU equals the reference in float64, forward and backward; run with `pytest -m gpu`.

The shape hook must be off (REGARD_SHAPES=off): FlexAttention is compiled.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from regard.attention.bias import ALiBi
from regard.attention.core import attend, explain
from regard.attention.mask import Block, Causal, Dense, Dilated, Document, Global, Mask, Padding, Prefix, Window

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

ROUNDING = {torch.float32: 1e-3, torch.bfloat16: 2e-2}


def masks(queries: int, keys: int) -> dict[str, Mask]:
    lengths = torch.tensor([keys - 50, keys - 3], device="cuda")
    ids = torch.arange(keys, device="cuda").div(173, rounding_mode="floor").expand(2, -1)
    dense = torch.rand(2, queries, keys, device="cuda", generator=torch.Generator("cuda").manual_seed(0)) < 0.2
    return {
        "causal": Causal(),
        "causal window": Causal() & Window(200),
        "window": Window(77),
        "padding": Padding(lengths),
        "left padding": Padding(lengths, "left") & Causal(),
        "dilated": Dilated(5, 7),
        "global": Global([0, 5]) | Window(90),
        "blocks": Block(256),
        "documents": Document(ids) & Causal(),
        "prefix": Causal() | Prefix(lengths // 8),
        "dense": Dense(dense),
        "not near": ~Window(40),
        "nothing": Padding(lengths * 0),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [(1024, 1024, 4), (700, 1111, 2)], ids=["whole", "cached, grouped"])
@pytest.mark.parametrize("kernel", ["sdpa", "flex", "cudnn", "explicit"])
@pytest.mark.parametrize("name", masks(1, 8).keys() if torch.cuda.is_available() else ["none"])
def test_a_kernel_equals_the_reference(dtype, sizes, kernel, name):
    queries, keys, kv_heads = sizes
    mask = masks(queries, keys)[name]
    query = torch.randn(2, 4, queries, 64, device="cuda", dtype=dtype, requires_grad=True)
    key, value = (torch.randn(2, kv_heads, keys, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    if kernel == "cudnn" and (name != "causal" or dtype == torch.float32 or queries != keys):
        with pytest.raises(ValueError, match="cannot run this call"):
            attend(query, key, value, mask=mask, kernel=kernel)
        return
    towards = torch.randn_like(query)
    ours = attend(query, key, value, mask=mask, kernel=kernel)
    gradients = torch.autograd.grad((ours * towards).sum(), (query, key, value))
    wide = [one.detach().double().requires_grad_() for one in (query, key, value)]
    exact = attend(*wide, mask=mask, kernel="reference")
    expected = torch.autograd.grad((exact * towards).sum(), wide)
    for one, other in zip((ours, *gradients), (exact, *expected), strict=True):
        if name == "nothing":
            assert (one == 0).all()
        else:
            assert (one.double() - other).norm() / other.norm() < ROUNDING[dtype]


def test_the_kernel_that_pays_is_chosen_and_is_the_one_that_runs():
    wanted = {
        "cudnn": (torch.bfloat16, {"mask": Causal()}, "cudnn"),
        "flex": (torch.bfloat16, {"mask": Causal() & Window(64)}, "flex"),
        "sdpa": (torch.float32, {"mask": Causal()}, "scaled_dot_product"),
    }
    for name, (dtype, options, trace) in wanted.items():
        query = torch.randn(1, 4, 4096, 64, device="cuda", dtype=dtype)
        assert explain(query, query, query, **options).name == name
        attend(query, query, query, **options)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            attend(query, query, query, **options)
        assert any(trace in event.key.lower() for event in seen.key_averages())
    biased = explain(query, query, query, mask=Window(5), bias=ALiBi(4))
    assert (biased.name, "flex" in biased.refused) == ("sdpa", True)


def test_a_long_mask_is_built_without_a_table_of_its_square():
    query = torch.randn(1, 2, 65536, 64, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    attend(query, query, query, mask=Causal() & Window(512))
    assert torch.cuda.max_memory_allocated() - before < 65536**2 / 50

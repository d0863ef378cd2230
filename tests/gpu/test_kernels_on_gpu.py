"""Every kernel on a GPU equals the reference in float64, forward and backward; run with `pytest -m gpu`.

The shape hook must be off (REGARD_SHAPES=off): FlexAttention is compiled.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from regard.attention.bias import ALiBi, RelativeBuckets
from regard.attention.core import attend, which_kernel
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


WHOLE, CACHED_AND_GROUPED = (1024, 1024, 4), (700, 1111, 2)
NAMES = list(masks(1, 8)) if torch.cuda.is_available() else ["none"]
COMPILED_IN_FLOAT32 = ("causal window", "left padding", "nothing")
"""FlexAttention is compiled for every mask, shape and type: all masks in one of each, a few in the others."""

CASES = [
    (kernel, name, sizes, dtype)
    for kernel in ("sdpa", "bmm", "cudnn", "flex")
    for name in NAMES
    for sizes, dtype in (
        (CACHED_AND_GROUPED, torch.bfloat16),
        (CACHED_AND_GROUPED, torch.float32),
        (WHOLE, torch.bfloat16),
        (WHOLE, torch.float32),
    )
    if kernel != "flex"
    or (sizes, dtype) == (CACHED_AND_GROUPED, torch.bfloat16)
    or (name in COMPILED_IN_FLOAT32 and (sizes, dtype) == (WHOLE, torch.float32))
]


@pytest.mark.parametrize(("kernel", "name", "sizes", "dtype"), CASES)
def test_a_kernel_equals_the_reference(kernel, name, sizes, dtype):
    queries, keys, _ = sizes
    if kernel == "cudnn" and (name != "causal" or dtype == torch.float32 or queries != keys):
        query, key, value = tensors(sizes, dtype)
        with pytest.raises(ValueError, match="cannot run this call"):
            attend(query, key, value, mask=masks(queries, keys)[name], kernel=kernel)
        return
    ours, exact = outcomes(sizes, dtype, kernel, mask=masks(queries, keys)[name])
    for one, other in zip(ours, exact, strict=True):
        if name == "nothing":
            assert (one == 0).all()
        else:
            assert (one.double() - other).norm() / other.norm() < ROUNDING[dtype]


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_a_bias_is_added_and_a_learnt_one_gets_its_gradient(kernel, name):
    bias = (ALiBi(4) if name == "alibi" else RelativeBuckets(4, both_directions=False)).cuda()
    mask = Causal() & Window(200)
    ours, exact = outcomes(CACHED_AND_GROUPED, torch.float32, kernel, mask=mask, bias=bias)
    assert len(ours) == (4 if name == "alibi" else 5)
    for one, other in zip(ours, exact, strict=True):
        assert (one.double() - other).norm() / other.norm() < ROUNDING[torch.float32]


def tensors(sizes, dtype):
    queries, keys, kv_heads = sizes
    query = torch.randn(2, 4, queries, 64, device="cuda", dtype=dtype, requires_grad=True)
    key, value = (torch.randn(2, kv_heads, keys, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    return query, key, value


def outcomes(sizes, dtype, kernel, *, mask, bias=None):
    """What the kernel gives, with its gradients, and what the reference gives in float64."""
    given = tensors(sizes, dtype)
    towards = torch.randn_like(given[0])
    learnt = [] if bias is None else list(bias.parameters())
    ours = attend(*given, mask=mask, bias=bias, kernel=kernel)
    gradients = torch.autograd.grad((ours * towards).sum(), [*given, *learnt])
    wide = [one.detach().double().requires_grad_() for one in given]
    exact = attend(*wide, mask=mask, bias=bias, kernel="reference")
    expected = torch.autograd.grad((exact * towards).sum(), [*wide, *learnt])
    return (ours, *gradients), (exact, *expected)


def test_the_kernel_that_pays_is_chosen_and_is_the_one_that_runs():
    wanted = {
        "cudnn": (torch.bfloat16, {"mask": Causal()}, "cudnn"),
        "flex": (torch.bfloat16, {"mask": Causal() & Window(64)}, "flex"),
        "sdpa": (torch.float32, {"mask": Causal()}, "scaled_dot_product"),
    }
    for name, (dtype, options, trace) in wanted.items():
        query = torch.randn(1, 4, 4096, 64, device="cuda", dtype=dtype)
        assert which_kernel(query, query, query, **options).name == name
        attend(query, query, query, **options)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            attend(query, query, query, **options)
        assert any(trace in event.key.lower() for event in seen.key_averages())
    assert which_kernel(query, query, query, mask=Causal(), bias=ALiBi(4)).name == "flex"
    assert which_kernel(query, query, query, bias=torch.zeros(4096, 4096, device="cuda")).name == "sdpa"


def test_a_long_mask_is_built_without_a_table_of_its_square():
    query = torch.randn(1, 2, 65536, 64, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    attend(query, query, query, mask=Causal() & Window(512))
    attend(query, query, query, mask=Causal() & Window(512), bias=ALiBi(2))
    assert torch.cuda.max_memory_allocated() - before < 65536**2 / 50

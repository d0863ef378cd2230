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
    own, exact = outcomes(sizes, dtype, kernel, mask=masks(queries, keys)[name])
    for one, other in zip(own, exact, strict=True):
        if name == "nothing":
            assert (one == 0).all()
        else:
            assert (one.double() - other).norm() / other.norm() < ROUNDING[dtype]


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_a_bias_is_added_and_a_learnt_one_gets_its_gradient(kernel, name):
    bias = (ALiBi(4) if name == "alibi" else RelativeBuckets(4, bidirectional=False)).cuda()
    mask = Causal() & Window(200)
    own, exact = outcomes(CACHED_AND_GROUPED, torch.float32, kernel, mask=mask, bias=bias)
    assert len(own) == (4 if name == "alibi" else 5)
    for one, other in zip(own, exact, strict=True):
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
    own = attend(*given, mask=mask, bias=bias, kernel=kernel)
    gradients = torch.autograd.grad((own * towards).sum(), [*given, *learnt])
    wide = [one.detach().double().requires_grad_() for one in given]
    exact = attend(*wide, mask=mask, bias=bias, kernel="reference")
    expected = torch.autograd.grad((exact * towards).sum(), [*wide, *learnt])
    return (own, *gradients), (exact, *expected)


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


NEGATIVE_LENGTHS = (64, 192, 704)
"""All of them with half a tile of 128 left over."""
NEGATIVE_MASKS = {
    "causal": lambda length: Causal(),
    "none": lambda length: None,
    "padding": lambda length: Padding(torch.tensor([length, length - 7], device="cuda")),
    "left padding": lambda length: Causal() & Padding(torch.tensor([length, length - 7], device="cuda"), "left"),
    "documents": lambda length: Causal() & Document(torch.arange(length, device="cuda").div(50).long().expand(2, -1)),
    "dense": lambda length: Dense(torch.ones(2, length, length, dtype=torch.bool, device="cuda").tril()),
}


def very_negative(length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Queries, keys and values whose scores are all near −120: no row's logsumexp can be undone in float32."""
    draws = torch.Generator("cuda").manual_seed(0)
    query, key, value = (
        torch.randn(2, 4, length, 64, device="cuda", dtype=dtype, generator=draws) * size for size in (0.1, 0.1, 1)
    )
    query[..., 0], key[..., 0] = 1.0, -120 * 8.0
    return [one.requires_grad_() for one in (query, key, value)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", NEGATIVE_LENGTHS)
@pytest.mark.parametrize("name", NEGATIVE_MASKS)
@pytest.mark.parametrize("bias", [False, True])
def test_very_negative_scores_train_by_the_kernel_that_is_chosen(dtype, length, name, bias):
    mask, given = NEGATIVE_MASKS[name](length), very_negative(length, dtype)
    more = {"bias": torch.zeros(length, length, device="cuda", dtype=dtype)} if bias else {}
    chosen = which_kernel(*given, mask=mask, **more).name
    assert chosen == ("cudnn" if name == "causal" and not bias else "sdpa")
    own = attend(*given, mask=mask, **more)
    towards = torch.randn_like(own)
    found = [own, *torch.autograd.grad((own * towards).sum(), given)]
    wide = [one.detach().double().requires_grad_() for one in given]
    exact = attend(*wide, mask=mask, kernel="reference")
    expected = [exact, *torch.autograd.grad((exact * towards).sum(), wide)]
    assert all(one.isfinite().all() for one in found)
    for one, other in zip(found, expected, strict=True):  # what is left of the large column is rounding alone
        assert (one.double() - other)[..., 1:].abs().max() <= 0.05 * other[..., 1:].abs().max()


def ran(work) -> str:
    """The names of all kernels a GPU ran, as its profiler saw them."""
    work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return " ".join(event.key.lower() for event in seen.key_averages())


@pytest.mark.parametrize("length", [192, 1024])
@pytest.mark.parametrize("name", NEGATIVE_MASKS)
def test_the_kernel_named_is_the_one_a_profiler_sees_forward_and_backward(length, name):
    mask = NEGATIVE_MASKS[name](length)
    given = [torch.randn(2, 4, length, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    chosen = which_kernel(*given, mask=mask).name
    seen = ran(lambda: attend(*given, mask=mask).sum().backward())
    assert ("cudnn" in seen) == (chosen == "cudnn")
    assert ("flex" in seen) == (chosen == "flex")
    assert any(one in seen for one in ("flash", "efficient", "math")) or chosen != "sdpa"
    if chosen == "cudnn":
        assert name in ("causal", "none")


def test_choosing_a_kernel_never_waits_for_the_gpu():
    given = [torch.randn(2, 4, 192, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    made = {name: make(192) for name, make in NEGATIVE_MASKS.items()}
    torch.cuda.set_sync_debug_mode("error")
    try:
        for mask in made.values():
            which_kernel(*given, mask=mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_long_mask_is_built_without_a_table_of_its_square():
    query = torch.randn(1, 2, 65536, 64, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    attend(query, query, query, mask=Causal() & Window(512))
    attend(query, query, query, mask=Causal() & Window(512), bias=ALiBi(2))
    assert torch.cuda.max_memory_allocated() - before < 65536**2 / 50

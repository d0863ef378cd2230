"""Longformer, BigBird and sinks on a GPU: equal to the same in float64 on the CPU, block-sparse, never n×n.

The shape hook must be off (REGARD_SHAPES=off): FlexAttention is compiled. Run with `pytest -m gpu`.
"""

import pytest
import torch

from regard.attention.core import attend
from regard.attention.efficient.bigbird import Pattern, bigbird_attention
from regard.attention.efficient.longformer import GlobalTokens, local_masks, longformer_attention
from regard.attention.efficient.sinks import sinks_attention
from regard.attention.mask import Causal, Padding, Window

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOKENS, HEADS = 1409, 4


def lengths_of(tokens):
    """Of two sequences, one of them shorter."""
    return torch.tensor([tokens, tokens - 306])


def longformer(query, key, value, dropout=0.0, *, causal=False, dilation=(1, 1, 1, 3)):
    positions = torch.tensor([[0, 700], [3, -1]], device=query.device)
    at = positions.clamp(min=0)[:, None, :, None].expand(-1, HEADS, -1, query.shape[-1])
    tokens = GlobalTokens(positions, query.gather(2, at) * 0.7, key * 0.9, value + 0.1)
    padding = Padding(lengths_of(query.shape[2]).to(query.device))
    mask = Causal() & padding if causal else padding
    return longformer_attention(
        query, key, value, local=local_masks(100, dilation), global_tokens=tokens, mask=mask, dropout=dropout
    )


def bigbird(query, key, value, dropout=0.0):
    padding = Padding(lengths_of(query.shape[2]).to(query.device), "left")
    return bigbird_attention(query, key, value, pattern=Pattern(block=48, seed=5), padding=padding, dropout=dropout)


def sinks(query, key, value, dropout=0.0):
    return sinks_attention(query, key, value, window=150, sinks=4, dropout=dropout)


RUNS = {
    "longformer": longformer,
    "causal longformer": lambda *given: longformer(*given, causal=True, dilation=(1,) * HEADS),
    "bigbird": bigbird,
    "sinks": sinks,
}


@pytest.mark.parametrize("width", [64, 24])
@pytest.mark.parametrize("name", RUNS)
def test_it_equals_the_cpu_in_float64_forward_and_backward(name, width):
    """Heads 64 wide go to FlexAttention, others to gathered tiles."""
    generator = torch.Generator().manual_seed(3)
    given = [torch.randn(2, HEADS, TOKENS, width, dtype=torch.float64, generator=generator) for _ in range(3)]
    found = outcome(RUNS[name], [one.float().cuda() for one in given])
    exact = outcome(RUNS[name], given)
    for one, other in zip(found, exact, strict=True):
        assert one.isfinite().all()
        assert (one.double().cpu() - other).norm() / other.norm() < 1e-3


def outcome(run, given):
    leaves = [one.detach().requires_grad_() for one in given]
    out = run(*leaves)
    places, lengths = torch.arange(TOKENS), lengths_of(TOKENS)[:, None]
    real = places >= TOKENS - lengths if run is bigbird else places < lengths  # what stands at padding is nobody's
    towards = torch.cos(torch.arange(out.numel(), dtype=torch.float64).reshape(out.shape)).to(out)
    towards = towards * real[:, None, :, None].to(towards)
    return [out * (towards != 0), *torch.autograd.grad((out * towards).sum(), leaves)]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", RUNS)
def test_memory_grows_as_the_length_does(name, dropout):
    """Four times the tokens take at most five times the memory, with gradients; a table of 65,536² would be 4 GB."""
    peaks = []
    for tokens in (16384, 65536):
        query, key, value = (
            torch.randn(2, HEADS, tokens, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        RUNS[name](query, key, value, dropout).float().sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 5 * peaks[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gathered_tiles_equal_the_reference_on_a_gpu_and_masked_rows_are_zero(dtype):
    lengths = torch.tensor([1100, 0], device="cuda")
    mask = Padding(lengths, "left") & Causal() & Window(200)
    given = [torch.randn(2, HEADS, 1300, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    actual = attend(*given, mask=mask, kernel="gathered")
    towards = torch.randn_like(actual)
    found = [actual, *torch.autograd.grad((actual * towards).sum(), given)]
    wide = [one.detach().double().requires_grad_() for one in given]
    exact = attend(*wide, mask=mask, kernel="reference")
    expected = [exact, *torch.autograd.grad((exact * towards).sum(), wide)]
    for one, other in zip(found, expected, strict=True):
        assert (one[1] == 0).all()
        assert (one.double() - other).norm() / other.norm() < (1e-3 if dtype == torch.float32 else 2e-2)

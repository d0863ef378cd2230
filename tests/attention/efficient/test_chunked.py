"""The chunked recurrence against the same taken step by step, in float64 and float32, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrences import by_steps
from torch.nn import functional as F

from regard.attention.efficient.chunked import accumulate, normalised_scan, restarts, scan
from regard.errors import InputError
from rounding import assert_close

BATCH, HEADS, FEATURES, WIDTH = 2, 3, 5, 7
GATES = {"none": None, "scalar": 1, "vector": FEATURES}


def draw(tokens: int, gates: int | None, dtype=torch.float64, openness: float = 2.0):
    """Query, key, value and the logarithms of gates: some nearly open, some nearly shut."""
    query, key = (torch.randn(BATCH, HEADS, tokens, FEATURES, dtype=dtype) for _ in range(2))
    value = torch.randn(BATCH, HEADS, tokens, WIDTH, dtype=dtype)
    decay = (
        None if gates is None else F.logsigmoid(openness + 3 * torch.randn(BATCH, HEADS, tokens, gates, dtype=dtype))
    )
    return [query, key, value, decay]


def with_gradients(compute, given_tensors, state):
    leaves = [one.detach().clone().requires_grad_() for one in (*given_tensors, state) if one is not None]
    rest = iter(leaves)
    query, key, value, decay = (None if one is None else next(rest) for one in given_tensors)
    out, behind = compute(query, key, value, decay, next(rest, None))
    towards = [torch.cos(torch.arange(one.numel())).view(one.shape).to(one) for one in (out, behind)]
    whole = (out * towards[0]).sum() + (behind * towards[1]).sum()
    return [out, behind, *torch.autograd.grad(whole, leaves)]


@settings(max_examples=40)
@given(
    tokens=st.integers(1, 83),
    chunk=st.sampled_from([1, 2, 8, 32, 64]),
    gates=st.sampled_from(list(GATES)),
    started=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_reading_in_chunks_equals_reading_token_by_token(tokens, chunk, gates, started, dtype):
    torch.manual_seed(tokens * 100 + chunk)
    tensors = draw(tokens, GATES[gates], dtype)
    state = torch.randn(BATCH, HEADS, FEATURES, WIDTH, dtype=dtype) if started else None
    found = with_gradients(lambda *at: scan(*at[:4], state=at[4], chunk=chunk), tensors, state)
    wide = [None if one is None else one.double() for one in (*tensors, state)]
    exact = with_gradients(by_steps, wide[:4], wide[4])
    for one, other in zip(found, exact, strict=True):
        assert_close(one.double(), other, 1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("gates", ["scalar", "vector"])
def test_a_gate_that_is_nearly_shut_does_not_round_away_the_ones_beside_it(gates):
    query, key, value, decay = draw(61, GATES[gates], torch.float32)
    decay[:, :, 7:29] = -3000.0
    decay[:, :, 29:] = -1e-3
    found = scan(query, key, value, decay)[0]
    exact = by_steps(query.double(), key.double(), value.double(), decay.double())[0]
    assert_close(found.double(), exact, 2e-6)


@pytest.mark.parametrize("gates", ["scalar", "vector"])
def test_documents_are_read_as_if_each_stood_alone(gates):
    documents = torch.tensor([[0] * 13 + [1] * 24 + [2] * 4, [0] * 1 + [1] * 2 + [2] * 38])
    query, key, value, decay = draw(documents.shape[1], GATES[gates])
    shut = decay.masked_fill(restarts(documents)[:, None, :, None], -torch.inf).requires_grad_()
    found = scan(query, key, value, shut, chunk=8)[0]
    for row, ids in enumerate(documents):
        for document in ids.unique():
            at = ids == document
            alone = by_steps(*(one[row : row + 1, :, at] for one in (query, key, value, decay)))[0]
            assert_close(found[row : row + 1, :, at], alone, 1e-12)
    assert torch.autograd.grad(found.sum(), shut)[0].isfinite().all()


@pytest.mark.parametrize("gates", GATES)
def test_a_text_read_piece_by_piece_is_the_text_read_at_once(gates):
    tensors = draw(53, GATES[gates])
    whole, behind = normalised_scan(tensors[0].exp(), tensors[1].exp(), *tensors[2:], chunk=16)
    state, read = None, []
    for start, stop in ((0, 1), (1, 2), (2, 31), (31, 32), (32, 53)):
        query, key, value, decay = (None if one is None else one[:, :, start:stop] for one in tensors)
        out, state = normalised_scan(query.exp(), key.exp(), value, decay, state=state, chunk=16)
        read.append(out)
    assert_close(torch.cat(read, dim=2), whole, 1e-12)
    assert_close(state, behind, 1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 31])
def test_accumulating_in_pairs_equals_accumulating_in_order(steps):
    decay, added = torch.rand(2, 3, steps, 1, dtype=torch.float64), torch.randn(2, 3, steps, 5, dtype=torch.float64)
    state, states = torch.zeros(2, 3, 5, dtype=torch.float64), []
    for step in range(steps):
        state = decay[:, :, step] * state + added[:, :, step]
        states.append(state)
    assert_close(accumulate(decay, added), torch.stack(states, dim=2), 1e-12)


@pytest.mark.parametrize("gates", GATES)
def test_states_stay_float32_in_bfloat16_and_under_autocast(gates):
    tensors = draw(300, GATES[gates], torch.bfloat16)
    exact, behind = by_steps(*(None if one is None else one.double() for one in tensors))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, state = scan(*tensors)
    assert state.dtype == found.dtype == torch.float32
    assert_close(found.double(), exact, 1e-5)
    assert_close(state.double(), behind, 1e-5)


@pytest.mark.parametrize("chunk", [0, 3, 48])
def test_a_chunk_that_cannot_be_halved_is_refused(chunk):
    with pytest.raises(InputError, match=f"a chunk of {chunk} tokens is not a power of two"):
        scan(*draw(5, None), chunk=chunk)

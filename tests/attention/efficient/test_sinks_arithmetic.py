"""A window with sinks against the ten-line reference under the same table."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sparse_reference import draw, small_tiles, table, ten_lines, with_gradients

from regard.attention.core import attend
from regard.attention.efficient.sinks import sinks_attention
from regard.attention.mask import Causal, Padding
from rounding import assert_close


@given(
    sizes=st.tuples(st.integers(1, 2), st.sampled_from([(3, 3), (6, 2)]), st.integers(1, 37)),
    window=st.integers(1, 9),
    sinks=st.integers(0, 4),
    padded=st.booleans(),
    tiled=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_equals_the_reference_forward_and_backward(sizes, window, sinks, padded, tiled, seed):
    torch.manual_seed(seed)
    batch, (heads, kv_heads), tokens = sizes
    before = torch.randint(0, tokens + 1, (batch,)) if padded else torch.zeros(batch, dtype=torch.long)
    places = torch.arange(tokens) - before[:, None]
    mask = Padding(tokens - before, "left") if padded else None
    given_tensors = draw(batch, heads, kv_heads, tokens)

    def rule(sequence: int, head: int, query: int, key: int) -> bool:
        begin = int(before[sequence])
        return begin <= key <= query and (query - key < window or key < begin + sinks)

    def found(query, key, value):
        with small_tiles() if tiled else nullcontext():
            return sinks_attention(
                query, key, value, window=window, sinks=sinks, places=places if padded else None, mask=mask
            )

    allowed = table(rule, batch, heads, tokens, tokens)
    exact = with_gradients(given_tensors, lambda *qkv: ten_lines(*qkv, allowed))
    for name, one in with_gradients([one.float() for one in given_tensors], found).items():
        assert_close(one, exact[name].float(), 1e-5, name)


@pytest.mark.parametrize("tokens", [1, 2, 13])
def test_a_window_as_long_as_the_text_is_causal_attention(tokens):
    given_tensors = draw(2, 3, 3, tokens)
    actual = with_gradients(given_tensors, lambda *qkv: sinks_attention(*qkv, window=tokens, sinks=0))
    expected = with_gradients(given_tensors, lambda *qkv: attend(*qkv, mask=Causal()))
    for name, one in actual.items():
        assert_close(one, expected[name], 1e-12, name)

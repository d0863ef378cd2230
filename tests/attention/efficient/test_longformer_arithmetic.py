"""Longformer's arithmetic against the ten-line reference under the same table, any length, dilation and global set."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_reference import draw, small_tiles, table, ten_lines, with_gradients

from regard.attention.core import attend
from regard.attention.efficient.longformer import GlobalTokens, local_masks, longformer_attention
from regard.attention.mask import Causal, Padding, Window
from regard.errors import InputError
from rounding import assert_close


@st.composite
def cases(draw_from):
    tokens = draw_from(st.integers(1, 37))
    heads, kv_heads = draw_from(st.sampled_from([(1, 1), (3, 3), (6, 2), (2, 1)]))
    batch = draw_from(st.integers(1, 2))
    dilation = draw_from(st.one_of(st.just([1] * heads), st.lists(st.integers(1, 5), min_size=heads, max_size=heads)))
    positions = st.lists(st.integers(0, tokens - 1), max_size=min(3, tokens), unique=True)
    return {
        "sizes": (batch, heads, kv_heads, tokens),
        "window": draw_from(st.integers(0, 8)),
        "dilation": dilation,
        "globals": draw_from(st.lists(positions, min_size=batch, max_size=batch)),
        "causal": draw_from(st.booleans()),
        "padding": draw_from(st.sampled_from([None, "left", "right"])),
        "lengths": draw_from(st.lists(st.integers(0, tokens), min_size=batch, max_size=batch)),
        "tiled": draw_from(st.booleans()),
        "seed": draw_from(st.integers(0, 99)),
    }


def positions_of(listed: list[list[int]]) -> torch.Tensor:
    most = max(1, *map(len, listed))
    return torch.tensor([one + [-1] * (most - len(one)) for one in listed])


def may_see(case, sequence: int, query: int, key: int) -> bool:
    """What causality and padding leave."""
    tokens, length = case["sizes"][3], case["lengths"][sequence]
    real = {None: True, "right": key < length, "left": key >= tokens - length}[case["padding"]]
    return real and (key <= query or not case["causal"])


@settings(max_examples=80)
@given(cases())
def test_it_equals_the_reference_forward_and_backward(case):
    torch.manual_seed(case["seed"])
    batch, heads, kv_heads, tokens = case["sizes"]
    listed, window = case["globals"], case["window"]
    positions = positions_of(listed)
    padding = None if case["padding"] is None else Padding(torch.tensor(case["lengths"]), case["padding"])
    mask = (Causal() if padding is None else Causal() & padding) if case["causal"] else padding
    drawn = [*draw(batch, heads, kv_heads, tokens), *draw(batch, heads, kv_heads, tokens)]

    def near(sequence: int, head: int, query: int, key: int) -> bool:
        away, step = abs(query - key), case["dilation"][head]
        neighbours = away % step == 0 and away <= window * step
        return (neighbours or key in listed[sequence]) and may_see(case, sequence, query, key)

    def expected(query, key, value, global_query, global_key, global_value):
        actual = ten_lines(query, key, value, table(near, batch, heads, tokens, tokens))
        everything = table(lambda b, h, q, k: may_see(case, b, q, k), batch, heads, tokens, tokens)
        expected = ten_lines(global_query, global_key, global_value, everything)
        chosen = torch.tensor([[token in one for token in range(tokens)] for one in listed])
        return torch.where(chosen[:, None, :, None], expected, actual)

    def found(query, key, value, global_query, global_key, global_value):
        at = positions.clamp(min=0)[:, None, :, None].expand(-1, heads, -1, query.shape[-1])
        tokens_of = GlobalTokens(positions, global_query.gather(2, at), global_key, global_value)
        with small_tiles() if case["tiled"] else nullcontext():
            return longformer_attention(
                query, key, value, local=local_masks(window, case["dilation"]), global_tokens=tokens_of, mask=mask
            )

    exact = with_gradients(drawn, expected)
    for name, one in with_gradients([one.float() for one in drawn], found).items():
        assert_close(one, exact[name].float(), 1e-5, name)


@pytest.mark.parametrize("tokens", [1, 2, 11, 23])
def test_a_window_as_long_as_the_text_is_full_attention(tokens):
    given = draw(2, 3, 3, tokens)
    actual = with_gradients(given, lambda *qkv: longformer_attention(*qkv, local=local_masks(tokens, [1, 1, 1])))
    expected = with_gradients(given, attend)
    for name, one in actual.items():
        assert_close(one, expected[name], 1e-12, name)


def test_a_long_text_runs_on_live_tiles_alone(monkeypatch):
    """The table of 4,096 tokens would be refused here, and the window's is not."""
    from regard.attention import lowering

    def never(*given):
        raise AssertionError("a dense table of a long text")

    monkeypatch.setattr(lowering, "dense_table", never)
    monkeypatch.setattr("regard.attention.kernels.dense_table", never)
    monkeypatch.setattr("regard.attention.core.dense_table", never)
    query, key, value = (one.float() for one in draw(1, 2, 2, 4096, 8, 8))
    positions = torch.tensor([[0]])
    tokens = GlobalTokens(positions, query[:, :, :1], key, value)
    out = longformer_attention(query, key, value, local=local_masks(64, [1, 2]), global_tokens=tokens)
    row = 1000
    for head, step in enumerate((1, 2)):
        keys = [0, *range(row - 64 * step, row + 65 * step, step)]
        near = key[0, head, keys].double(), value[0, head, keys].double()
        weights = (query[0, head, row].double() @ near[0].T / 8**0.5).softmax(-1)
        assert_close(out[0, head, row], (weights @ near[1]).float())
    assert_close(out[:, :, :1], attend(query[:, :, :1], key, value))


def test_patterns_and_heads_must_be_as_many():
    query, key, value = draw(1, 3, 3, 5)
    with pytest.raises(InputError, match="2 patterns do not fit 3 heads"):
        longformer_attention(query, key, value, local=[Window(2), Window(2)])

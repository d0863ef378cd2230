"""Keys and values are values: every operation returns new ones, and they obey the laws of lists."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.cache import KeyValues
from regard.attention.mask import Causal
from regard.attention.multihead import MultiHeadAttention
from regard.attention.rotary import Rotary
from regard.blocks.decoder import DecoderCache
from rounding import assert_close

counts = st.integers(0, 5)
rows_of_three = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(torch.tensor)


def drawn(tokens: int) -> KeyValues:
    return KeyValues(torch.randn(3, 2, tokens, 5), torch.randn(3, 2, tokens, 7))


def same(one: KeyValues, other: KeyValues) -> bool:
    return torch.equal(one.keys, other.keys) and torch.equal(one.values, other.values)


@given(counts, counts, counts)
def test_appending_is_joining_lists(first, second, third):
    a, b, c = drawn(first), drawn(second), drawn(third)
    assert a.append(b).tokens == first + second
    assert same(a.append(b).append(c), a.append(b.append(c)))
    assert same(a.append(drawn(0)), a)
    joined = a.append(b)
    for token in range(first + second):
        source, place = (a, token) if token < first else (b, token - first)
        assert torch.equal(joined.keys[:, :, token], source.keys[:, :, place])
        assert torch.equal(joined.values[:, :, token], source.values[:, :, place])


@given(counts, counts)
def test_trimming_undoes_appending(first, second):
    a, b = drawn(first), drawn(second)
    assert same(a.append(b).trim(first), a)
    assert same(a.append(b).trim(first + second), a.append(b))
    assert a.append(b).trim(0).tokens == 0


@given(rows_of_three)
def test_selecting_takes_whole_rows_in_order(rows):
    cache = drawn(5)
    selected = cache.select(rows)
    for place, row in enumerate(rows.tolist()):
        assert torch.equal(selected.keys[place], cache.keys[row])
        assert torch.equal(selected.values[place], cache.values[row])


@given(rows_of_three, counts, counts, st.data())
def test_selecting_commutes_with_appending_and_trimming_and_composes(rows, first, second, data):
    a, b = drawn(first), drawn(second)
    assert same(a.append(b).select(rows), a.select(rows).append(b.select(rows)))
    assert same(a.append(b).trim(first).select(rows), a.append(b).select(rows).trim(first))
    again = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5)))
    assert same(a.select(rows).select(again), a.select(rows[again]))
    assert same(a.select(torch.arange(3)), a)


def test_no_operation_changes_what_it_was_given():
    cache, newer = drawn(5), drawn(2)
    before = [one.clone() for one in (cache.keys, cache.values, newer.keys, newer.values)]
    longer = cache.append(newer)
    longer.keys.zero_()
    longer.values.zero_()
    reordered = cache.select(torch.tensor([2, 0, 0]))
    reordered.keys.zero_()
    cache.trim(2)
    after = (cache.keys, cache.values, newer.keys, newer.values)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    with pytest.raises(dataclasses.FrozenInstanceError):
        cache.keys = newer.keys


def test_a_decoders_cache_is_its_layers_caches():
    layers, memory = (drawn(5), drawn(5)), (drawn(3), drawn(3))
    rows = torch.tensor([2, 2, 1])
    selected = DecoderCache(layers, memory, tokens=5).select(rows)
    assert (DecoderCache().tokens, selected.tokens) == (0, 5)
    for before, after in zip((*layers, *memory), (*selected.own, *selected.memory), strict=True):
        assert same(before.select(rows), after)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_attention_over_a_growing_cache_equals_attention_over_the_whole(pieces):
    module = MultiHeadAttention(12, 6, key_value_heads=2).double()
    total = sum(pieces)
    inputs = torch.randn(3, total, 12, dtype=torch.float64)
    rotary = Rotary(2)
    whole = module(inputs, mask=Causal(), rotate=rotary(torch.arange(total)[None]))
    cache, outputs, past = None, [], 0
    for piece in pieces:
        rotate = rotary(torch.arange(past, past + piece)[None])
        part = inputs[:, past : past + piece]
        newer = module.keys_values(part, rotate)
        cache = newer if cache is None else cache.append(newer)
        outputs.append(module(part, cache, mask=Causal(), rotate=rotate))
        past += piece
    assert_close(torch.cat(outputs, dim=1), whole, 1e-12)

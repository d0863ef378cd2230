"""The room behind a cache: an extended value never changes what another one shows."""

import pytest
import torch

from regard.attention.cache import SPARE, KeyValues


def drawn(tokens: int) -> KeyValues:
    return KeyValues(torch.randn(3, 2, tokens, 5), torch.randn(3, 2, tokens, 7))


def shown(one: KeyValues) -> tuple[torch.Tensor, torch.Tensor]:
    return one.keys.clone(), one.values.clone()


def joined(*parts: KeyValues) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([part.keys for part in parts], dim=2), torch.cat([part.values for part in parts], dim=2)


def same(one: KeyValues, other: tuple[torch.Tensor, torch.Tensor]) -> bool:
    return torch.equal(one.keys, other[0]) and torch.equal(one.values, other[1])


@torch.no_grad()
def test_two_that_extend_one_value_do_not_see_each_other():
    first, left, right, more = drawn(3), drawn(1), drawn(1), drawn(2)
    grown = first.append(left)
    one, other = grown.append(right), grown.append(more)
    third = one.append(more)
    assert same(grown, joined(first, left))
    assert same(one, joined(first, left, right))
    assert same(other, joined(first, left, more))
    assert same(third, joined(first, left, right, more))


@torch.no_grad()
def test_many_tokens_are_kept_in_order_through_every_enlargement():
    parts = [drawn(2)] + [drawn(1) for _ in range(3 * SPARE)]
    cache = parts[0]
    for part in parts[1:]:
        cache = cache.append(part)
    assert same(cache, joined(*parts))


@torch.no_grad()
def test_a_token_more_writes_into_the_room_and_copies_nothing():
    cache = drawn(3).append(drawn(1))
    longer = cache.append(drawn(1))
    assert longer.keys.data_ptr() == cache.keys.data_ptr()
    assert longer.values.data_ptr() == cache.values.data_ptr()


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1], [0]])
@torch.no_grad()
def test_selected_rows_have_room_of_their_own(rows):
    first, left, right = drawn(3), drawn(1), KeyValues(torch.randn(len(rows), 2, 1, 5), torch.randn(len(rows), 2, 1, 7))
    grown = first.append(left)
    before = shown(grown)
    selected = grown.select(torch.tensor(rows))
    longer = selected.append(right)
    assert same(grown, before)
    assert torch.equal(longer.keys[:, :, :4], before[0][rows])
    assert torch.equal(longer.keys[:, :, 4:], right.keys)
    assert torch.equal(longer.values[:, :, 4:], right.values)


def test_gradients_flow_through_every_token():
    first, second = (KeyValues(*(torch.randn(1, 2, 3, 5, requires_grad=True) for _ in range(2))) for _ in range(2))
    both = first.append(second)
    (both.keys.sum() * 2 + both.values.sum() * 3).backward()
    for part in (first, second):
        assert (part.keys.grad == 2).all()
        assert (part.values.grad == 3).all()


def test_what_was_made_in_inference_mode_can_be_extended_outside():
    with torch.inference_mode():
        cache = drawn(3).append(drawn(1))
    before = shown(cache)
    with torch.no_grad():
        longer = cache.append(drawn(1))
    assert same(cache, before)
    assert longer.tokens == 5

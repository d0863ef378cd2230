"""Temperature, top-k and top-p keep exactly the tokens their definitions name, in the order the definitions say."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from regard.decoding.filters import Generated, apply, temperature, top_k, top_p
from regard.decoding.strategies import Sample

tied_logits = st.lists(st.integers(-6, 6).map(lambda half: half / 2), min_size=1, max_size=11)
any_logits = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=11) | tied_logits
masses = st.floats(0.01, 1.0)


def ranked(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def chances(logits: list[float]) -> list[float]:
    parts = [math.exp(logit - max(logits)) for logit in logits]
    return [part / math.fsum(parts) for part in parts]


def kept_by_mass(logits: list[float], mass: float) -> set[int]:
    """The smallest set reaching the mass, most likely first, ties by id; exact sums of the rounded chances."""
    chance = [Fraction(value) for value in chances(logits)]
    kept: set[int] = set()
    for token in ranked(logits):
        if sum((chance[other] for other in kept), Fraction(0)) >= Fraction(mass):
            break
        kept.add(token)
    return kept


def away_from_every_boundary(logits: list[float], mass: float) -> bool:
    """Whether no partial sum is so near the mass that rounding decides."""
    chance, total = chances(logits), 0.0
    for token in ranked(logits):
        total += chance[token]
        if abs(total - mass) < 1e-9:
            return False
    return True


def kept(filtered: Tensor) -> set[int]:
    return {token for token, logit in enumerate(filtered[0].tolist()) if logit != -math.inf}


def filtered(strategy: Sample, logits: Tensor) -> Tensor:
    """What a strategy's own filters leave, where nothing has been written."""
    nothing = torch.zeros(len(logits), dtype=torch.long)
    return apply(strategy.filters, logits, Generated(nothing[:, None] - 1, nothing, nothing + 1))


def tensor(logits: list[float]) -> Tensor:
    return torch.tensor([logits], dtype=torch.float64)


@given(any_logits, st.integers(1, 13))
def test_top_k_keeps_the_k_most_likely_and_of_equals_the_lower_id(logits, count):
    left = top_k(tensor(logits), count)
    assert kept(left) == set(ranked(logits)[:count])
    assert all(left[0, token] == logits[token] for token in kept(left))


@given(any_logits, masses)
@example([0.0, 0.0, 0.0, 0.0], 0.3)
@example([1.0, 3.0, 1.0, 3.0], 0.9)
def test_top_p_keeps_the_smallest_set_that_reaches_p(logits, mass):
    assume(away_from_every_boundary(logits, mass))
    left = top_p(tensor(logits), mass)
    assert kept(left) == kept_by_mass(logits, mass)
    assert all(left[0, token] == logits[token] for token in kept(left))


@pytest.mark.parametrize(("mass", "count"), [(0.25, 2), (0.26, 3), (0.5, 4), (0.625, 5), (0.875, 7), (1.0, 8)])
def test_a_set_that_reaches_p_exactly_is_enough(mass, count):
    equal = torch.zeros(1, 8)  # each has probability 1/8, exactly
    assert kept(top_p(equal, mass)) == set(range(count))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_in_a_large_vocabulary_too_the_lower_id_of_equals_is_kept(kind):
    logits = torch.tensor([0.0, 1.0], dtype=kind).repeat(1, 1024)  # the odd ids are more likely
    odd = list(range(1, 2048, 2))
    assert kept(top_k(logits, 100)) == set(odd[:100])
    assert kept(top_k(logits, 1030)) == {*odd, 0, 2, 4, 6, 8, 10}
    share = math.e / (1 + math.e) / 1024
    assert kept(top_p(logits, 99.5 * share)) == set(odd[:100])


@given(st.lists(st.floats(-800, 800), min_size=1, max_size=17))
@example([0.0, -40.0, -45.0, -700.0])
def test_p_of_one_keeps_whatever_has_a_chance(logits):
    possible = {token for token, chance in enumerate(tensor(logits).softmax(-1)[0].tolist()) if chance > 0}
    assert kept(top_p(tensor(logits), 1.0)) >= possible


@given(any_logits)
def test_k_of_the_vocabulary_or_more_keeps_everything(logits):
    for count in (len(logits), len(logits) + 1, 1000):
        assert torch.equal(top_k(tensor(logits), count), tensor(logits))
        assert torch.equal(filtered(Sample(top_k=count), tensor(logits)).softmax(-1), tensor(logits).softmax(-1))


@given(any_logits, st.floats(0.05, 20))
def test_temperature_divides_the_logits_before_the_softmax(logits, value):
    by_hand = chances([logit / value for logit in logits])
    torch.testing.assert_close(temperature(tensor(logits), value).softmax(-1), tensor(by_hand), rtol=1e-9, atol=1e-12)


@given(any_logits, st.floats(0.1, 5), st.integers(1, 9), masses)
@example([2.0, 1.0, 0.0], 2.0, 2, 0.6)  # keeps one; with top-p before top-k two
@example([2.0, 1.0, 0.0], 5.0, 3, 0.6)  # keeps two; with top-p before the temperature one
def test_the_order_is_temperature_then_top_k_then_top_p(logits, value, count, mass):
    warm = [logit / value for logit in logits]
    survivors = sorted(ranked(warm)[:count])
    among = [warm[token] for token in survivors]
    assume(away_from_every_boundary(among, mass) and len(set(warm)) == len(set(logits)))
    expected = {survivors[place] for place in kept_by_mass(among, mass)}
    left = filtered(Sample(value, count, mass), tensor(logits))
    assert kept(left) == expected
    shares = dict(zip(sorted(expected), chances([warm[token] for token in sorted(expected)]), strict=True))
    by_hand = tensor([shares.get(token, 0.0) for token in range(len(logits))])
    torch.testing.assert_close(left.softmax(-1), by_hand, rtol=1e-9, atol=1e-12)


@given(any_logits, st.floats(1e-300, 1e300), st.integers(1, 9), st.floats(1e-300, 1.0))
@example([10.0, 9.0], 1e-40, 1, 1e-300)
@example([0.0, 0.0], 5e-324, 2, 1.0)
def test_something_is_always_left_and_the_most_likely_first(logits, value, count, mass):
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        given_logits = tensor(logits).to(kind)
        left = filtered(Sample(value, count, mass), given_logits)
        assert not left.isnan().any()
        assert int(given_logits.argmax()) in kept(left)


@given(st.lists(tied_logits.map(lambda row: (row * 11)[:5]), min_size=1, max_size=4), masses, st.integers(1, 4))
def test_every_row_is_filtered_as_if_alone(rows, mass, count):
    together = torch.tensor(rows, dtype=torch.float64)
    strategy = Sample(0.7, count, mass)
    alone = torch.cat([filtered(strategy, together[row : row + 1]) for row in range(len(rows))])
    assert torch.equal(filtered(strategy, together), alone)


def test_filters_leave_the_logits_they_are_given_as_they_were():
    logits = torch.tensor([[3.0, 1.0, 2.0]])
    filtered(Sample(0.5, 2, 0.4), logits)
    assert logits.tolist() == [[3.0, 1.0, 2.0]]

"""Which tokens may be chosen, whatever the strategy."""

import pytest
import torch

from regard.decoding.filters import ForcedBos, ForcedEos, Generated, Renormalized, Suppressed, apply

LIMIT = 5


def at(place: int) -> Generated:
    """Three rows, each of which has read one token and written so many."""
    ones = torch.ones(3, dtype=torch.long)
    return Generated(torch.full((3, 1 + place), 4), ones, ones * LIMIT)


@pytest.fixture
def likely() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(3, 11, dtype=torch.float64).log_softmax(dim=-1)


def test_without_filters_nothing_changes(likely):
    for place in range(LIMIT):
        assert torch.equal(apply((), likely, at(place)), likely)


def test_what_is_banned_has_no_chance_and_the_rest_keep_their_own(likely):
    found = apply([Suppressed((2, 7))], likely, at(1)).exp()
    kept = [place for place in range(11) if place not in (2, 7)]
    assert found[:, [2, 7]].eq(0).all()
    assert torch.equal(found[:, kept], likely[:, kept].exp())


def test_renormalised_chances_are_shares_of_what_may_be_chosen(likely):
    found = apply([Suppressed((2, 7)), Renormalized()], likely, at(1)).exp()
    kept = likely.exp()
    kept[:, [2, 7]] = 0
    torch.testing.assert_close(found, kept / kept.sum(dim=-1, keepdim=True))


def test_what_is_demanded_is_certain_where_it_is_demanded_even_if_suppressed(likely):
    filters = [Suppressed((3, 5)), ForcedBos(3), ForcedEos(5)]
    for place in range(LIMIT):
        found = apply(filters, likely, at(place)).exp()
        certain = {0: 3, LIMIT - 1: 5}.get(place)
        if certain is None:
            assert found[:, [3, 5]].eq(0).all()
        else:
            assert torch.equal(found, torch.eye(11, dtype=torch.float64)[[certain] * 3])

"""Every law over every registered network, every head and every value of every axis; the whole product when slow."""

from collections import Counter

import pytest
import torch
from axes_of_models import (
    ATTENTIONAL,
    COVERING,
    FIXED,
    HEADS,
    MECHANISM,
    MOST,
    Axes,
    Choice,
    all_pairs,
    config,
    mechanism_choices,
    named,
    pairs_of,
    whole_product,
)

from regard.attention.mechanism import MECHANISMS
from regard.inspection.laws import LAWS, Examined
from regard.models.network import NETWORKS, NetworkConfig

NETWORK_NAMES = set(NETWORKS)
CASES = [(axes, choice) for axes, choices in COVERING for choice in choices]


def departures(described: NetworkConfig) -> dict[str, float]:
    torch.manual_seed(1)
    model = Examined.of(described.build())
    return {law.name: law.measure(model) for law in LAWS if law.applies(model)}


def too_far(measured: dict[str, float]) -> dict[str, float]:
    tolerances = {law.name: law.tolerance for law in LAWS}
    return {name: value for name, value in measured.items() if not value <= tolerances[name]}


@pytest.mark.parametrize("case", [*CASES, *((MECHANISM, one) for one in mechanism_choices(whole=False))], ids=named)
def test_every_law_holds(case: tuple[Axes, Choice]):
    described = config(*case)
    measured = departures(described)
    assert {"lengths", "padding", "batching", "determinism", "save_load"} <= set(measured)
    assert ({"causality", "caching", "beam_scores", "beam_search"} <= set(measured)) == described.decodes
    assert ({"accumulation", "resume"} <= set(measured)) == (described.outputs != "none")
    assert ("packing" in measured) == described.reads_packed
    assert too_far(measured) == {}


def test_the_covering_has_every_network_every_head_and_every_value_and_few_of_each():
    configs = [config(*case) for case in CASES]
    counted = Counter(one.name for one in configs)
    assert set(counted) == NETWORK_NAMES
    assert max(counted.values()) <= MOST
    assert {one.outputs for one in configs} == set(HEADS)
    for axes, choices in COVERING:
        for place, values in enumerate(axes.values()):
            assert {choice[place] for choice in choices} == set(values)


def test_every_mechanism_is_among_those_the_laws_are_measured_of():
    for whole in (False, True):
        assert {choice[0]["name"] for choice in mechanism_choices(whole)} == set(MECHANISMS)


def test_recurrent_networks_have_every_pair_of_values():
    for axes, choices in COVERING:
        if axes in (ATTENTIONAL, FIXED):
            assert all_pairs(axes) == set().union(*(pairs_of(choice) for choice in choices))


@pytest.mark.slow
@pytest.mark.parametrize("case", list(whole_product()), ids=named)
def test_every_law_holds_for_the_whole_product(case: tuple[Axes, Choice]):
    assert too_far(departures(config(*case))) == {}

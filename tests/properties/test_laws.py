"""Every law over every value of every axis, all pairs of values together; the whole product in `make test-slow`."""

from itertools import combinations, product

import pytest
import torch
from axes_of_models import AXES, all_pairs, config, name, pairs_of, product_of_the_six

from regard.inspection.laws import LAWS
from regard.models.transformer import Transformer

PAIRS = all_pairs()


def departures(choice) -> dict[str, float]:
    torch.manual_seed(1)
    model = Transformer(config(choice))
    measured = {law.name: law.measure(model) for law in LAWS if law.applies(model)}
    if model.config.norm == "none":  # nothing bounds its vectors: float32 rounds more, and float64 tells rounding apart
        doubtful = too_far(measured)
        measured |= {law.name: law.measure(model.double()) for law in LAWS if law.name in doubtful}
    return measured


def too_far(measured: dict[str, float]) -> dict[str, float]:
    tolerances = {law.name: law.tolerance for law in LAWS}
    return {name: value for name, value in measured.items() if not value <= tolerances[name]}


@pytest.mark.parametrize("choice", PAIRS, ids=name)
def test_every_law_holds_for_all_pairs_of_values(choice):
    measured = departures(choice)
    assert len(measured) >= 7
    assert too_far(measured) == {}


def test_the_covering_holds_every_pair_of_values():
    covered = set().union(*(pairs_of(choice) for choice in PAIRS))
    for (one, firsts), (other, seconds) in combinations(enumerate(AXES.values()), 2):
        for first, second in product(firsts, seconds):
            assert ((one, first), (other, second)) in covered


@pytest.mark.slow
@pytest.mark.parametrize("choice", list(product_of_the_six()), ids=name)
def test_every_law_holds_for_the_whole_product(choice):
    assert too_far(departures(choice)) == {}

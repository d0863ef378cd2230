"""Sampling draws from exactly the filtered distribution, and a sequence's draws are its own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_steppers import END, Case, random_logits, recurrent_case, told_case, transformer_case

from regard.decoding.engine import generate
from regard.decoding.filters import Generated, apply
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import InputError

LOGITS = (1.5, -0.5, 0.0, 1.5, -2.0, 0.75, -math.inf)
STRATEGIES = (
    Sample(),
    Sample(temperature=0.6),
    Sample(temperature=1.7, top_k=4),
    Sample(top_p=0.8),
    Sample(temperature=1.3, top_k=5, top_p=0.85),
)


def distribution(strategy: Sample, logits=LOGITS) -> list[float]:
    """The filtered softmax by hand."""
    warm = [logit / strategy.temperature for logit in logits]
    order = sorted(range(len(warm)), key=lambda token: (-warm[token], token))[: strategy.top_k]
    parts = {token: math.exp(warm[token]) for token in order}
    kept, total = {}, 0.0
    for token in order:
        if total >= (strategy.top_p or 2.0) * sum(parts.values()):
            break
        kept[token] = parts[token]
        total += parts[token]
    return [kept.get(token, 0.0) / total for token in range(len(warm))]


def chi_square(counts: list[int], chances: list[float]) -> float:
    """How many standard deviations the statistic lies above its mean; infinite where the impossible occurred."""
    if any(count and not chance for count, chance in zip(counts, chances, strict=True)):
        return math.inf
    expected = [sum(counts) * chance for chance in chances]
    statistic = sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True) if mean)
    freedom = sum(mean > 0 for mean in expected) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def counted(ids: torch.Tensor) -> list[int]:
    return ids.bincount(minlength=len(LOGITS)).tolist()


def filtered(strategy: Sample, logits: torch.Tensor) -> torch.Tensor:
    nothing = torch.zeros(len(logits), dtype=torch.long)
    return apply(strategy.filters, logits, Generated(nothing[:, None] - 1, nothing, nothing + 1))


def chosen(strategy: Sample, logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    return strategy.choose(filtered(strategy, logits), draws)


# One choice


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_evenly_spread_draws_give_every_token_its_share(strategy):
    draws = (torch.arange(9973, dtype=torch.float64) + 0.5) / 9973
    counts = counted(chosen(strategy, torch.tensor([LOGITS]).expand(9973, -1), draws))
    for count, chance in zip(counts, distribution(strategy), strict=True):
        assert abs(count - 9973 * chance) <= 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_random_draws_follow_the_filtered_softmax(strategy):
    draws = torch.rand(30_011, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    counts = counted(chosen(strategy, torch.tensor([LOGITS]).expand(30_011, -1), draws))
    assert chi_square(counts, distribution(strategy)) < 3


def test_a_draw_at_a_boundary_belongs_to_the_token_that_begins_there():
    logits = torch.tensor([[-math.inf, 0.0, 0.0, -math.inf, 0.0, 0.0, -math.inf]])  # slices of a quarter: 1, 2, 4, 5
    just_below = [math.nextafter(place, 0.0) for place in (0.25, 0.5, 0.75, 1.0)]
    expected = {place: 1 + index for index, place in enumerate((0.0, 0.25))} | {0.5: 4, 0.75: 5}
    expected |= dict(zip(just_below, (1, 2, 4, 5), strict=True))
    draws = torch.tensor(list(expected), dtype=torch.float64)
    assert Sample().choose(logits.expand(len(draws), -1), draws).tolist() == list(expected.values())


@given(
    st.lists(st.floats(-80, 80, width=32), min_size=2, max_size=13),
    st.sampled_from([0.0, math.nextafter(1.0, 0.0)]),
    st.sampled_from(STRATEGIES),
)
def test_no_draw_reaches_a_token_that_was_removed(logits, draw, strategy):
    token = int(chosen(strategy, torch.tensor([logits]), torch.tensor([draw], dtype=torch.float64)))
    assert filtered(strategy, torch.tensor([logits]))[0, token] > -math.inf


def test_greedy_takes_the_lowest_id_of_the_most_likely():
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.5]])
    assert Greedy().choose(logits, torch.zeros(3)).tolist() == [1, 0, 3]


@given(st.lists(st.integers(-5000, 5000), min_size=1, max_size=9, unique=True), st.floats(0, 1, exclude_max=True))
def test_sampling_narrowed_to_one_token_is_greedy(thousandths, draw):
    row, draws = torch.tensor([thousandths]) / 1000, torch.tensor([draw], dtype=torch.float64)
    greedy = Greedy().choose(row, draws)
    for strategy in (Sample(top_k=1), Sample(top_p=1e-9), Sample(temperature=1e-12), Sample(temperature=1e-320)):
        assert torch.equal(chosen(strategy, row, draws), greedy)


# Sequences


def test_the_engine_draws_independently_for_every_sequence():
    rows, case = 4001, told_case(random_logits(7, seed=5, spread=1.0), [(1,)] * 4001)
    found = generate(case.stepper, case.inputs, Sample(seed=3), Stop(END, 2))
    first = [one.ids[0] for one in found]
    chances = case.after(0, ()).exp().tolist()
    assert chi_square([first.count(token) for token in range(7)], chances) < 3
    favourite = max((token for token in range(7) if token != END), key=lambda token: chances[token])
    second = [one.ids[1] for one in found if one.ids[0] == favourite]
    assert len(second) > rows / 10
    assert chi_square([second.count(token) for token in range(7)], case.after(0, (favourite,)).exp().tolist()) < 3


CASES = {
    "encoder_decoder": lambda: transformer_case("encoder_decoder"),
    "decoder": lambda: transformer_case("decoder", "rotary"),
    "recurrent": recurrent_case,
}


@pytest.fixture(params=CASES, scope="module")
def case(request) -> Case:
    return CASES[request.param]()


def test_the_same_seed_gives_the_same_text_and_another_seed_another(case):
    def texts(seed):
        return [one.ids for one in generate(case.stepper, case.inputs, Sample(2.0, seed=seed), Stop(END, 13))]

    assert texts(1) == texts(1)
    assert len({tuple(texts(seed)) for seed in range(3)}) == 3


def test_a_sample_does_not_depend_on_what_stands_beside_it(case):
    stop, finished_earlier = Stop(END, 13), 0
    for seed in range(4):
        strategy = Sample(temperature=1.5, top_p=0.95, seed=seed)
        [alone] = generate(case.stepper, case.alone(0), strategy, stop)
        for company in ([0, 1, 2, 3], [0, 3, 3]):
            together = generate(case.stepper, case.beside(company), strategy, stop)
            assert together[0].ids == alone.ids
            assert together[0].score == pytest.approx(alone.score, abs=1e-9)
            finished_earlier += any(len(other.ids) < len(alone.ids) for other in together[1:])
    assert finished_earlier  # else the test says nothing about rows that leave


def test_a_sample_depends_on_its_place_and_not_on_its_neighbours(case):
    stop, left_apart = Stop(END, 13), 0
    for seed in range(4):
        strategy, ends = Sample(temperature=1.5, seed=seed), set()
        for company in ([0, 1, 2, 3], [3, 3, 2, 0], [1, 0, 2, 1]):
            found = generate(case.stepper, case.beside(company), strategy, stop)
            ends.add(tuple(len(one.ids) < len(found[2].ids) for one in found))
            assert found[2].ids == generate(case.stepper, case.beside([0, 1, 2]), strategy, stop)[2].ids
        left_apart += len(ends) > 1
    assert left_apart  # the neighbours left at different times


def test_a_seed_may_be_any_whole_number(case):
    for seed in (-1, 2**31, 2**63, 10**30):
        [found] = generate(case.stepper, case.alone(0), Sample(seed=seed), Stop(END, 2))
        assert found.ids


# What is refused


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_above_zero_is_refused(value):
    with pytest.raises(InputError, match=f"temperature {value}.*greedy"):
        Sample(temperature=value)


@pytest.mark.parametrize("value", [0, -3])
def test_a_top_k_that_keeps_nothing_is_refused(value):
    with pytest.raises(InputError, match=f"top-k {value}.*1 or more"):
        Sample(top_k=value)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, math.nan])
def test_a_top_p_that_is_no_share_is_refused(value):
    with pytest.raises(InputError, match=f"top-p {value}"):
        Sample(top_p=value)


@pytest.mark.parametrize("value", [0, -1])
def test_an_empty_beam_is_refused(value):
    with pytest.raises(InputError, match=f"beam of {value}"):
        Beam(value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_generates_nothing_is_refused(value):
    with pytest.raises(InputError, match=f"limit of {value} new tokens"):
        Stop(END, value)


def test_strategies_are_values():
    assert Sample(0.5, top_k=3) == Sample(0.5, top_k=3) != Sample(0.5, top_k=3, seed=1)
    assert len({Greedy(), Greedy(), Beam(3), Beam(3, 1.0), Beam(3, 0.5)}) == 3

"""Diverse beam search takes the steps of Vijayakumar et al. (2016), Algorithm 1, written plainly."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_steppers import END, Case, Text, random_logits, told_case

from regard.decoding.beam import search_all
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam
from regard.errors import InputError


def plain_diverse(case: Case, row: int, strategy: Beam, limit: int) -> list[tuple[Text, float]]:
    """Group after group at every step; what those before chose costs the penalty a time in choosing alone."""
    size, penalty = strategy.size // strategy.parts, strategy.length_penalty
    running: list[dict[Text, float]] = [{(): 0.0} for _ in range(strategy.parts)]
    finished: list[dict[Text, float]] = [{} for _ in range(strategy.parts)]
    done = [False] * strategy.parts
    for length in range(1, limit + 1):
        said: Counter[int] = Counter()
        for group in range(strategy.parts):
            if done[group]:
                continue
            totals = {
                (*text, token): total + more
                for text, total in running[group].items()
                for token, more in enumerate(case.after(row, text).tolist())
            }
            worth = {text: total - strategy.diversity_penalty * said[text[-1]] for text, total in totals.items()}
            best = sorted(totals, key=lambda text: -worth[text])[: 2 * size]
            over = {text for text in best if text[-1] == END or length == limit}
            finished[group] |= {text: totals[text] / length**penalty for text in best[:size] if text in over}
            finished[group] = dict(sorted(finished[group].items(), key=lambda pair: -pair[1])[:size])
            running[group] = {text: totals[text] for text in [text for text in best if text not in over][:size]}
            said.update(text[-1] for text in running[group])
            most = max(running[group].values(), default=-math.inf) / length**penalty
            ended = len(finished[group]) == size and most <= min(finished[group].values())
            done[group] = ended or not running[group]
    once = {text: score for group in finished for text, score in group.items()}
    return sorted(once.items(), key=lambda pair: -pair[1])


@given(st.integers(0, 10**6), st.sampled_from([(2, 2), (4, 2), (4, 4), (6, 3)]), st.floats(0.1, 5), st.integers(2, 7))
def test_groups_are_searched_as_the_paper_says(seed, sizes, diversity, limit):
    size, groups = sizes
    strategy = Beam(size, 0.7, diversity, groups)
    case = told_case(random_logits(7, seed), [(1,), (3,)])
    found = search_all(case.stepper, case.inputs, strategy, Stop(END, limit))
    for row in case.rows:
        wanted = plain_diverse(case, row, strategy, limit)
        assert [one.ids for one in found[row]] == [text for text, _ in wanted]
        assert [one.score for one in found[row]] == pytest.approx([score for _, score in wanted], abs=1e-9)


def test_what_is_diverse_differs_more_and_its_scores_still_add_up():
    case = told_case(random_logits(11, 3, spread=1.0), [(1,)])
    firsts = {}
    for diversity in (0.0, 3.0):
        [found] = search_all(case.stepper, case.inputs, Beam(5, diversity_penalty=diversity), Stop(END, 5))
        firsts[diversity] = len({one.ids[0] for one in found})
        for one in found:
            assert one.score * len(one.ids) == pytest.approx(case.score(0, one.ids), abs=1e-9)
    assert firsts[3.0] > firsts[0.0]


@pytest.mark.parametrize(
    ("given_options", "said"),
    [
        ({"size": 6, "diversity_penalty": 1.0, "groups": 4}, "a beam of 6 does not part into 4 groups; use 2, 3, 6"),
        ({"size": 4, "groups": 2}, "2 groups have no effect without a diversity penalty"),
        ({"size": 4, "diversity_penalty": -1.0}, "a diversity penalty of -1.0 is no cost"),
        ({"size": 4, "n_best": 5}, "a beam of 4 does not hold 5 answers; use 1 to 4"),
    ],
)
def test_groups_that_cannot_be_are_refused(given_options, said):
    with pytest.raises(InputError, match=said):
        Beam(**given_options)

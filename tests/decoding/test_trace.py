"""What is told of decoding is what happened: every branch of a beam, every candidate of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_steppers import END, random_logits, told_case

from regard.decoding.engine import generate, generate_ranked, watch_beam, watch_steps
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample
from regard.decoding.trace import BeamWatch, StepWatch

LIMIT, VOCABULARY = 6, 7


def text_of(watch: BeamWatch, number: int) -> tuple[int, ...]:
    branch = watch.branches[number - 1]
    return (*(text_of(watch, branch.parent) if branch.parent else ()), branch.id)


def watched(case, strategy):
    watch = BeamWatch(str, strategy)
    return watch, watch_beam(case.stepper, case.inputs, strategy, Stop(END, LIMIT), (), watch)


@given(
    st.integers(0, 10**6), st.sampled_from([Beam(1), Beam(3, 0.7), Beam(4, diversity_penalty=1.0, groups=2), Beam(9)])
)
def test_watching_changes_nothing_and_every_sum_is_that_of_the_model(seed, strategy):
    case = told_case(random_logits(VOCABULARY, seed), [(1,)])
    watch, found = watched(case, strategy)
    [plain] = generate_ranked(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert found == plain
    for branch in watch.branches:
        text = text_of(watch, branch.number)
        assert branch.step == len(text)
        assert branch.total == pytest.approx(case.score(0, text), abs=1e-9)
        assert branch.log_probability == pytest.approx(float(case.after(0, text[:-1])[branch.id]), abs=1e-9)
        assert branch.score == pytest.approx(branch.total / len(text) ** strategy.length_penalty, abs=1e-9)
    ended = {text_of(watch, one.number) for one in watch.branches if one.fate == "finished"}
    assert {one.ids for one in found} <= ended


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_what_is_pruned_by_its_rank_is_below_what_is_kept(seed, size):
    case = told_case(random_logits(VOCABULARY, seed), [(1,)])
    watch, _ = watched(case, Beam(size))
    parents = {one.parent for one in watch.branches}
    for step in {one.step for one in watch.branches}:
        here = [one for one in watch.branches if one.step == step]
        went_on = [one for one in here if one.number in parents]
        assert len(went_on) <= size
        for one in here:
            assert sum(other.total > one.total for other in here) < one.rank or one.rank == 1
            if one.fate == "pruned" and one.why.startswith("rank"):
                assert one.number not in parents
                assert one.total <= one.threshold
                assert all(one.total <= other.total for other in went_on)
            if one.fate == "kept":
                assert one.number in parents or step == LIMIT


def test_every_fate_has_its_reason():
    said = set()
    for seed in range(40):
        case = told_case(random_logits(VOCABULARY, seed), [(1,)])
        watch, _ = watched(case, Beam(3, 0.3))
        said |= {one.why.split(" ")[0:2][0] + " " + one.why.split(" ")[1] for one in watch.branches}
    assert {"it is", "it ends", "it ends,", "it ended", "when 3"} <= said
    assert any(one.startswith("rank ") for one in said)


@pytest.mark.parametrize(
    "strategy", [Greedy(), Sample(1.7, top_k=5, top_p=0.8, min_p=0.1, repetition_penalty=1.5, seed=1)], ids=repr
)
def test_the_candidates_of_a_step_are_the_model_before_and_after_every_stage(strategy):
    case = told_case(random_logits(VOCABULARY, 4), [(1,)])
    watch = StepWatch(strategy.filters, str)
    one = watch_steps(case.stepper, case.inputs, strategy, Stop(END, LIMIT), (), watch)
    [plain] = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert one == plain
    assert [step.chosen for step in watch.steps] == list(one.ids)
    for place, step in enumerate(watch.steps):
        chances = case.after(0, one.ids[:place]).exp()
        assert step.log_probability == pytest.approx(one.log_probabilities[place], abs=1e-9)
        assert step.rank == 1 + int((chances > chances[step.chosen]).sum())
        assert step.left[0] == VOCABULARY
        for candidate in step.candidates:
            assert candidate.probabilities[0] == pytest.approx(float(chances[candidate.id]), abs=1e-9)
        if isinstance(strategy, Sample):
            assert watch.stages() == (
                "model",
                "repetition penalty 1.5",
                "temperature 1.7",
                "top-k 5",
                "top-p 0.8",
                "min-p 0.1",
            )
            by_hand(step)


def by_hand(step) -> None:
    """Top-k, top-p and min-p written out, from the shares that temperature leaves."""
    after = {candidate.id: candidate.probabilities for candidate in step.candidates}
    warm = {token: shares[2] for token, shares in after.items()}
    assert sum(warm.values()) == pytest.approx(1, abs=1e-6)
    order = sorted(warm, key=lambda token: (-warm[token], token))
    kept = order[:5]
    assert [token for token in order if after[token][3] > 0] == kept
    total, nucleus = 0.0, []
    for token in kept:
        if total >= 0.8:
            break
        nucleus.append(token)
        total += after[token][3]
    assert [token for token in order if after[token][4] > 0] == nucleus
    most = max(after[token][4] for token in nucleus)
    final = [token for token in nucleus if after[token][4] >= 0.1 * most]
    assert [token for token in order if after[token][5] > 0] == final
    assert step.left == (VOCABULARY, VOCABULARY, VOCABULARY, 5, len(nucleus), len(final))


def test_contrastive_search_and_filters_are_told_of_too():
    from small_steppers import transformer_case

    case = transformer_case("decoder", "rotary", prompts=(3,))
    watch = StepWatch((), str)
    one = watch_steps(case.stepper, case.inputs, Contrastive(3, 0.4), Stop(END, LIMIT), (), watch)
    assert [step.chosen for step in watch.steps] == list(one.ids)
    assert any(step.rank > 1 for step in watch.steps)

"""Beam search finds what brute force finds, and takes the same steps as two other implementations of its rule."""

import math
from collections.abc import Callable
from functools import cache, partial
from itertools import product

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_steppers import END, Case, Text, random_logits, recurrent_case, seq2seq_case, told_case, transformer_case
from torch import Tensor

from regard.decoding.beam import search_all
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.strategies import Beam, Greedy
from rounding import assert_close

PENALTIES = (0.0, 0.6, 1.0, 2.0)
Ranked = list[tuple[Text, float]]

CASES: dict[str, Callable[..., Case]] = {
    "encoder_decoder": partial(transformer_case, "encoder_decoder", "sinusoidal", seed=3),
    "decoder": partial(transformer_case, "decoder", "rotary"),
    "recurrent": recurrent_case,
    "bahdanau": seq2seq_case,
    "luong": partial(seq2seq_case, "luong", "lstm"),
}


@cache
def make(name: str, vocabulary: int = 7, prompts: tuple[int, ...] = (3, 1, 5, 2)) -> Case:
    return CASES[name](vocabulary=vocabulary, prompts=prompts)


def everything(case: Case, row: int, vocabulary: int, limit: int, penalty: float) -> Ranked:
    """Every text that ends, or reaches the limit, with its score; best first."""
    texts = [text for length in range(1, limit + 1) for text in product(range(vocabulary), repeat=length)]
    whole = [text for text in texts if END not in text[:-1] and (text[-1] == END or len(text) == limit)]
    scored = [(text, case.score(row, text) / len(text) ** penalty) for text in whole]
    return sorted(scored, key=lambda pair: -pair[1])


def plain_beam(case: Case, row: int, strategy: Beam, limit: int) -> Ranked:
    """Beam search in plain Python, by the rule of transformers' `early_stopping=False`."""
    size, penalty = strategy.size, strategy.length_penalty
    running: dict[Text, float] = {(): 0.0}
    finished: dict[Text, float] = {}
    for length in range(1, limit + 1):
        candidates = {
            (*text, token): total + more
            for text, total in running.items()
            for token, more in enumerate(case.after(row, text).tolist())
        }
        best = sorted(candidates, key=lambda text: -candidates[text])[: 2 * size]
        over = {text for text in best if text[-1] == END or length == limit}
        finished |= {text: candidates[text] / length**penalty for text in best[:size] if text in over}
        finished = dict(sorted(finished.items(), key=lambda pair: -pair[1])[:size])
        running = {text: candidates[text] for text in [text for text in best if text not in over][:size]}
        most = max(running.values(), default=-math.inf) / length**penalty
        if len(finished) == size and most <= min(finished.values()):
            break
    return list(finished.items())


def assert_equal(found: list[Hypothesis], expected: Ranked) -> None:
    assert [one.ids for one in found] == [text for text, _ in expected]
    assert [one.score for one in found] == pytest.approx([score for _, score in expected], abs=1e-9)


# Against brute force


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(("vocabulary", "limit"), [(3, 4), (5, 3)])
def test_a_beam_that_holds_everything_finds_the_best_of_all(name, penalty, vocabulary, limit):
    case = make(name, vocabulary, (2, 3))
    found = search_all(case.stepper, case.inputs, Beam(vocabulary**limit, penalty), Stop(END, limit))
    for row in case.rows:
        assert_equal(found[row], everything(case, row, vocabulary, limit, penalty))


@given(st.integers(0, 10**6), st.sampled_from([(3, 4), (4, 4), (5, 3)]), st.floats(-1, 3))
def test_whatever_the_logits_a_beam_that_holds_everything_is_brute_force(seed, sizes, penalty):
    vocabulary, limit = sizes
    case = told_case(random_logits(vocabulary, seed), [(1,)])
    [found] = search_all(case.stepper, case.inputs, Beam(vocabulary**limit, penalty), Stop(END, limit))
    assert_equal(found, everything(case, 0, vocabulary, limit, penalty))


# Against the same rule written another way


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_beam_equals_a_plain_one(name, penalty, size):
    case = make(name, 5, (3, 1))
    found = search_all(case.stepper, case.inputs, Beam(size, penalty), Stop(END, 7))
    for row in case.rows:
        assert_equal(found[row], plain_beam(case, row, Beam(size, penalty), 7))


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 6), st.integers(1, 8), st.floats(-1, 3))
@example(0, 3, 4, 8, 2.0)
def test_whatever_the_logits_a_beam_equals_a_plain_one(seed, vocabulary, size, limit, penalty):
    case = told_case(random_logits(max(vocabulary, END + 1), seed), [(1,)])
    [found] = search_all(case.stepper, case.inputs, Beam(size, penalty), Stop(END, limit))
    assert_equal(found, plain_beam(case, 0, Beam(size, penalty), limit))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_beam_equals_transformers(penalty):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=13, n_positions=32, n_embd=12, n_layer=2, n_head=3, initializer_range=0.7
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()

    @torch.no_grad()
    def logits(text: Text) -> Tensor:
        return model(input_ids=torch.tensor([text])).logits[0, -1]

    lengths = set()
    for seed in range(13):
        end, prompt = seed, torch.randint(13, (1, 3), generator=torch.Generator().manual_seed(seed))
        peer = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            num_beams=4,
            num_return_sequences=4,
            early_stopping=False,
            length_penalty=penalty,
            max_new_tokens=9,
            do_sample=False,
            pad_token_id=13,
            eos_token_id=end,
            return_dict_in_generate=True,
            output_scores=True,
        )
        case = told_case(logits, [tuple(prompt[0].tolist())])
        [found] = search_all(case.stepper, case.inputs, Beam(4, penalty), Stop(end, 9))
        texts = [row[3:] for row in peer.sequences.tolist()]
        texts = [tuple(text[: text.index(end) + 1] if end in text else text) for text in texts]
        assert [one.ids for one in found] == texts
        assert_close(torch.tensor([one.score for one in found]), peer.sequences_scores.float())
        lengths |= {len(one.ids) for one in found}
    assert len(lengths) > 3 or penalty > 1  # a high penalty takes the longest


# What follows from the rule


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_beam_of_one_is_greedy(name, penalty):
    case = make(name)
    greedy = generate(case.stepper, case.inputs, Greedy(), Stop(END, 9))
    beam = generate(case.stepper, case.inputs, Beam(1, penalty), Stop(END, 9))
    assert [one.ids for one in beam] == [one.ids for one in greedy]
    assert [one.rows for one in beam] == [one.rows for one in greedy]
    scores = [one.score / len(one.ids) ** penalty for one in greedy]
    assert [one.score for one in beam] == pytest.approx(scores, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 7), st.floats(-1, 3))
def test_scores_add_up_and_are_sorted(seed, size, limit, penalty):
    case = told_case(random_logits(5, seed), [(1,), (3,)])
    for row, found in enumerate(search_all(case.stepper, case.inputs, Beam(size, penalty), Stop(END, limit))):
        for one in found:
            assert one.score * len(one.ids) ** penalty == pytest.approx(case.score(row, one.ids), abs=1e-9)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({one.ids for one in found}) == len(found) <= size


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("strategy", [Beam(2), Beam(3, 0.0), Beam(4, 2.0)], ids=repr)
def test_a_batch_is_searched_as_one_by_one(name, strategy):
    case = make(name)
    together = search_all(case.stepper, case.inputs, strategy, Stop(END, 9))
    for row in case.rows:
        [alone] = search_all(case.stepper, case.alone(row), strategy, Stop(END, 9))
        assert_equal(together[row], [(one.ids, one.score) for one in alone])


def test_the_best_of_search_all_is_what_generate_returns():
    case = make("recurrent")
    ranked = search_all(case.stepper, case.inputs, Beam(3), Stop(END, 9))
    assert generate(case.stepper, case.inputs, Beam(3), Stop(END, 9)) == [found[0] for found in ranked]


# Ties


def level(vocabulary: int) -> Case:
    return told_case(lambda text: torch.zeros(vocabulary), [(1,)])


def test_of_equal_tokens_the_lower_id_wins():
    case = level(5)
    [found] = search_all(case.stepper, case.inputs, Beam(3, 1.0), Stop(4, 2))
    assert [one.ids for one in found] == [(0, 0), (0, 1), (0, 2)]
    [first] = generate(case.stepper, case.inputs, Beam(2), Stop(0, 3))
    assert first.ids == (0,)


def test_what_runs_must_be_better_than_what_has_finished_to_go_on():
    case = level(5)
    [first] = generate(case.stepper, case.inputs, Beam(1, 2.0), Stop(0, 3))
    assert first.ids == (0,)  # (1,) is as good; going on with it would find better ones


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_ties_everywhere_are_broken_as_in_a_plain_beam(size, penalty):
    for end_bonus in (0.0, 1.0, -1.0):

        def logits(text: Text, bonus: float = end_bonus) -> Tensor:
            return torch.tensor([0.0, 1.0, bonus, 1.0, 0.0], dtype=torch.float64)

        case = told_case(logits, [(1,)])
        [found] = search_all(case.stepper, case.inputs, Beam(size, penalty), Stop(END, 4))
        assert_equal(found, plain_beam(case, 0, Beam(size, penalty), 4))


def test_a_token_that_is_impossible_is_in_no_text():
    def logits(text: Text) -> Tensor:
        return torch.tensor([-math.inf, 1.0, 0.5, -math.inf], dtype=torch.float64)

    case = told_case(logits, [(1,)])
    [found] = search_all(case.stepper, case.inputs, Beam(6, 0.5), Stop(END, 3))
    assert_equal(found, everything_possible(case, 3, 0.5))


def everything_possible(case: Case, limit: int, penalty: float) -> Ranked:
    return [pair for pair in everything(case, 0, 4, limit, penalty) if pair[1] > -math.inf]

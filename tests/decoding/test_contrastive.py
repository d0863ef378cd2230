"""Contrastive search by its formula, every score from one pass over the whole text."""

import pytest
import torch
from small_steppers import END, Case, Text, random_logits, seq2seq_case, told_case, transformer_case
from torch.nn.functional import cosine_similarity

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.sliding import Sliding
from regard.decoding.strategies import Contrastive, Greedy
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into

LIMIT = 7
CASES = {
    "encoder_decoder": lambda: transformer_case("encoder_decoder", seed=3),
    "decoder": lambda: transformer_case("decoder", "rotary"),
    "bahdanau": lambda: seq2seq_case(seed=5),
}


@pytest.fixture(params=CASES, scope="module")
def case(request) -> Case:
    return CASES[request.param]()


@torch.no_grad()
def plainly(case: Case, row: int, strategy: Contrastive) -> Text:
    """Su et al. (2022), equation 5, over whole texts."""
    prompt = case.inputs.tokens.rows()[row]
    source = None if case.inputs.source is None else Padded.of([case.inputs.source.rows()[row]])
    text: Text = ()
    while len(text) < LIMIT and text[-1:] != (END,):
        chances = case.after(row, text).exp()
        best = sorted(range(len(chances)), key=lambda token: (-float(chances[token]), token))[: strategy.top_k]
        worth = {}
        for token in best:
            vectors = case.stepper.hidden(Inputs(Padded.of([[*prompt, *text, token]]), source))[0]
            alike = float(cosine_similarity(vectors[-1:], vectors[:-1]).max())
            worth[token] = (1 - strategy.penalty_alpha) * float(chances[token]) - strategy.penalty_alpha * alike
        text = (*text, max(best, key=lambda token: worth[token]))
    return text


@pytest.mark.parametrize("strategy", [Contrastive(3, 0.6), Contrastive(5, 0.3), Contrastive(7, 1.0)], ids=repr)
def test_every_token_is_the_one_the_formula_chooses(case, strategy):
    found = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert [one.ids for one in found] == [plainly(case, row, strategy) for row in case.rows]
    for row, one in zip(case.rows, found, strict=True):
        assert sum(one.log_probabilities) == pytest.approx(case.score(row, one.ids), abs=1e-9)
    if strategy.penalty_alpha == 1:
        greedy = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
        assert [one.ids for one in found] != [one.ids for one in greedy]


@pytest.mark.parametrize("strategy", [Contrastive(1, 0.6), Contrastive(4, 0.0)], ids=repr)
def test_one_candidate_and_no_cost_are_greedy(case, strategy):
    greedy = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
    found = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert [one.ids for one in found] == [one.ids for one in greedy]


def test_what_stands_beside_a_row_changes_nothing(case):
    together = generate(case.stepper, case.inputs, Contrastive(4, 0.5), Stop(END, LIMIT))
    for row in case.rows:
        [alone] = generate(case.stepper, case.alone(row), Contrastive(4, 0.5), Stop(END, LIMIT))
        assert alone.ids == together[row].ids


def test_a_window_that_need_not_slide_changes_nothing_and_one_that_must_is_refused(case):
    plain = generate(case.stepper, case.inputs, Contrastive(4, 0.5), Stop(END, LIMIT))
    longest = int(case.inputs.tokens.lengths.max()) + LIMIT
    found = generate(Sliding(case.stepper, longest), case.inputs, Contrastive(4, 0.5), Stop(END, LIMIT))
    assert [one.ids for one in found] == [one.ids for one in plain]
    with pytest.raises(InputError, match=f"are more than the {longest - 1} that the model reads at once"):
        generate(Sliding(case.stepper, longest - 1), case.inputs, Contrastive(4, 0.5), Stop(END, LIMIT))


def test_what_has_no_vectors_and_what_is_watched_are_refused(case):
    plain = told_case(random_logits(5, 1), [(1,)])
    with pytest.raises(InputError, match="compares a network's vectors, and Told tells none"):
        generate(plain.stepper, plain.inputs, Contrastive(), Stop(END, 3))
    with record_into(Recording(), case.stepper), pytest.raises(InputError, match="cannot be watched"):
        generate(case.stepper, case.inputs, Contrastive(), Stop(END, 3))


@pytest.mark.parametrize(
    ("k", "alpha", "said"), [(0, 0.5, "among 0 tokens"), (3, 1.5, "penalty_alpha 1.5"), (3, -0.1, "penalty_alpha -0.1")]
)
def test_options_that_say_nothing_are_refused(k, alpha, said):
    with pytest.raises(InputError, match=said):
        Contrastive(k, alpha)

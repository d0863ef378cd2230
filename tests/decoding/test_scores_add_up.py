"""Every answer carries log-probabilities whose sum, by the length rule, is its score; read anew without a cache."""

import math

import pytest
import torch
from small_steppers import END, random_logits, recurrent_case, seq2seq_case, told_case, transformer_case

from regard.decoding.engine import generate_ranked
from regard.decoding.filters import Generated, Renormalized, Suppressed, apply
from regard.decoding.hypothesis import Stop
from regard.decoding.penalties import NoRepeatNgram, RepetitionPenalty
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample

LIMIT = 9
STRATEGIES = (
    Greedy(),
    Sample(temperature=1.6, top_k=5, min_p=0.01, repetition_penalty=1.3, seed=4),
    Beam(4, 0.7),
    Beam(4, 1.3, diversity_penalty=0.8, groups=2),
    Contrastive(4, 0.4),
)
CASES = {
    "encoder_decoder": lambda: transformer_case("encoder_decoder", "rotary", seed=3),
    "decoder": lambda: transformer_case("decoder", "alibi"),
    "recurrent": recurrent_case,
    "luong": lambda: seq2seq_case("luong", "lstm"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_the_log_probabilities_are_the_uncached_models_and_add_up(name, strategy):
    if name == "recurrent" and isinstance(strategy, Contrastive):
        return  # a stepper that is no network
    case = CASES[name]()
    power = strategy.length_penalty if isinstance(strategy, Beam) else 0.0
    for row, ranked in enumerate(generate_ranked(case.stepper, case.inputs, strategy, Stop(END, LIMIT))):
        for one in ranked:
            read_anew = [float(case.after(row, one.ids[:place])[token]) for place, token in enumerate(one.ids)]
            assert list(one.log_probabilities) == pytest.approx(read_anew, abs=1e-9)
            assert one.score == pytest.approx(math.fsum(read_anew) / len(one.ids) ** power, abs=1e-9)


@pytest.mark.parametrize("filters", [(RepetitionPenalty(1.4), NoRepeatNgram(2)), (Suppressed((3,)), Renormalized())])
def test_in_a_beam_they_are_what_the_filters_make_of_them(filters):
    case = told_case(random_logits(5, 3), [(1,), (4,)])
    changed = 0
    for row, ranked in enumerate(generate_ranked(case.stepper, case.inputs, Beam(3), Stop(END, LIMIT), filters)):
        prompt = case.inputs.tokens.rows()[row]
        for one in ranked:
            for place, token in enumerate(one.ids):
                text = [*prompt, *one.ids[:place]]
                stands = Generated(torch.tensor([text]), torch.tensor([len(prompt)]), torch.tensor([LIMIT]))
                plain = case.after(row, one.ids[:place])
                wanted = apply(filters, plain[None], stands)[0, token]
                assert one.log_probabilities[place] == pytest.approx(float(wanted), abs=1e-9)
                changed += abs(float(wanted) - float(plain[token])) > 1e-6
            assert one.score == pytest.approx(math.fsum(one.log_probabilities) / len(one.ids), abs=1e-12)
    assert changed

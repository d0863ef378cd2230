"""A beam searched in place finds what beam.py finds, which is compared with brute force in test_beam.py.

On a CPU its step runs as it is written; that a graph replays the same is in tests/gpu.
"""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import END, transformer_case

from regard.data.batching import Inputs, Padded
from regard.decoding import paths, row_beams
from regard.decoding.beam import search_all
from regard.decoding.engine import generate_ranked
from regard.decoding.filters import ForcedBos, ForcedEos, Renormalized, Suppressed
from regard.decoding.hypothesis import Stop
from regard.decoding.largest import largest
from regard.decoding.penalties import NoRepeatNgram, RepetitionPenalty
from regard.decoding.row_beams import BeamSpace, decode_beams
from regard.decoding.strategies import Beam, Greedy
from regard.errors import InputError
from regard.models import in_place
from regard.models.config import TransformerConfig

CASES = {
    "rotary": ("decoder", "rotary", 1),
    "learned": ("decoder", "learned", 0),
    "none": ("decoder", "none", 3),
    "encoder_decoder": ("encoder_decoder", "sinusoidal", 0),
}


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert [one.ids for one in own] == [one.ids for one in other]
        for mine, wanted in zip(own, other, strict=True):
            assert mine.score == pytest.approx(wanted.score, abs=1e-9)
            assert mine.log_probabilities == pytest.approx(wanted.log_probabilities, abs=1e-9)
            assert len(mine.rows) == len(mine.ids)
            assert mine.path == "in place"


@pytest.mark.parametrize("penalty", [1.0, 0.0, -0.7, 2.3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("name", CASES)
def test_the_engine_finds_what_the_plain_beam_finds(name, size, penalty):
    """All that finished, in order; prompts of unequal length; 9 beams are more than there are tokens."""
    architecture, positions, seed = CASES[name]
    case = transformer_case(architecture, positions, seed=seed)
    stop = Stop(END, 7, other_eos_ids=(3,))
    expected = search_all(case.stepper, case.inputs, Beam(size, penalty), stop)
    assert_equal(decode_beams(case.stepper, case.inputs, Beam(size, penalty), stop), expected)


@settings(max_examples=25)
@given(st.integers(0, 10**4), st.integers(1, 6), st.integers(1, 40), st.floats(-1, 3), st.integers(1, 3))
def test_whatever_the_weights_and_the_length(seed, size, limit, penalty, prompts):
    case = transformer_case("decoder", "rotary", seed=seed % 7, prompts=(4, 1, 2)[:prompts])
    found = decode_beams(case.stepper, case.inputs, Beam(size, penalty), Stop(END, limit))
    assert_equal(found, search_all(case.stepper, case.inputs, Beam(size, penalty), Stop(END, limit)))


@pytest.mark.parametrize("stacked", [False, True])
def test_shared_heads_and_more_columns_than_a_step_first_looks_at(stacked, monkeypatch):
    """And with queries, keys and values in one product, as on a GPU."""
    monkeypatch.setattr(in_place, "STACKED", {"cpu"} if stacked else set())
    torch.manual_seed(0)
    shape = {"width": 16, "heads": 4, "key_value_heads": 2, "feedforward": "swiglu", "norm": "rms", "bias": False}
    config = TransformerConfig(
        architecture="decoder", vocabulary=11, layers=2, positions="rotary", norm_placement="pre", **shape
    )
    stepper = config.build().double().eval()
    inputs = Inputs(Padded.of([[1, 5, 2], [3]]))
    found = decode_beams(stepper, inputs, Beam(4), Stop(-5, 45))
    assert (row_beams.KEPT.of[stepper].engine.state.layers[0].maps is not None) == stacked
    assert_equal(found, search_all(stepper, inputs, Beam(4), Stop(-5, 45)))


FILTERS = (
    (Suppressed((4, 5)), ForcedBos(2), ForcedEos(END)),
    (RepetitionPenalty(1.8), Renormalized()),
    (Suppressed((0,)), Renormalized()),
)


@pytest.mark.parametrize("filters", FILTERS, ids=lambda some: ", ".join(type(one).__name__ for one in some))
def test_filters_of_the_device_see_what_each_beam_wrote(filters, monkeypatch):
    assert all(one.on_device for one in filters)
    case = transformer_case("decoder", "rotary", seed=1)
    stop = Stop(END, 6)
    expected = generate_ranked(case.stepper, case.inputs, Beam(3), stop, filters)
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    assert_equal(generate_ranked(case.stepper, case.inputs, Beam(3), stop, filters), expected)


def test_what_it_cannot_do_takes_the_plain_path(monkeypatch):
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    stop = Stop(END, 5)
    for positions, why in (("alibi", "its positions are added to the scores"), ("rotary", None)):
        case = transformer_case("decoder", positions)
        assert paths.why_plain(case.stepper, case.inputs, Beam(2), stop, ()) == why
    assert paths.why_plain(case.stepper, case.inputs, Greedy(), stop, ()) is None
    asked = NoRepeatNgram(2)
    assert asked.on_device or "NoRepeatNgram" in paths.why_plain(case.stepper, case.inputs, Beam(2), stop, (asked,))
    every = Stop(0, 5, other_eos_ids=tuple(range(1, 7)))
    assert paths.why_plain(case.stepper, case.inputs, Beam(2), every, ()) == "all tokens end a text"


def test_filters_that_leave_nothing_are_told_of_with_the_place():
    case = transformer_case("decoder", "rotary", seed=1)
    with pytest.raises(InputError, match="the constraints leave no token to choose as token 1 of the answer"):
        decode_beams(case.stepper, case.inputs, Beam(2), Stop(-5, 4), (Suppressed(tuple(range(7))),))


def test_logits_that_are_no_numbers_are_refused():
    case = transformer_case("decoder", "rotary", seed=1)
    with torch.no_grad():
        case.stepper.output.weight[3] = torch.nan
    with pytest.raises(InputError, match="logits hold NaN"):
        decode_beams(case.stepper, case.inputs, Beam(2), Stop(END, 4))


def test_what_was_no_number_is_not_met_again():
    case = transformer_case("decoder", "rotary", seed=1)
    short, stop = case.beside([1, 3]), Stop(-5, 3)
    expected = decode_beams(case.stepper, short, Beam(2), stop)
    values = case.stepper.decoder.layers[-1].self_attention.value.weight.data
    good = values.clone()
    values.fill_(torch.nan)
    with pytest.raises(InputError, match="logits hold NaN"):
        decode_beams(case.stepper, case.beside([0, 2]), Beam(2), Stop(-5, 9))
    values.copy_(good)
    assert decode_beams(case.stepper, short, Beam(2), stop) == expected


def test_longer_prompts_and_limits_are_added_to_what_there_is_room_for():
    few = BeamSpace(4, 2, 1, 9, 20)
    assert few.joined(BeamSpace(4, 2, 1, 17, 3)) == BeamSpace(4, 2, 1, 17, 20)
    assert few.joined(BeamSpace(8, 2, 1, 5, 3)) == BeamSpace(8, 2, 1, 5, 3)


def test_the_memory_is_kept_with_the_model_and_goes_with_it():
    case = transformer_case("decoder", "rotary", seed=1)
    first = decode_beams(case.stepper, case.inputs, Beam(2), Stop(END, 9))
    engine = row_beams.KEPT.of[case.stepper].engine
    two = Inputs(Padded.of(case.inputs.tokens.rows()[:3]))
    assert [[one.ids for one in own] for own in decode_beams(case.stepper, two, Beam(2), Stop(END, 9))] == [
        [one.ids for one in own] for own in first[:3]
    ]
    assert row_beams.KEPT.of[case.stepper].engine is engine
    decode_beams(case.stepper, case.inputs, Beam(3), Stop(END, 9))
    assert row_beams.KEPT.of[case.stepper].engine is not engine
    held, engine = weakref.ref(case.stepper), None
    del case
    gc.collect()
    assert held() is None


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=23, max_size=23), min_size=1, max_size=3),
    st.integers(1, 23),
    st.sampled_from((1, 7, 40)),
)
def test_the_largest_of_a_row_are_those_of_a_sort_ties_included(rows, count, times):
    """Few values, so that many are equal; rows long enough for blocks and for something behind the last."""
    scores = torch.tensor(rows).double().repeat(1, times)
    scores[:, ::5] = -torch.inf
    ranked = scores.sort(dim=1, descending=True, stable=True)
    values, ids = largest(scores, count)
    assert torch.equal(ids, ranked.indices[:, :count])
    assert torch.equal(values, ranked.values[:, :count])

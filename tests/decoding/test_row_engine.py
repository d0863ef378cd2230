"""The engine that works in place writes what the plain loop writes, token for token, whoever comes and goes beside it.

On a CPU its step runs as it is written; that a graph replays the same is in tests/gpu.
"""

import gc
import math
import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_steppers import END, transformer_case

from regard.data.batching import Inputs, Padded
from regard.decoding import paths, row_engine
from regard.decoding.counter_random import seed_of, uniform
from regard.decoding.engine import generate
from regard.decoding.filters import ForcedEos, Generated, Suppressed, min_p, temperature, top_k, top_p
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest, kinds_of
from regard.decoding.row_engine import Capacity, RowEngine, decode
from regard.decoding.row_sampling import FEW, SamplingParameters, choose, kept
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample
from regard.errors import InputError
from regard.inspection.capture import watch_module
from regard.models import in_place
from regard.models.config import TransformerConfig
from regard.models.in_place import InPlaceDecoder, reach_of
from regard.models.transformer import Transformer

LIMIT = 9
STRATEGIES = (
    *(Greedy(), Sample(1.4, seed=2), Sample(top_k=3, top_p=0.9, seed=1), Sample(top_p=0.6), Sample(top_k=2)),
    *(Sample(min_p=0.3), Sample(1.2, top_k=5, min_p=0.1), Sample(repetition_penalty=1.7, seed=3)),
)
CASES = {
    "decoder, rotary": ("decoder", "rotary", 1),
    "decoder, alibi": ("decoder", "alibi", 4),
    "decoder, t5": ("decoder", "t5", 2),
    "decoder, learned": ("decoder", "learned", 0),
    "encoder_decoder": ("encoder_decoder", "sinusoidal", 0),
}


@pytest.fixture
def anywhere(monkeypatch):
    """The engine decodes on a CPU too."""
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("name", CASES)
def test_the_engine_writes_what_the_plain_loop_writes(name, strategy, monkeypatch):
    architecture, positions, seed = CASES[name]
    case = transformer_case(architecture, positions, seed=seed)
    plain = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    found = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert [one.ids for one in found] == [one.ids for one in plain]
    assert [one.path for one in (*plain, *found)] == ["plain"] * 4 + ["in place"] * 4
    for own, other in zip(found, plain, strict=True):
        assert math.isclose(own.score, other.score, abs_tol=1e-9)


def model(seed: int = 0) -> Transformer:
    stepper: Transformer = transformer_case("decoder", "rotary", seed=seed).stepper
    return stepper


def requests() -> list[RowRequest]:
    """Prompts, strategies, seeds and limits of their own."""
    draw = torch.Generator().manual_seed(4)
    strategies = (Greedy(), Sample(1.3, seed=5), Sample(top_k=3, seed=1), Sample(0.8, top_p=0.7, seed=9))
    return [
        RowRequest(
            tuple(torch.randint(7, (1 + number % 5,), generator=draw).tolist()),
            strategies[number % 4],
            Stop(END, 1 + (5 * number) % 11, other_eos_ids=(3,) if number % 3 == 0 else ()),
            number,
        )
        for number in range(11)
    ]


def alone(stepper: Transformer, request: RowRequest) -> tuple[int, ...]:
    """By the plain loop, beside nobody."""
    strategy = request.strategy
    if isinstance(strategy, Sample):
        strategy = replace(strategy, first=request.number)
    return generate(stepper, Inputs(Padded.of([request.prompt])), strategy, request.stop)[0].ids


@settings(max_examples=12)
@given(st.data())
def test_a_request_gives_the_same_alone_and_among_any_that_come_and_go(data):
    stepper = model()
    expected = {one: alone(stepper, one) for one in requests()}
    engine = RowEngine(stepper.in_place(), Capacity(data.draw(st.sampled_from((1, 3, 4, 8))), 20))
    waiting, found = list(expected), {}
    while waiting or engine.busy:
        coming = data.draw(st.integers(0 if engine.busy else 1, len(engine.free)))
        engine.admit(waiting[:coming])
        waiting = waiting[coming:]
        engine.step(data.draw(st.integers(1, 5)))
        found |= {request: hypothesis.ids for request, hypothesis in engine.retire()}
    assert found == expected


def test_texts_of_unequal_length_move_together_as_others_finish():
    stepper = model()
    engine = RowEngine(stepper.in_place(), Capacity(8, 40))
    asked = [RowRequest((1, 2), Greedy(), Stop(-5, 30 if number == 6 else 2), number) for number in range(7)]
    engine.admit(asked)
    engine.step(4)
    assert len(engine.retire()) == 6
    assert [row for row, one in enumerate(engine.held) if one is not None] == [0]
    while engine.busy:
        engine.step()
        found = engine.retire()
    assert found[0][1].ids == alone(stepper, asked[6])


def test_decoding_goes_beyond_the_keys_that_a_step_first_looks_at():
    stepper = model()
    [found] = decode(stepper, [RowRequest((1, 2, 3), Greedy(), Stop(-5, 150))])
    assert found.ids == alone(stepper, RowRequest((1, 2, 3), Greedy(), Stop(-5, 150)))
    assert [reach_of(tokens) for tokens in (1, 64, 65, 129, 193, 300, 700)] == [
        64,
        64,
        128,
        192,
        256,
        384,
        768,
    ]


FILTERS = (Suppressed((4, 5)), ForcedEos(END))


@pytest.mark.parametrize("strategy", [Greedy(), Sample(1.4, seed=2), Sample(repetition_penalty=1.7)], ids=repr)
def test_filters_of_the_device_see_what_was_written(strategy, monkeypatch):
    case = transformer_case("decoder", "rotary", seed=1)
    plain = generate(case.stepper, case.inputs, strategy, Stop(-5, LIMIT), FILTERS)
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    found = generate(case.stepper, case.inputs, strategy, Stop(-5, LIMIT), FILTERS)
    assert [one.ids for one in found] == [one.ids for one in plain]
    assert {one.path for one in found} == {"in place"}
    assert all(one.ids[-1] == END and not {4, 5} & set(one.ids) for one in found)


def test_filters_that_leave_nothing_are_told_of(anywhere):
    case = transformer_case("decoder", "rotary", seed=1)
    with pytest.raises(InputError, match="the constraints leave no token to choose as token 1 of the answer"):
        generate(case.stepper, case.inputs, Greedy(), Stop(-5, 4), (Suppressed(tuple(range(7))),))


def test_rows_with_other_filters_are_not_stepped_together():
    held = model()
    engine = RowEngine(held.in_place(), Capacity(2, 20))
    engine.admit([RowRequest((1, 2), Greedy(), Stop(END, 5), filters=FILTERS)])
    with pytest.raises(InputError, match=r"stands beside others with .* admit it when those have left"):
        engine.admit([RowRequest((1, 2), Greedy(), Stop(END, 5))])


class Evens:
    """A filter that is asked on the host."""

    on_device = False

    def __call__(self, scores: torch.Tensor, generated: Generated) -> torch.Tensor:
        return scores.index_fill(-1, torch.arange(1, scores.shape[-1], 2), -torch.inf)


# What stays on the plain path


def test_what_the_engine_cannot_do_takes_the_plain_path(anywhere, monkeypatch):
    case = transformer_case("decoder", "learned")
    stop = Stop(END, 5)
    groups = Beam(2, diversity_penalty=0.5)
    assert generate(case.stepper, case.inputs, groups, stop)[0].path == "plain"
    assert generate(case.stepper, case.inputs, Greedy(), stop)[0].path == "in place"
    stepper, inputs = case.stepper, case.inputs
    assert paths.why_plain(stepper, inputs, Greedy(), stop, ()) is None
    assert paths.why_plain(stepper, inputs, Beam(2), stop, ()) is None
    assert paths.why_plain(stepper, inputs, Contrastive(), stop, ()) == "Contrastive looks at several rows at once"
    in_groups = "groups of beams are searched one after the other"
    assert paths.why_plain(stepper, inputs, groups, stop, ()) == in_groups
    assert paths.why_plain(stepper, inputs, Greedy(), Stop(END, 99), ()) == "104 tokens are more than 29 positions"
    assert paths.why_plain(stepper, inputs, Greedy(), stop, (Suppressed((3,)),)) is None
    assert paths.why_plain(stepper, inputs, Greedy(), stop, (Evens(),)) == "Evens is asked at every step"
    looked_at = Stop(END, 5, met=lambda ids: len(ids) > 2)
    assert paths.why_plain(stepper, inputs, Greedy(), looked_at, ()) == "what was written is looked at after every step"
    monkeypatch.setattr(paths, "DEVICES", {"cuda"})
    assert paths.why_plain(stepper, inputs, Greedy(), stop, ()) == "on cpu it is as fast"


def test_a_watched_row_takes_the_plain_path_and_gives_the_same_tokens(anywhere):
    case = transformer_case("decoder", "rotary", seed=1)
    unseen = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
    with watch_module(case.stepper) as seen:
        watched = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
    assert [one.ids for one in watched] == [one.ids for one in unseen]
    assert {one.path for one in watched} == {"plain"}
    assert {one.path for one in unseen} == {"in place"}
    assert seen.weights("decoder.0.self", batch=0, rows=[-1]).shape[0] == 3


@pytest.mark.parametrize("strategy", [Greedy(), Beam(2)], ids=repr)
def test_a_hook_is_called_at_every_step(strategy, anywhere):
    """Also one that is put there when an engine is kept with the model: what a graph replays calls nobody."""
    case, stop = transformer_case("decoder", "rotary", seed=1), Stop(-5, LIMIT)
    unseen = generate(case.stepper, case.alone(0), strategy, stop)
    called: list[torch.Tensor] = []
    handle = case.stepper.decoder.layers[1].feedforward.register_forward_hook(lambda *told: called.append(told[2]))
    seen = generate(case.stepper, case.alone(0), strategy, stop)
    assert len(called) == LIMIT + 1  # the prompt is read in one pass
    handle.remove()
    again = generate(case.stepper, case.alone(0), strategy, stop)
    assert [one[0].path for one in (unseen, seen, again)] == ["in place", "plain", "in place"]
    assert unseen[0].ids == seen[0].ids == again[0].ids


def test_a_model_of_another_type_is_decoded_in_another_engine():
    stepper, asked = model(), RowRequest((1, 2), Greedy(), Stop(-5, 5))
    decode(stepper, [asked])
    stepper.float()
    assert decode(stepper, [asked])[0].ids == alone(stepper, asked)


def test_more_than_there_is_room_for_is_refused():
    held = model()
    engine = RowEngine(held.in_place(), Capacity(2, 20))
    one = RowRequest((1, 2), Greedy(), Stop(END, 5))
    with pytest.raises(InputError, match="3 texts come to 2 free rows"):
        engine.admit([one] * 3)
    with pytest.raises(InputError, match="2 tokens and 19 new ones does not fit into rows of 20"):
        engine.admit([RowRequest((1, 2), Greedy(), Stop(END, 19))])
    assert not engine.busy


def test_rows_with_other_filters_are_not_admitted_together():
    held = model()
    engine = RowEngine(held.in_place(), Capacity(2, 20))
    asked = RowRequest((1, 2), Greedy(), Stop(END, 5))
    with pytest.raises(InputError, match="stands beside others with"):
        engine.admit([asked, replace(asked, filters=FILTERS)])
    assert not engine.busy


@pytest.mark.parametrize(
    ("room", "asked", "refusal"),
    [
        (Capacity(1, 20), {"source": (1,)}, "a source of 1 tokens does not fit into rows with room for 0 of one"),
        (Capacity(1, 20, 5), {}, "a source of 0 tokens does not fit into rows with room for 5 of one"),
        (Capacity(1, 20, 5), {"source": (1,) * 6}, "a source of 6 tokens does not fit"),
        (Capacity(1, 20), {"stop": Stop(0, 5, tuple(range(9)))}, "9 tokens end a text; give 8 at most"),
        (Capacity(1, 64), {"stop": Stop(0, 28)}, "2 tokens and 28 new ones is more than the 29 positions"),
    ],
)
def test_a_text_that_cannot_stand_in_a_row_is_refused_by_its_reason(room, asked, refusal):
    stepper = transformer_case("encoder_decoder" if room.source else "decoder", "learned").stepper
    engine = RowEngine(stepper.in_place(), room)
    with pytest.raises(InputError, match=refusal):
        engine.admit([replace(RowRequest((1, 2), Greedy(), Stop(0, 5)), **asked)])


def test_no_texts_are_no_answers():
    assert decode(model(), []) == []


def test_logits_that_are_no_numbers_are_refused():
    stepper = model()
    with torch.no_grad():
        stepper.output.weight[3] = torch.nan
    with pytest.raises(InputError, match="logits hold NaN"):
        decode(stepper, [RowRequest((1, 2), Greedy(), Stop(END, 5))])


def last_values(stepper: Transformer) -> torch.Tensor:
    return stepper.decoder.layers[-1].self_attention.value.weight.data


def test_what_was_no_number_is_not_met_again():
    """Behind a text's own tokens a cache is read with a weight of 0, and 0 times NaN is NaN."""
    stepper, short = model(), RowRequest((1, 2), Greedy(), Stop(-5, 5))
    expected, good = decode(stepper, [short])[0].ids, last_values(stepper).clone()
    last_values(stepper).fill_(torch.nan)
    with pytest.raises(InputError, match="logits hold NaN"):
        decode(stepper, [RowRequest((1, 2, 3, 4, 5), Greedy(), Stop(-5, 9))])
    last_values(stepper).copy_(good)
    assert decode(stepper, [short])[0].ids == expected


def test_of_rows_that_are_told_of_together_one_that_holds_no_numbers_takes_no_other_with_it():
    stepper = model()
    engine = RowEngine(stepper.in_place(), Capacity(4, 20))
    asked = [RowRequest((1, 2 + number), Greedy(), Stop(-5, 3), number) for number in range(3)]
    engine.admit(asked)
    engine.step(3)
    engine.rows.likely[1].fill_(torch.nan)
    engine.state.layers[-1].values[1].fill_(torch.nan)
    with pytest.raises(InputError, match="logits hold NaN"):
        engine.retire()
    assert {one.number: found.ids for one, found in engine.retire()} == {
        number: alone(stepper, asked[number]) for number in (0, 2)
    }
    engine.admit(asked)
    engine.step(3)
    assert [found.ids for _, found in engine.retire()] == [alone(stepper, one) for one in asked]


@pytest.mark.parametrize("broken", [KeyboardInterrupt, MemoryError])
def test_what_was_broken_off_leaves_nothing_behind(broken, monkeypatch):
    stepper, asked = model(), requests()
    expected = [alone(stepper, one) for one in asked]
    step, steps = RowEngine.step, []

    def breaks(engine: RowEngine) -> None:
        step(engine, 3)
        steps.append(engine)
        if len(steps) == 2:
            raise broken

    monkeypatch.setattr(RowEngine, "step", breaks)
    with pytest.raises(broken):
        decode(stepper, asked)
    assert stepper not in row_engine.KEPT.of
    assert [one.ids for one in decode(stepper, asked)] == expected
    assert stepper in row_engine.KEPT.of


def test_many_short_texts_and_one_long_do_not_ask_for_many_long_ones():
    many, long = Capacity(256, 64), Capacity(1, 4096)
    assert many.joined(long) == long
    assert long.joined(many) == many
    assert Capacity(4, 64).joined(Capacity(4, 128)) == Capacity(4, 128)
    assert Capacity(8, 64).joined(Capacity(6, 96)) == Capacity(8, 96)


def test_every_other_top_k_is_not_another_graph():
    kinds = {kinds_of([RowRequest((0,), Sample(top_k=count), Stop(0, 1))]) for count in range(33, 65)}
    assert len(kinds) == 1


def test_the_memory_is_kept_with_the_model_and_goes_with_it():
    stepper = model()
    small, large = RowRequest((1,), Greedy(), Stop(END, 3)), RowRequest((1, 2, 3, 4), Greedy(), Stop(END, 90))
    decode(stepper, [large])
    engine = row_engine.KEPT.of[stepper].engine
    decode(stepper, [small])
    assert row_engine.KEPT.of[stepper].engine is engine
    decode(stepper, [small] * 3)
    assert row_engine.KEPT.of[stepper].engine is not engine
    assert row_engine.KEPT.of[stepper].engine.capacity.room == 128
    row_engine.KEPT.of[stepper].lock.acquire()  # somebody else is decoding
    assert decode(stepper, [large])[0].ids == alone(stepper, large)
    held, engine = weakref.ref(stepper), None
    del stepper
    gc.collect()
    assert held() is None


# Random numbers and what is drawn from


def splitmix(state: int) -> int:
    """SplitMix64 as it is published, in whole numbers without end."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


@given(st.integers(-(2**40), 2**40), st.integers(0, 10**6), st.integers(0, 10**5))
def test_a_draw_is_a_function_of_seed_and_place(seed, number, place):
    own = seed_of(seed, number)
    expected = splitmix((splitmix(own % 2**64) + place * 0x9E3779B97F4A7C15) % 2**64) // 2**11 / 2**53
    assert float(uniform(torch.tensor([own]), torch.tensor([place]))) == expected


def test_draws_are_spread_evenly_over_places_and_over_seeds():
    for seeds, places in (
        (torch.full((40_000,), 7), torch.arange(40_000)),
        (torch.tensor([seed_of(3, number) for number in range(40_000)]), torch.zeros(40_000, dtype=torch.long)),
    ):
        drawn = uniform(seeds, places)
        counts = torch.histc(drawn, 50, 0, 1)
        assert float(((counts - 800) ** 2 / 800).sum()) < 85.4  # χ² of 49 degrees, 0.999
        assert abs(float(torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1])) < 0.02


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=12),
    st.sampled_from((0.3, 1.0, 2.5)),
    st.one_of(st.none(), st.integers(1, 14)),
    st.one_of(st.none(), st.sampled_from((0.05, 0.37, 0.71, 0.93, 1.0))),
    st.one_of(st.none(), st.sampled_from((0.02, 0.4, 1.0))),
    st.integers(0, 3),
)
def test_a_threshold_keeps_what_the_sort_keeps_ties_included(values, warmth, count, mass, share, neighbours):
    """Beside rows that ask for other things; logits in few steps, so that many are equal."""
    logits = torch.tensor([values] * (1 + neighbours)).double() / 2
    others = [Greedy(), Sample(top_k=2), Sample(0.5, top_p=0.4)][:neighbours]
    asked = [RowRequest((0,), one, Stop(0, 1)) for one in (Sample(warmth, count, mass, share), *others)]
    kinds = kinds_of(asked)
    assert kinds.draws
    sampled = [Sample(top_k=1) if isinstance(one.strategy, Greedy) else one.strategy for one in asked]
    rows = SamplingParameters(
        torch.tensor([one.temperature for one in sampled], dtype=torch.float64),
        torch.tensor([one.top_k or 2**62 for one in sampled]),
        torch.tensor([one.top_p or 1.0 for one in sampled], dtype=torch.float64),
        torch.tensor([one.min_p or 0.0 for one in sampled], dtype=torch.float64),
    )
    found = kept(logits, rows, kinds)
    for row, one in enumerate(sampled):
        expected = temperature(logits[row : row + 1], one.temperature)
        if one.top_k is not None and one.top_k < len(values):
            expected = top_k(expected, one.top_k)
        if one.top_p is not None:
            expected = top_p(expected, one.top_p)
        if one.min_p is not None:
            expected = min_p(expected, one.min_p)
        assert torch.equal(found[row], expected[0])
    greedy = choose(logits, rows, kinds_of([RowRequest((0,), Greedy(), Stop(0, 1))]), None)
    assert greedy.tolist() == [values.index(max(values))] * (1 + neighbours)


@given(
    st.lists(st.integers(-3, 3), min_size=40, max_size=90),
    st.sampled_from((0.3, 1.0, 2.5)),
    st.integers(1, 5),
    st.one_of(st.none(), st.sampled_from((0.05, 0.37, 0.71, 0.93, 1.0))),
    st.one_of(st.none(), st.sampled_from((0.02, 0.4, 1.0))),
    st.integers(0, 10**6),
)
def test_of_a_large_vocabulary_the_few_that_may_be_drawn_are_drawn_as_by_the_plain_loop(
    values, warmth, count, mass, share, seed
):
    """Beside a row that is greedy and one with another top-k; many logits are equal."""
    logits = torch.tensor([values]).double() / 2
    strategies = (Sample(warmth, count, mass, share), Sample(top_k=1), Sample(0.7, top_k=3))
    kinds = kinds_of([RowRequest((0,), one, Stop(0, 1)) for one in (strategies[0], Greedy(), strategies[2])])
    assert kinds.most_k is not None
    assert kinds.most_k <= len(values) // FEW
    asked = SamplingParameters(
        torch.tensor([one.temperature for one in strategies]).double(),
        torch.tensor([one.top_k for one in strategies]),
        torch.tensor([one.top_p or 1.0 for one in strategies]).double(),
        torch.tensor([one.min_p or 0.0 for one in strategies]).double(),
    )
    draws = uniform(torch.tensor([seed_of(seed, row) for row in range(3)]), torch.zeros(3, dtype=torch.long))
    found = choose(logits.expand(3, -1), asked, kinds, draws)
    for row, one in enumerate(strategies):
        scores = logits
        for filtered in one.filters:
            scores = filtered(scores, Generated.begin(Inputs(Padded.of([[0]])), 1))
        assert int(found[row]) == int(one.choose(scores, draws[row : row + 1]))


def test_evenly_spread_draws_give_every_token_its_share():
    logits = torch.tensor([[1.0, 2.0, 0.0, 2.0]]).double().expand(1000, -1)
    ones = torch.ones(1000).double()
    asked = SamplingParameters(ones * 0.7, torch.full((1000,), 3), ones, ones * 0)
    draws = (torch.arange(1000).double() + 0.5) / 1000
    kinds = kinds_of([RowRequest((0,), Sample(0.7, top_k=3), Stop(0, 1))])
    shares = torch.bincount(choose(logits, asked, kinds, draws), minlength=4) / 1000
    expected = (logits[0] / 0.7).masked_fill(torch.tensor([False, False, True, False]), -torch.inf).softmax(-1)
    assert (shares - expected).abs().max() < 2e-3


@pytest.mark.parametrize("stacked", [False, True])
def test_a_deep_stack_of_shared_heads_decodes_alike(stacked, anywhere, monkeypatch):
    """As in LLaMA: rotary, fewer key heads, gated, RMS norms; also with queries, keys and values in one product."""
    monkeypatch.setattr(in_place, "STACKED", {"cpu"} if stacked else set())
    torch.manual_seed(0)
    shape = {"width": 16, "heads": 4, "key_value_heads": 2, "feedforward": "swiglu", "norm": "rms", "bias": False}
    config = TransformerConfig(
        architecture="decoder", vocabulary=11, layers=3, positions="rotary", norm_placement="pre", **shape
    )
    stepper = config.build().double().eval()
    found = generate(stepper, Inputs(Padded.of([[1, 5], [3]])), Greedy(), Stop(-5, 12))
    for prompt, one in zip(([1, 5], [3]), found, strict=True):
        text = list(prompt)
        for token in one.ids:
            assert int(stepper(Inputs(Padded.of([text])))[0, -1].argmax()) == token
            text.append(token)


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_rows_that_begin_alike_are_read_once(architecture, monkeypatch):
    case = transformer_case(architecture, "rotary" if architecture == "decoder" else "sinusoidal", prompts=(4, 2))
    prompts, source = case.inputs.tokens.rows(), case.inputs.source
    again = [0, 1, 0, 0, 1]
    inputs = Inputs(Padded.of([prompts[row] for row in again]), source and Padded.of([source.rows()[r] for r in again]))
    decoder, read = case.stepper.in_place(), []
    original = InPlaceDecoder._read
    monkeypatch.setattr(InPlaceDecoder, "_read", lambda own, told: (read.append(told), original(own, told))[1])
    with torch.no_grad():
        found, _ = decoder.step(torch.tensor([prompts[row][-1] for row in again]), decoder.start(inputs))
    assert [len(one.tokens.ids) for one in read] == [2]
    for row, logits in zip(again, found, strict=True):
        assert torch.allclose(logits.log_softmax(-1), case.after(row, ()), atol=1e-9)

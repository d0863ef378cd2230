"""Whatever decodes writes one text: by steps or in one pass, alone or among others, in a loop or in the engine's rows.

Over every registered network, every mechanism in the place that asks most of it, and every published family that
decodes, in float64.
"""

import gc
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_steppers import sharpened

from regard.attention.mechanism import MECHANISMS
from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest
from regard.decoding.row_engine import Capacity, RowEngine, decode
from regard.decoding.row_groups import GroupedRows, rows_of
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.network import NETWORKS, Network

sys.path.append(str(Path(__file__).parents[1] / "properties"))
from axes_of_models import (
    ATTENTIONAL,
    FIXED,
    TRANSFORMER,
    covering,
    mechanism,
    mechanism_choices,
    recurrent,
    transformer,
)

END, ROOM = 2, 17
CONFIGS = [
    *(transformer(choice) for choice in covering(TRANSFORMER, 1)),
    *(recurrent(axes, choice) for axes in (ATTENTIONAL, FIXED) for choice in covering(axes, 2)),
    *(config for choice in mechanism_choices(False) if (config := mechanism(choice)) is not None),
]
DECODING = [config for config in CONFIGS if config.decodes and config.outputs == "tokens"]
SMALL = {"layers": 2, "width": 12, "heads": 6, "feedforward_width": 11, "vocabulary": 13, "max_positions": 23}


def published() -> dict[str, TransformerConfig]:
    """The first size of every family that decodes, made small."""
    found = {}
    for name, family in FAMILIES.items():
        one = family.config(next(iter(family.sizes)))
        own = {"layers": max(2, len(one.mechanisms("decoder"))), "key_value_heads": one.key_value_heads and 3}
        if one.decodes:
            found[name] = one.model_copy(update=SMALL | own | {"head_width": None})
    return found


STRATEGIES = (Greedy(), Sample(1.3, seed=5), Greedy(), Sample(top_k=3, top_p=0.9, seed=1))
LIMITS = (4, 2, 3, 4)


def built(config) -> Network:
    torch.manual_seed(3)
    return sharpened(config.build(), 3.0, ".query.", ".key.", "embedding")


def requests(model: Network) -> list[RowRequest]:
    """Prompts, sources, strategies, seeds and limits of their own; the first two begin alike."""
    draw, size = torch.Generator().manual_seed(5), model.config.vocabulary
    prompts = [torch.randint(size, (count,), generator=draw).tolist() for count in (4, 4, 1, 3)]
    sources = [torch.randint(size, (count,), generator=draw).tolist() for count in (3, 3, 5, 1)]
    prompts[1], sources[1] = prompts[0], sources[0]
    return [
        RowRequest(tuple(prompt), STRATEGIES[row % 4], Stop(END, limit), row, tuple(source) if reads else None)
        for row, (prompt, source, limit) in enumerate(zip(prompts, sources, LIMITS, strict=True))
        for reads in [model.config.reads_source]
    ]


def inputs(asked: list[RowRequest]) -> Inputs:
    sources = [one.source for one in asked if one.source is not None]
    return Inputs(Padded.of([one.prompt for one in asked], side="left"), Padded.of(sources) if sources else None)


def alone(model: Network, one: RowRequest) -> tuple[int, ...]:
    """By the plain loop, beside nobody."""
    strategy = replace(one.strategy, first=one.number) if isinstance(one.strategy, Sample) else one.strategy
    return generate(model, inputs([one]), strategy, one.stop)[0].ids


def come_and_go(model: Network, asked: list[RowRequest], rows: int) -> dict[int, tuple[int, ...]]:
    """One more is let in after every three steps, where there is a row."""
    engine, waiting, found = RowEngine(rows_of(model), Capacity(rows, ROOM, 5 * model.config.reads_source)), asked, {}
    while waiting or engine.busy:
        coming = min(len(engine.free), 1 if engine.busy else 2)
        engine.admit(waiting[:coming])
        waiting = waiting[coming:]
        engine.step(3)
        found |= {request.number: hypothesis.ids for request, hypothesis in engine.retire()}
    return found


def test_every_network_and_every_mechanism_that_decodes_is_here():
    assert {one.name for one in DECODING} == {name for name, one in NETWORKS.items() if one.shape.decodes}
    causal = {name for name, shape in MECHANISMS.items() if shape.abilities.causal}
    assert causal <= {own.name for one in DECODING if one.name == "transformer" for own in one.mechanisms("decoder")}


CASES = {f"{one.name} {getattr(getattr(one, 'attention', None), 'name', '')}".strip(): one for one in DECODING}


@pytest.mark.parametrize("config", (CASES | published()).values(), ids=CASES | published())
def test_steps_passes_batches_and_rows_that_come_and_go_write_the_same(config):
    model = built(config)
    asked = requests(model)
    expected = {one.number: alone(model, one) for one in asked}
    for one in asked:
        if isinstance(one.strategy, Greedy):  # without any state
            whole = Inputs(Padded.of([[*one.prompt, *expected[one.number]]]), inputs([one]).source)
            with torch.no_grad():
                likely = model(whole)[0, len(one.prompt) - 1 : -1].argmax(dim=-1)
            assert tuple(likely.tolist()) == expected[one.number]
    assert come_and_go(model, asked, 3) == expected
    assert isinstance(rows_of(model), GroupedRows) == (model.in_place_unsupported() is not None)
    for one, own in zip(asked, generate(model, inputs(asked), Greedy(), Stop(END, 3)), strict=True):
        assert own.path == "plain"
        if isinstance(one.strategy, Greedy):
            assert own.ids == expected[one.number][:3]


# Rows in groups


@pytest.mark.parametrize("name", ["luong", "transformer linear"])
def test_what_is_asked_of_a_model_goes_through_the_rows(name, monkeypatch):
    model = built(CASES[name])
    batch = inputs(requests(model))
    plain = generate(model, batch, Greedy(), Stop(END, 5))
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    found = generate(model, batch, Greedy(), Stop(END, 5))
    assert ({one.path for one in plain}, {one.path for one in found}) == ({"plain"}, {"rows"})
    assert [one.ids for one in found] == [one.ids for one in plain]
    assert [one.score for one in found] == pytest.approx([one.score for one in plain], abs=1e-9)


def recurrent_model(name: str = "luong") -> Network:
    return built(NETWORKS[name].config(vocabulary=13, width=5))


def test_a_group_is_read_once_and_those_who_are_done_cost_no_step(monkeypatch):
    model = recurrent_model()
    read, stepped = [], []
    start, step = model.start, model.step
    monkeypatch.setattr(model, "start", lambda told: (read.append(len(told.tokens.ids)), start(told))[1])
    monkeypatch.setattr(model, "step", lambda ids, state: (stepped.append(len(ids)), step(ids, state))[1])
    asked = [RowRequest((1, 4), Greedy(), Stop(-1, limit), 0, (3, 5)) for limit in (2, 5, 2, 9)]
    found = decode(model, asked)
    assert read == [1]
    assert stepped == [4] * 2 + [2] * 3 + [1] * 4
    assert [len(one.ids) for one in found] == [2, 5, 2, 9]
    assert all(one.ids == found[3].ids[: len(one.ids)] for one in found)


def test_who_has_left_is_stepped_no_more_when_another_has_the_row(monkeypatch):
    model, stepped = recurrent_model(), []
    step = model.step
    monkeypatch.setattr(model, "step", lambda ids, state: (stepped.append(len(ids)), step(ids, state))[1])
    engine = RowEngine(rows_of(model), Capacity(2, 20, 4))
    engine.admit([RowRequest((1, 4), Greedy(), Stop(-1, limit), 0, (3, 5)) for limit in (5, 2)])
    engine.step(2)
    [(left, _)] = engine.retire()
    assert left.stop.max_new_tokens == 2
    engine.admit([RowRequest((1, 4), Greedy(), Stop(-1, 3), 0, (3, 5))])
    engine.step(3)
    assert stepped == [2, 2, 1, 1, 1, 1, 1, 1]
    assert len(engine.retire()) == 2


def test_learnt_positions_are_left_where_they_end():
    """A row that has come to its last position stands beside one that goes on."""
    shape = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2, "positions": "learned", "max_positions": 12}
    model = built(TransformerConfig(architecture="decoder", attention="linear", **shape))
    asked = [RowRequest((1,) * length, Greedy(), Stop(-1, 12 - length), length) for length in (10, 1, 6)]
    for own, one in zip(decode(model, asked), asked, strict=True):
        assert own.ids == alone(model, one)


def test_rows_in_groups_let_go_of_the_model_and_of_what_was_read():
    model = recurrent_model("seq2seq")
    engine = RowEngine(rows_of(model), Capacity(4, 20, 4))
    assert isinstance(engine.stepper, GroupedRows)
    engine.admit([RowRequest((1, 2), Greedy(), Stop(-1, 5), 0, (3, 4))] * 3)
    engine.clear()
    assert engine.state.groups == []
    decode(model, [RowRequest((1, 2), Greedy(), Stop(-1, 5), 0, (3, 4))])
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


def test_what_the_rows_of_a_recurrent_network_cannot_do_takes_the_plain_path(monkeypatch):
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    model, stop = recurrent_model(), Stop(END, 5)
    asked = inputs(requests(model))
    assert paths.why_plain(model, asked, Greedy(), stop, ()) is None
    assert paths.why_plain(model, asked, Beam(2), stop, ()) == "a luong network has no decoder in place"
    assert generate(model, asked, Beam(2), stop)[0].path == "plain"
    encoder = TransformerConfig(architecture="encoder", vocabulary=13, width=12, heads=2, layers=1).build().eval()
    assert paths.why_plain(encoder, asked, Greedy(), stop, ()) == "it does not decode"
    with torch.no_grad():
        model.readout.bias[3] = torch.nan
    with pytest.raises(InputError, match="logits hold NaN"):
        generate(model, asked, Greedy(), stop)

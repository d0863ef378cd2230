"""Decoding on a GPU replays a graph, and writes what the plain loop writes, token for token."""

from dataclasses import replace

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.filters import Renormalized, Suppressed, on
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest
from regard.decoding.row_engine import Capacity, RowEngine
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

END = 2
SHAPES = {
    "learned": {"architecture": "decoder", "positions": "learned", "max_positions": 211},
    "alibi": {"architecture": "decoder", "positions": "alibi"},
    "t5": {"architecture": "decoder", "positions": "t5"},
    "llama": {
        "architecture": "decoder",
        "positions": "rotary",
        "key_value_heads": 2,
        "feedforward": "swiglu",
        "norm": "rms",
        "bias": False,
        "norm_placement": "pre",
    },
    "window": {"architecture": "decoder", "positions": "rotary", "attention": {"name": "exact", "window": 9}},
    "encoder_decoder": {"architecture": "encoder_decoder"},
}
STRATEGIES = (Greedy(), Sample(1.3, seed=3), Sample(0.9, top_k=5, seed=1), Sample(top_p=0.8, seed=2))


def build(name: str) -> Transformer:
    torch.manual_seed(1)
    sizes = {"vocabulary": 37, "width": 32, "heads": 4, "layers": 2}
    model = Transformer(TransformerConfig(**sizes, **SHAPES[name])).double().cuda().eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.mul_(4.0 if ".query." in path or ".key." in path else 1.0)
    return model


def inputs(model: Transformer, rows: int = 5) -> Inputs:
    draw = torch.Generator().manual_seed(2)
    texts = [torch.randint(37, (1 + 3 * row % 7,), generator=draw).tolist() for row in range(rows)]
    sources = [torch.randint(37, (2 + row,), generator=draw).tolist() for row in range(rows)]
    read = Padded.of(sources) if model.config.reads_source else None
    return Inputs(Padded.of(texts), read).to("cuda")


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("name", SHAPES)
def test_the_graph_writes_what_the_plain_loop_writes(name, strategy, monkeypatch):
    model = build(name)
    stop = Stop(END, 90)
    found = generate(model, inputs(model), strategy, stop)
    monkeypatch.setattr(paths, "DEVICES", set())
    plain = generate(model, inputs(model), strategy, stop)
    assert {one.path for one in found} == {"graph"}
    assert {one.path for one in plain} == {"plain"}
    assert [one.ids for one in found] == [one.ids for one in plain]
    for own, other in zip(found, plain, strict=True):
        assert abs(own.score - other.score) < 1e-6 * len(own.ids)


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", ["learned", "llama", "encoder_decoder"])
def test_a_graph_finds_what_the_plain_beam_finds(name, size, monkeypatch):
    """Twice: captured, and replayed in the same memory."""
    model = build(name)
    stop = Stop(END, 60, other_eos_ids=(5,))
    for _ in range(2):
        found = generate_ranked(model, inputs(model), Beam(size), stop)
    with monkeypatch.context() as nowhere:
        nowhere.setattr(paths, "DEVICES", set())
        plain = generate_ranked(model, inputs(model), Beam(size), stop)
    assert {one.path for own in found for one in own} == {"graph"}
    assert [[one.ids for one in own] for own in found] == [[one.ids for one in own] for own in plain]
    for own, other in zip(found, plain, strict=True):
        assert [one.score for one in own] == pytest.approx([one.score for one in other], abs=1e-6)


def test_a_beam_with_filters_replays_too(monkeypatch):
    model, filters = build("llama"), (Suppressed((3,)), Renormalized())
    found = generate_ranked(model, inputs(model), Beam(3), Stop(END, 30), filters)
    monkeypatch.setattr(paths, "DEVICES", set())
    plain = generate_ranked(model, inputs(model), Beam(3), Stop(END, 30), filters)
    assert {one.path for own in found for one in own} == {"graph"}
    assert [[one.ids for one in own] for own in found] == [[one.ids for one in own] for own in plain]


def test_rows_that_come_and_go_between_replays_write_what_they_write_alone(monkeypatch):
    model = build("llama")
    draw = torch.Generator().manual_seed(2)
    asked = [
        RowRequest(
            tuple(torch.randint(37, (1 + number % 6,), generator=draw).tolist()),
            STRATEGIES[number % 4],
            Stop(END, 1 + 7 * number % 40),
            number,
        )
        for number in range(13)
    ]
    engine = RowEngine(model.in_place(), Capacity(4, 60))
    waiting, found = list(asked), {}
    while waiting or engine.busy:
        coming = len(engine.free)
        engine.admit(waiting[:coming])
        waiting = waiting[coming:]
        engine.step(5)
        found |= {request: hypothesis.ids for request, hypothesis in engine.retire()}
    monkeypatch.setattr(paths, "DEVICES", set())
    for one in asked:
        strategy = one.strategy
        if isinstance(strategy, Sample):
            strategy = replace(strategy, first=one.number)
        [alone] = generate(model, Inputs(Padded.of([one.prompt])).to("cuda"), strategy, one.stop)
        assert found[one] == alone.ids


def test_a_graph_goes_on_reading_ids_that_their_cache_has_let_go():
    model, stop = build("llama"), Stop(-5, 20)
    told = (inputs(model), Greedy(), stop, (Suppressed((3, 5, 7)),))
    before = generate(model, *told)
    filled = [on(model.device, (number,) * 3) for number in range(600)]
    filled += [torch.full((3,), 36, device="cuda") for _ in range(600)]
    assert [one.ids for one in generate(model, *told)] == [one.ids for one in before]
    assert len(filled) == 1200

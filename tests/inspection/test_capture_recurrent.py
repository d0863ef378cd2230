"""A recurrent decoder's steps are one alignment: what a watch says of it is what the papers' formulas give."""

import pytest
import torch
from torch import Tensor

from regard.attention.similarity import SIMILARITIES
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate, stream
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import InputError
from regard.inspection.capture import Recording, watch_module
from regard.inspection.formulas import FORMULAS
from regard.models.network import NETWORKS, Network

VOCABULARY, END, LAYER = 7, 2, "decoder.0.cross"
STRATEGIES = (Greedy(), Sample(temperature=1.5, seed=3), Beam(3, 0.7))
NAMES = ("bahdanau", "luong")
attentional = pytest.mark.parametrize("name", NAMES)


def build(name: str, similarity: str = "additive", cell: str = "gru", *, bidirectional: bool = True) -> Network:
    torch.manual_seed(6)
    options = {"cell": cell, "layers": 2, "similarity": similarity, "bidirectional": bidirectional}
    model = NETWORKS[name].config(vocabulary=VOCABULARY, width=5, tie_embeddings=False, **options).build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)  # far from uniform weights
    return model.double().eval()


def texts(lengths: tuple[int, ...], seed: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


PROMPTS, SOURCES = texts((3, 1, 5, 2)), texts((4, 7, 1, 5), seed=2)


@torch.no_grad()
def by_hand(model: Network, tokens: list[int], source: list[int]) -> Tensor:
    """`[target steps, source tokens]`: one unpadded text, token by token, states from the network's own steps."""
    memory, _ = model.encoder(model.embedding(torch.tensor([source])))
    state = model.start(Inputs(Padded.of([[0]]), Padded.of([source])))
    rows = []
    for token in tokens:
        before = state.cells[0][-1]
        _, state = model.step(torch.tensor([token]), state)
        query = before if model.config.name == "bahdanau" else state.cells[0][-1]
        compare = model.alignment.attend.similarity
        rows.append(FORMULAS[type(compare)](compare, query, model.alignment.keys(memory)[0])[0].softmax(-1))
    return torch.stack(rows)


def assert_seen(seen: Recording, batch: int | None, expected: Tensor) -> None:
    assert seen.layers == [LAYER]
    torch.testing.assert_close(seen.weights(LAYER, 0, batch=batch), expected, rtol=0, atol=1e-12)


@attentional
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_batch(name, similarity, side):
    model = build(name, similarity, bidirectional=side == "left")
    with watch_module(model) as seen:
        model(Inputs(Padded.of(PROMPTS, side=side), Padded.of(SOURCES, fill=3, side=side)))
    assert seen.sequences == 4
    for row in range(4):
        assert_seen(seen, row, by_hand(model, PROMPTS[row], SOURCES[row]))


@pytest.mark.parametrize(("name", "cell"), [("bahdanau", "lstm"), ("luong", "gru")])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_rows_of_decoding_are_those_of_the_text_read_at_once(name, cell, strategy):
    model = build(name, cell=cell)
    for prompts in (PROMPTS, [[1]] * 4):
        with watch_module(model) as seen:
            found = generate(model, Inputs(Padded.of(prompts), Padded.of(SOURCES, fill=3)), strategy, Stop(END, 6))
        assert any(len(set(one.rows)) > 1 for one in found) or not isinstance(strategy, Beam)  # they changed places
        for row in range(4):
            assert_seen(seen, row, by_hand(model, [*prompts[row], *found[row].ids[:-1]], SOURCES[row]))


@attentional
def test_a_stream_and_runs_one_after_another(name):
    model = build(name)
    alone = Inputs(Padded.of(PROMPTS[:1]), Padded.of(SOURCES[:1]))
    with watch_module(model) as seen:
        ids = list(stream(model, alone, Greedy(), Stop(END, 7)))
        model(alone)
        found = generate(model, alone, Beam(2), Stop(END, 5))
    assert seen.sequences == 3
    assert_seen(seen, 0, by_hand(model, [*PROMPTS[0], *ids[:-1]], SOURCES[0]))
    assert_seen(seen, 1, by_hand(model, PROMPTS[0], SOURCES[0]))
    assert_seen(seen, 2, by_hand(model, [*PROMPTS[0], *found[0].ids[:-1]], SOURCES[0]))


@attentional
def test_steps_taken_by_hand_append_rows_and_another_start_is_another_run(name):
    model = build(name)
    [tokens], source = texts((6,)), texts((4,), seed=2)
    with watch_module(model) as seen, torch.no_grad():
        for _ in range(2):
            state = model.start(Inputs(Padded.of([tokens[:2]]), Padded.of(source)))
            _, state = model.step(torch.tensor(tokens[1:2]), state)
            _, state = model.extend(torch.tensor([tokens[2:5]]), state)
            model.step(torch.tensor(tokens[5:]), state)
    assert seen.sequences == 2
    for run in range(2):
        assert_seen(seen, run, by_hand(model, tokens, source[0]))


def test_a_network_without_attention_cannot_be_watched():
    model = NETWORKS["seq2seq"].config(vocabulary=7, width=5).build()
    with pytest.raises(InputError, match="Seq2Seq has no attention that can be watched"), watch_module(model):
        pass

"""A model whose heads were written by hand: the measures name them, and so do ablation and the parts of a score.

The stream has room for a token, its place, the token before and what is predicted, each as one of so many directions:

    decoder.0.self:0   previous token   a place looks for the one before; carries its token into `before`
    decoder.1.self:0   induction        a token looks for itself in `before`; carries the token there into `predicted`
    decoder.1.self:1   sink             everything looks at the first place, and carries nothing
"""

import pytest
import torch
from torch import Tensor

from regard.data.batching import Inputs, Padded
from regard.inspection.capture import watch_module
from regard.inspection.decisions import Decisions
from regard.inspection.heads import measure_heads, repeated_induction
from regard.inspection.score_parts import score_parts
from regard.inspection.what_if import edge_effects, head_effects
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

VOCABULARY, PLACES, SHARP = 11, 13, 40.0
TOKEN, PLACE = slice(0, VOCABULARY), slice(VOCABULARY, VOCABULARY + PLACES)
BEFORE = slice(PLACE.stop, PLACE.stop + VOCABULARY)
PREDICTED = slice(BEFORE.stop, BEFORE.stop + VOCABULARY)
TWICE = [0, 5, 8, 3, 7, 9, 4, 5, 8, 3, 7, 9, 4]
INPUTS = Inputs(Padded.of([TWICE]))


def read_from(part: slice, size: int, matrix: Tensor | None = None) -> Tensor:
    """A map of a head: `[PLACES, width]`, that reads one part of the stream."""
    found = torch.zeros(PLACES, PREDICTED.stop)
    found[:size, part] = torch.eye(size) if matrix is None else matrix
    return found


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = TransformerConfig(
        architecture="decoder",
        vocabulary=VOCABULARY,
        width=PREDICTED.stop,
        heads=2,
        head_width=PLACES,
        layers=2,
        feedforward_width=3,
        norm="none",
        norm_placement="pre",
        positions="learned",
        max_positions=PLACES,
        scale_embeddings=False,
        tie_embeddings=False,
    )
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[:, TOKEN] = torch.eye(VOCABULARY).double()
        model.decoder_positions.absolute.weight[:, PLACE] = torch.eye(PLACES).double()
        model.output.weight[:, PREDICTED] = 9 * torch.eye(VOCABULARY).double()
        first, second = (layer.self_attention for layer in model.decoder.layers)
        one, two = slice(0, PLACES), slice(PLACES, 2 * PLACES)
        first.query.weight[one] = SHARP * read_from(PLACE, PLACES)
        first.key.weight[one] = read_from(PLACE, PLACES, torch.eye(PLACES).roll(1, 0))  # a place says it is the next
        first.value.weight[one] = read_from(TOKEN, VOCABULARY)
        first.output.weight[BEFORE, one] = read_from(slice(0, VOCABULARY), VOCABULARY)[:VOCABULARY, :PLACES].double()
        second.query.weight[one] = SHARP * read_from(TOKEN, VOCABULARY)
        second.key.weight[one] = read_from(BEFORE, VOCABULARY)
        second.value.weight[one] = read_from(TOKEN, VOCABULARY)
        second.output.weight[PREDICTED, one] = torch.eye(VOCABULARY, PLACES).double()
        second.query.bias[two] = SHARP
        second.key.weight[two.start, PLACE.start] = 1.0
    return model


def test_the_measures_name_the_heads(model):
    with watch_module(model) as seen, torch.no_grad():
        model(INPUTS)
    found = {(one.layer, one.head): one for one in measure_heads(seen)}
    assert found["decoder.0.self", 0].character == "previous token"
    assert found["decoder.1.self", 0].character == "induction"
    assert found["decoder.1.self", 1].character == "sink"
    assert found["decoder.0.self", 0].previous > 0.99
    assert repeated_induction(seen, half=6)["decoder.1.self", 0] > 0.99
    assert found["decoder.1.self", 1].sink > 0.9


def test_the_answer_needs_both_heads_of_the_circuit_and_not_the_sink(model):
    decided = Decisions(INPUTS, (8, 3, 7, 9, 4), str, lambda logits: logits[:, 7:12])  # what follows 5 8 3 7 9
    likely = decided.ask(model)
    assert likely[0].argmax(dim=-1).tolist() == [8, 3, 7, 9, 4]
    effects = head_effects(model, decided)
    for layer, head in (("decoder.0.self", 0), ("decoder.1.self", 0)):
        assert effects.of(layer, head).change < -5
        assert not effects.of(layer, head).kept
    for layer, head in (("decoder.0.self", 1), ("decoder.1.self", 1)):
        assert effects.of(layer, head).change == pytest.approx(0, abs=1e-9)
    edges = {one.key: one.change for one in edge_effects(model, decided, "decoder.1.self", 9, head=0).edges}
    assert min(edges, key=edges.__getitem__) == 4  # at the second 3 it reads the 7 behind the first


def test_the_score_of_the_induction_head_comes_from_the_token_and_the_head_before(model):
    found = score_parts(model, INPUTS, "decoder.1.self", 0, 9, 4)
    [(query, key, value), (_, _, next_largest), *_] = found.pairs(3)
    assert (query, key) == ("token", "decoder.0.self:0")
    assert value == pytest.approx(found.score, rel=1e-6)
    assert abs(next_largest) < 1e-6

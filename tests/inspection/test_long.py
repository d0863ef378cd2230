"""Long texts: exact rows without the square, and entropy and largest weights tile by tile."""

import pytest
import torch

from regard.attention.core import weights
from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection import trace
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

LAYER = "decoder.0.self"


def seen_of(tokens: int, **options):
    torch.manual_seed(0)
    config = TransformerConfig(
        vocabulary=17, width=16, heads=2, layers=1, feedforward_width=8, architecture="decoder", **options
    )
    model = Transformer(config).eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([torch.randint(17, (tokens,)).tolist()])))
    return seen


@pytest.mark.parametrize("tokens", [8192, 16384])
def test_a_row_of_a_long_text_is_exact(tokens):
    seen = seen_of(tokens)
    [call] = seen.forwards[0].layers[LAYER]
    for row in (-1, 5000):
        place = row % tokens
        scores = call.query[0, 1, place].double() @ call.new_keys[0, 1, : place + 1].double().T / 8**0.5
        found = seen.weights(LAYER, head=1, rows=[row])[0].double()
        torch.testing.assert_close(found[: place + 1], scores.softmax(dim=0), atol=1e-6, rtol=0)
        assert (found[place + 1 :] == 0).all()


@pytest.mark.parametrize("positions", ["sinusoidal", "alibi", "rotary"])
def test_entropy_and_largest_weights_are_those_of_the_whole_map(positions, monkeypatch):
    monkeypatch.setattr(trace, "TILE", 5000)  # many tiles
    seen = seen_of(331, positions=positions)
    [call] = seen.forwards[0].layers[LAYER]
    whole = weights(call.query, call.new_keys, mask=call.mask, bias=call.bias)[0].double()
    expected = -(whole * whole.clamp(min=1e-300).log()).sum(dim=-1)
    assert_close(seen.entropy(LAYER).double(), expected)
    assert_close(seen.entropy(LAYER, head=1).double(), expected[1])
    top = seen.top(7, LAYER)
    torch.testing.assert_close(top.weights.double(), whole.topk(7).values, atol=1e-6, rtol=0)
    torch.testing.assert_close(whole.gather(-1, top.keys), whole.topk(7).values, atol=1e-6, rtol=0)
    assert seen.top(1000, LAYER, head=0).keys.shape == (331, 331)


def test_no_tile_is_larger_than_it_may_be(monkeypatch):
    monkeypatch.setattr(trace, "TILE", 5000)
    sizes = [tile.numel() for tile in seen_of(331).trace(LAYER).tiles()]
    assert max(sizes) <= 5000
    assert sum(sizes) == 2 * 331 * 331


def test_none_of_the_largest_weights_is_refused():
    with pytest.raises(InputError, match="the 0 largest weights are none"):
        seen_of(3).top(0, LAYER)

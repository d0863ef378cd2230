"""The short way of a step through a plain decoder gives what the long way gives; its kernels are tested elsewhere."""

import pytest
import torch
from torch import nn

from regard.data.batching import Inputs, Padded
from regard.layers.linear import keep_int8
from regard.models import in_place
from regard.models.config import TransformerConfig
from regard.models.lean_step import StepHead, padded_rows
from regard.models.transformer import Transformer

SIZES = {"architecture": "decoder", "vocabulary": 13, "width": 12, "heads": 6, "layers": 3, "norm_placement": "pre"}
PLAIN = {
    "gpt2": {"positions": "learned", "max_positions": 31, "feedforward": "gelu_tanh", "output_bias": True},
    "llama": {
        "positions": "rotary",
        "key_value_heads": 2,
        "feedforward": "swiglu",
        "norm": "rms",
        "bias": False,
        "tie_embeddings": False,
    },
    "window": {
        "positions": "rotary",
        "attention": {"name": "exact", "window": 3, "scale": 0.7},
        "feedforward": "geglu",
    },
    "own rotary": {
        "positions": "rotary",
        "attention": [{"name": "exact", "turned": False}, {"name": "exact", "rotary": {"base": 50.0}}],
        "norm": "rms_offset",
        "output_softcap": 3.0,
    },
    "nothing": {"norm": "none", "positions": "sinusoidal", "scale_output": True},
}
LONG_WAY = {
    "post": {"norm_placement": "post"},
    "sandwich": {"norm_placement": "sandwich"},
    "alibi": {"positions": "alibi"},
    "reversible": {"residual": "reversible"},
    "no residual": {"residual": False},
    "normed queries": {"attention": {"name": "exact", "query_key_norm": "rms"}},
    "softcap": {"attention": {"name": "exact", "softcap": 2.0}},
    "values": {"attention": {"name": "exact", "value_width": 5}},
    "similarity": {"similarity": "cosine"},
    "biases": {"attention": {"name": "exact", "biases": ["query"]}},
}


def build(keys) -> Transformer:
    torch.manual_seed(0)
    model: Transformer = TransformerConfig(**{**SIZES, **keys}).build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 3)  # no weight of a norm is 1, no bias 0
    return model


@pytest.fixture(autouse=True)
def _stacked_here(monkeypatch):
    monkeypatch.setattr(in_place, "STACKED", {"cpu"})


def stepped(model: Transformer, texts: list[list[int]], first: int) -> torch.Tensor:
    """The logits after each of the last tokens, rows being at places of their own."""
    decoder = model.in_place()
    with torch.no_grad():
        state = decoder.start(Inputs(Padded.of([text[: len(text) - first] for text in texts])))
        found = []
        for place in range(first + 1):
            logits, state = decoder.step(torch.tensor([text[place - first - 1] for text in texts]), state)
            found.append(logits)
    assert (decoder.lean is not None) == ({"cpu"} == in_place.STACKED)
    return torch.stack(found)


@pytest.mark.parametrize("name", PLAIN)
def test_the_short_way_gives_what_the_long_way_gives(name, monkeypatch):
    model, texts = build(PLAIN[name]), [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5]]
    found = stepped(model, texts, 2)
    monkeypatch.setattr(in_place, "STACKED", frozenset())
    torch.testing.assert_close(found, stepped(model, texts, 2), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", LONG_WAY)
def test_what_is_not_plain_goes_the_long_way(name):
    model = build(LONG_WAY[name])
    decoder = model.in_place()
    decoder.allocate(1, 64)
    assert decoder.lean is None


@pytest.mark.parametrize("change", ["hook", "training", "int8", "encoder"])
def test_who_is_watched_trained_or_rounded_goes_the_long_way(change):
    model = build({"architecture": "encoder_decoder"} if change == "encoder" else {})
    if change == "hook":
        model.decoder.layers[1].feedforward.register_forward_hook(lambda *told: None)
    if change == "training":
        model.train()
    if change == "int8":  # a CPU has a way of its own with it
        keep_int8(model)
    decoder = model.in_place()
    decoder.allocate(1, 64)
    assert decoder.lean is None


def test_a_table_with_rows_behind_it_is_the_same_table():
    table = nn.Parameter(torch.randn(67, 5))
    before = table.detach().clone()
    padded = padded_rows(table)
    assert padded.shape == (128, 5)
    assert padded.data_ptr() == table.data_ptr()
    assert torch.equal(table, before)
    assert torch.equal(padded[67:], torch.zeros(61, 5))
    assert padded_rows(table).data_ptr() == padded.data_ptr()
    table.sum().backward()
    assert table.grad is not None
    bias = nn.Parameter(torch.randn(67))
    assert torch.equal(padded_rows(bias), torch.cat([bias, torch.zeros(61)]))
    assert padded_rows(bias).data_ptr() == bias.data_ptr()
    even = nn.Parameter(torch.randn(72, 5))
    assert padded_rows(even) is even


def test_a_masked_head_is_no_head_of_a_step():
    model = Transformer(TransformerConfig(architecture="encoder", head="masked", vocabulary=13, width=12, heads=2))
    assert StepHead.of(model.output, model.embedding) is None
    assert StepHead.of(None, model.embedding) is None

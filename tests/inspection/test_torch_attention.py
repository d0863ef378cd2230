"""`watch` on PyTorch's own attention gives the weights that PyTorch itself returns."""

import pytest
import torch
from torch import nn

import regard
from regard.errors import InputError

WIDTH, HEADS, BATCH, QUERIES, KEYS = 6, 3, 2, 5, 7


def forbidden(*shape: int) -> torch.Tensor:
    """True where PyTorch does not attend; never a whole row."""
    table = torch.rand(shape) < 0.4
    table[..., 0] = False
    return table


LAST = torch.tensor([[False] * KEYS, [False] * 4 + [True] * 3])
CALLS = {
    "plain": ({}, {}),
    "batch first": ({"batch_first": True}, {}),
    "other widths": ({"kdim": 11, "vdim": 13}, {}),
    "no bias": ({"bias": False}, {}),
    "a table": ({}, {"attn_mask": lambda: forbidden(QUERIES, KEYS)}),
    "a table for each head": ({}, {"attn_mask": lambda: forbidden(BATCH * HEADS, QUERIES, KEYS)}),
    "numbers": ({}, {"attn_mask": lambda: torch.randn(QUERIES, KEYS)}),
    "padding in between": ({}, {"key_padding_mask": lambda: LAST.roll(-2, 1)}),
    "padding and a table": (
        {},
        {"key_padding_mask": lambda: LAST, "attn_mask": lambda: forbidden(QUERIES, KEYS)},
    ),
}


@pytest.mark.parametrize(("options", "masks"), CALLS.values(), ids=CALLS.keys())
def test_the_weights_seen_are_those_it_returns(options, masks):
    module = nn.MultiheadAttention(WIDTH, HEADS, **options).eval()
    query = torch.randn(QUERIES, BATCH, WIDTH)
    key = torch.randn(KEYS, BATCH, options.get("kdim", WIDTH))
    value = torch.randn(KEYS, BATCH, options.get("vdim", WIDTH))
    given = {name: make() for name, make in masks.items()}
    if options.get("batch_first"):
        query, key, value = (one.transpose(0, 1) for one in (query, key, value))
    _, peer = module(query, key, value, average_attn_weights=False, **given)
    with regard.watch(module) as seen:
        module(query, key, value, need_weights=False, **given)
    assert seen.layers == ["attention"]
    for batch in range(BATCH):
        real = slice(0, 4) if batch and given.get("key_padding_mask") is LAST else slice(None)
        found = seen.weights("attention", batch=batch)
        torch.testing.assert_close(found, peer[batch, :, :, real].detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("training", [True, False], ids=["training", "fast path"])
def test_a_padded_encoder_of_pytorchs_is_seen_layer_by_layer(training):
    layer = nn.TransformerEncoderLayer(WIDTH * 2, 2, 11, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).train(training)
    text, padding = torch.randn(2, KEYS, WIDTH * 2), LAST
    with regard.watch(module) as seen, torch.set_grad_enabled(training):
        module(text, src_key_padding_mask=padding)
    assert seen.layers == ["0.self", "1.self"]
    assert "2 texts, 2 layers (0.self … 1.self), 2 heads, 7, 4 rows" in repr(seen)
    attention = module.layers[0].self_attn
    _, peer = attention(text, text, text, key_padding_mask=padding, average_attn_weights=False)
    found = seen.weights("0.self", batch=1)
    torch.testing.assert_close(found, peer[1, :, :4, :4].detach(), atol=1e-6, rtol=1e-5)


def test_a_whole_transformer_of_pytorchs_has_layers_with_our_names():
    module = nn.Transformer(4, 2, 1, 1, 11, batch_first=True).eval()
    with regard.watch(module) as seen, torch.no_grad():
        module(torch.randn(1, 5, 4), torch.randn(1, 3, 4))
    assert seen.layers == ["encoder.0.self", "decoder.0.self", "decoder.0.cross"]
    assert seen.weights("decoder.0.cross").shape == (2, 3, 5)


class Plain(nn.Module):
    """Attention that is a call and no module."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return regard.attend(inputs, inputs, inputs)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Plain(), r"Plain has no attention that can be watched; .*torch\.nn\.MultiheadAttention"),
        (nn.MultiheadAttention(4, 2, add_bias_kv=True), "add_bias_kv"),
        (nn.Sequential(nn.MultiheadAttention(4, 2, add_zero_attn=True)), "add_zero_attn"),
    ],
)
def test_what_cannot_be_seen_is_said_at_once(module, words):
    with pytest.raises(InputError, match=words), regard.watch(module):
        pass

"""The same numbers as PyTorch's own layers, from the same weights: outputs and gradients to 1e-5."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from regard.attention.mask import Causal, Mask, Padding
from regard.attention.mechanism import LayerContext
from regard.attention.multihead import MultiHeadAttention
from regard.blocks.config import BlockConfig
from regard.blocks.decoder import Decoder, DecoderCache, DecoderLayer
from regard.blocks.encoder import Encoder, EncoderLayer
from regard.layers.feedforward import FeedForward
from regard.layers.residual import Residual
from rounding import assert_close

BATCH, TOKENS, SOURCE, WIDTH, HEADS, INNER = 3, 5, 7, 22, 2, 13
LENGTHS, SOURCE_LENGTHS = torch.tensor([5, 2, 3]), torch.tensor([1, 7, 4])

placements = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])


# PyTorch's masks are True where Regard's are False


def padding(lengths: Tensor, tokens: int) -> Tensor:
    return torch.tensor([[place >= length for place in range(tokens)] for length in lengths.tolist()])


def future(tokens: int) -> Tensor:
    return torch.tensor([[key > query for key in range(tokens)] for query in range(tokens)])


def masks(*, causal: bool, padded: bool) -> tuple[Mask | None, dict[str, Tensor]]:
    """Regard's mask, and PyTorch's `attn_mask` and `key_padding_mask`."""
    actual = [Causal()] * causal + [Padding(LENGTHS)] * padded
    peer = {"attn_mask": future(TOKENS)} if causal else {}
    peer |= {"key_padding_mask": padding(LENGTHS, TOKENS)} if padded else {}
    return (actual[0] & actual[1] if len(actual) == 2 else actual[0]) if actual else None, peer


# Their weights, by our names


def copy(actual: nn.Module, peer: nn.Module) -> None:
    actual.load_state_dict(peer.state_dict())


def copy_attention(actual: MultiHeadAttention, peer: nn.MultiheadAttention) -> None:
    nn.init.normal_(peer.in_proj_bias)  # PyTorch begins at zero, where a swapped bias would not show
    nn.init.normal_(peer.out_proj.bias)
    projections = zip(peer.in_proj_weight.chunk(3), peer.in_proj_bias.chunk(3), strict=True)
    for projection, (weight, bias) in zip((actual.query, actual.key, actual.value), projections, strict=True):
        projection.load_state_dict({"weight": weight, "bias": bias})
    copy(actual.output, peer.out_proj)


def copy_norm(actual: Residual | nn.Module, peer: nn.LayerNorm) -> None:
    nn.init.normal_(peer.weight, mean=1.0)
    nn.init.normal_(peer.bias)
    copy(actual.norm if isinstance(actual, Residual) else actual, peer)


def copy_feedforward(actual: FeedForward, peer: nn.Module) -> None:
    copy(actual.up, peer.linear1)
    copy(actual.down, peer.linear2)


def copy_encoder_layer(actual: EncoderLayer, peer: nn.TransformerEncoderLayer) -> None:
    copy_attention(actual.self_attention, peer.self_attn)
    copy_feedforward(actual.feedforward, peer)
    copy_norm(actual.self_residual, peer.norm1)
    copy_norm(actual.feedforward_residual, peer.norm2)


def copy_decoder_layer(actual: DecoderLayer, peer: nn.TransformerDecoderLayer) -> None:
    copy_attention(actual.self_attention, peer.self_attn)
    copy_attention(actual.cross_attention, peer.multihead_attn)
    copy_feedforward(actual.feedforward, peer)
    copy_norm(actual.self_residual, peer.norm1)
    copy_norm(actual.cross_residual, peer.norm2)
    copy_norm(actual.feedforward_residual, peer.norm3)


def config(activation: str, norm_first: bool) -> BlockConfig:
    return BlockConfig(
        width=WIDTH,
        heads=HEADS,
        feedforward=activation,
        feedforward_width=INNER,
        norm_placement="pre" if norm_first else "post",
        dropout=0.0,
    )


def options(activation: str, norm_first: bool) -> dict:
    return {
        "d_model": WIDTH,
        "nhead": HEADS,
        "dim_feedforward": INNER,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm_first,
    }


# The comparison


def drawn(tokens: int) -> Tensor:
    return torch.randn(BATCH, tokens, WIDTH, requires_grad=True)


def assert_equal(actual: Tensor, peer: Tensor, inputs: tuple[Tensor, ...], keep: Tensor | None = None) -> None:
    """Outputs (of real tokens, where some are padding) and the gradients of all inputs."""
    keep = torch.ones(actual.shape[:2], dtype=torch.bool) if keep is None else keep
    assert_close(actual[keep], peer[keep])
    towards = torch.randn_like(actual[keep])
    pairs = (torch.autograd.grad((one[keep] * towards).sum(), inputs) for one in (actual, peer))
    for one, other in zip(*pairs, strict=True):
        assert other.abs().max() > 0
        assert_close(one, other)


@pytest.mark.parametrize(("causal", "padded"), list(product([False, True], repeat=2)))
def test_self_attention_equals_pytorch(causal, padded):
    peer, actual = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), MultiHeadAttention(WIDTH, HEADS)
    copy_attention(actual, peer)
    mask, their_masks = masks(causal=causal, padded=padded)
    inputs = drawn(TOKENS)
    expected, _ = peer(inputs, inputs, inputs, need_weights=False, **their_masks)
    assert_equal(actual(inputs, mask=mask), expected, (inputs,))


@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention_equals_pytorch(padded):
    peer, actual = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), MultiHeadAttention(WIDTH, HEADS)
    copy_attention(actual, peer)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    hidden = padding(SOURCE_LENGTHS, SOURCE) if padded else None
    expected, _ = peer(inputs, memory, memory, key_padding_mask=hidden, need_weights=False)
    found = actual(inputs, memory, mask=Padding(SOURCE_LENGTHS) if padded else None)
    assert_equal(found, expected, (inputs, memory))


@activations
@placements
@pytest.mark.parametrize(("causal", "padded"), list(product([False, True], repeat=2)))
def test_an_encoder_layer_equals_pytorch(activation, norm_first, causal, padded):
    peer, actual = (
        nn.TransformerEncoderLayer(**options(activation, norm_first)),
        EncoderLayer(config(activation, norm_first)),
    )
    copy_encoder_layer(actual, peer)
    mask, their_masks = masks(causal=causal, padded=padded)
    inputs = drawn(TOKENS)
    expected = peer(
        inputs, src_mask=their_masks.get("attn_mask"), src_key_padding_mask=their_masks.get("key_padding_mask")
    )
    found = actual(inputs, LayerContext(mask))
    assert_equal(found, expected, (inputs,), ~padding(LENGTHS, TOKENS) if padded else None)


@activations
@placements
@pytest.mark.parametrize("padded", [False, True])
def test_a_decoder_layer_equals_pytorch(activation, norm_first, padded):
    peer = nn.TransformerDecoderLayer(**options(activation, norm_first))
    actual = DecoderLayer(config(activation, norm_first), cross=True)
    copy_decoder_layer(actual, peer)
    mask, their_masks = masks(causal=True, padded=padded)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = peer(
        inputs,
        memory,
        tgt_mask=their_masks["attn_mask"],
        tgt_key_padding_mask=their_masks.get("key_padding_mask"),
        memory_key_padding_mask=padding(SOURCE_LENGTHS, SOURCE) if padded else None,
    )
    around = LayerContext(mask, memory_mask=Padding(SOURCE_LENGTHS) if padded else None)
    found, _ = actual(inputs, None, actual.cross_attention.start(memory), around)
    assert_equal(found, expected, (inputs, memory), ~padding(LENGTHS, TOKENS) if padded else None)


@activations
@placements
def test_an_encoder_stack_equals_pytorch(activation, norm_first):
    layer = nn.TransformerEncoderLayer(**options(activation, norm_first))
    last = nn.LayerNorm(WIDTH) if norm_first else None
    peer = nn.TransformerEncoder(layer, 3, norm=last, enable_nested_tensor=False)
    actual = Encoder(config(activation, norm_first), 3)
    for one, other in zip(actual.layers, peer.layers, strict=True):
        other.apply(redraw)
        copy_encoder_layer(one, other)
    if norm_first:
        copy_norm(actual.norm, peer.norm)
    inputs = drawn(TOKENS)
    expected = peer(inputs, src_key_padding_mask=padding(LENGTHS, TOKENS))
    assert_equal(actual(inputs, LayerContext(Padding(LENGTHS))), expected, (inputs,), ~padding(LENGTHS, TOKENS))


@activations
@placements
def test_a_decoder_stack_equals_pytorch(activation, norm_first):
    layer = nn.TransformerDecoderLayer(**options(activation, norm_first))
    peer = nn.TransformerDecoder(layer, 3, norm=nn.LayerNorm(WIDTH) if norm_first else None)
    actual = Decoder(config(activation, norm_first), 3, cross=True)
    for one, other in zip(actual.layers, peer.layers, strict=True):
        other.apply(redraw)
        copy_decoder_layer(one, other)
    if norm_first:
        copy_norm(actual.norm, peer.norm)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = peer(inputs, memory, tgt_mask=future(TOKENS), memory_key_padding_mask=padding(SOURCE_LENGTHS, SOURCE))
    around = LayerContext(Causal(), memory_mask=Padding(SOURCE_LENGTHS))
    found, _ = actual(inputs, actual.precompute_cross(memory), around)
    assert_equal(found, expected, (inputs, memory))


def redraw(module: nn.Module) -> None:
    """A stack of PyTorch's holds copies of one layer: each gets weights of its own."""
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.xavier_uniform_(module.in_proj_weight)


@placements
def test_a_decoder_fed_piece_by_piece_equals_pytorch_fed_at_once(norm_first):
    peer = nn.TransformerDecoderLayer(**options("relu", norm_first))
    actual = Decoder(config("relu", norm_first), 1, cross=True)
    copy_decoder_layer(actual.layers[0], peer)
    last = nn.LayerNorm(WIDTH) if norm_first else nn.Identity()
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = last(peer(inputs, memory, tgt_mask=future(TOKENS)))
    cache: DecoderCache = actual.precompute_cross(memory)
    pieces = []
    for piece in inputs.split([2, 1, 2], dim=1):
        found, cache = actual(piece, cache, LayerContext(Causal()))
        pieces.append(found)
    assert_equal(torch.cat(pieces, dim=1), expected, (inputs, memory))

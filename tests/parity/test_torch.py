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


# Their masks are True where ours are False


def padding(lengths: Tensor, tokens: int) -> Tensor:
    return torch.tensor([[place >= length for place in range(tokens)] for length in lengths.tolist()])


def future(tokens: int) -> Tensor:
    return torch.tensor([[key > query for key in range(tokens)] for query in range(tokens)])


def masks(*, causal: bool, padded: bool) -> tuple[Mask | None, dict[str, Tensor]]:
    """Ours, and PyTorch's `attn_mask` and `key_padding_mask`."""
    ours = [Causal()] * causal + [Padding(LENGTHS)] * padded
    theirs = {"attn_mask": future(TOKENS)} if causal else {}
    theirs |= {"key_padding_mask": padding(LENGTHS, TOKENS)} if padded else {}
    return (ours[0] & ours[1] if len(ours) == 2 else ours[0]) if ours else None, theirs


# Their weights, by our names


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    ours.load_state_dict(theirs.state_dict())


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    nn.init.normal_(theirs.in_proj_bias)  # PyTorch begins at zero, where a swapped bias would not show
    nn.init.normal_(theirs.out_proj.bias)
    projections = zip(theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True)
    for projection, (weight, bias) in zip((ours.query, ours.key, ours.value), projections, strict=True):
        projection.load_state_dict({"weight": weight, "bias": bias})
    copy(ours.output, theirs.out_proj)


def copy_norm(ours: Residual | nn.Module, theirs: nn.LayerNorm) -> None:
    nn.init.normal_(theirs.weight, mean=1.0)
    nn.init.normal_(theirs.bias)
    copy(ours.norm if isinstance(ours, Residual) else ours, theirs)


def copy_feedforward(ours: FeedForward, theirs: nn.Module) -> None:
    copy(ours.up, theirs.linear1)
    copy(ours.down, theirs.linear2)


def copy_encoder_layer(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_feedforward(ours.feedforward, theirs)
    copy_norm(ours.self_residual, theirs.norm1)
    copy_norm(ours.feedforward_residual, theirs.norm2)


def copy_decoder_layer(ours: DecoderLayer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_feedforward(ours.feedforward, theirs)
    copy_norm(ours.self_residual, theirs.norm1)
    copy_norm(ours.cross_residual, theirs.norm2)
    copy_norm(ours.feedforward_residual, theirs.norm3)


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


def assert_equal(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...], keep: Tensor | None = None) -> None:
    """Outputs (of real tokens, where some are padding) and the gradients of all inputs."""
    keep = torch.ones(ours.shape[:2], dtype=torch.bool) if keep is None else keep
    assert_close(ours[keep], theirs[keep])
    towards = torch.randn_like(ours[keep])
    pairs = (torch.autograd.grad((one[keep] * towards).sum(), inputs) for one in (ours, theirs))
    for one, other in zip(*pairs, strict=True):
        assert other.abs().max() > 0
        assert_close(one, other)


@pytest.mark.parametrize(("causal", "padded"), list(product([False, True], repeat=2)))
def test_self_attention_equals_theirs(causal, padded):
    theirs, ours = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), MultiHeadAttention(WIDTH, HEADS)
    copy_attention(ours, theirs)
    mask, their_masks = masks(causal=causal, padded=padded)
    inputs = drawn(TOKENS)
    expected, _ = theirs(inputs, inputs, inputs, need_weights=False, **their_masks)
    assert_equal(ours(inputs, mask=mask), expected, (inputs,))


@pytest.mark.parametrize("padded", [False, True])
def test_cross_attention_equals_theirs(padded):
    theirs, ours = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), MultiHeadAttention(WIDTH, HEADS)
    copy_attention(ours, theirs)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    hidden = padding(SOURCE_LENGTHS, SOURCE) if padded else None
    expected, _ = theirs(inputs, memory, memory, key_padding_mask=hidden, need_weights=False)
    found = ours(inputs, memory, mask=Padding(SOURCE_LENGTHS) if padded else None)
    assert_equal(found, expected, (inputs, memory))


@activations
@placements
@pytest.mark.parametrize(("causal", "padded"), list(product([False, True], repeat=2)))
def test_an_encoder_layer_equals_theirs(activation, norm_first, causal, padded):
    theirs, ours = (
        nn.TransformerEncoderLayer(**options(activation, norm_first)),
        EncoderLayer(config(activation, norm_first)),
    )
    copy_encoder_layer(ours, theirs)
    mask, their_masks = masks(causal=causal, padded=padded)
    inputs = drawn(TOKENS)
    expected = theirs(
        inputs, src_mask=their_masks.get("attn_mask"), src_key_padding_mask=their_masks.get("key_padding_mask")
    )
    found = ours(inputs, LayerContext(mask))
    assert_equal(found, expected, (inputs,), ~padding(LENGTHS, TOKENS) if padded else None)


@activations
@placements
@pytest.mark.parametrize("padded", [False, True])
def test_a_decoder_layer_equals_theirs(activation, norm_first, padded):
    theirs = nn.TransformerDecoderLayer(**options(activation, norm_first))
    ours = DecoderLayer(config(activation, norm_first), cross=True)
    copy_decoder_layer(ours, theirs)
    mask, their_masks = masks(causal=True, padded=padded)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = theirs(
        inputs,
        memory,
        tgt_mask=their_masks["attn_mask"],
        tgt_key_padding_mask=their_masks.get("key_padding_mask"),
        memory_key_padding_mask=padding(SOURCE_LENGTHS, SOURCE) if padded else None,
    )
    around = LayerContext(mask, memory_mask=Padding(SOURCE_LENGTHS) if padded else None)
    found, _ = ours(inputs, None, ours.cross_attention.start(memory), around)
    assert_equal(found, expected, (inputs, memory), ~padding(LENGTHS, TOKENS) if padded else None)


@activations
@placements
def test_an_encoder_stack_equals_theirs(activation, norm_first):
    layer = nn.TransformerEncoderLayer(**options(activation, norm_first))
    last = nn.LayerNorm(WIDTH) if norm_first else None
    theirs = nn.TransformerEncoder(layer, 3, norm=last, enable_nested_tensor=False)
    ours = Encoder(config(activation, norm_first), 3)
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        other.apply(redraw)
        copy_encoder_layer(one, other)
    if norm_first:
        copy_norm(ours.norm, theirs.norm)
    inputs = drawn(TOKENS)
    expected = theirs(inputs, src_key_padding_mask=padding(LENGTHS, TOKENS))
    assert_equal(ours(inputs, LayerContext(Padding(LENGTHS))), expected, (inputs,), ~padding(LENGTHS, TOKENS))


@activations
@placements
def test_a_decoder_stack_equals_theirs(activation, norm_first):
    layer = nn.TransformerDecoderLayer(**options(activation, norm_first))
    theirs = nn.TransformerDecoder(layer, 3, norm=nn.LayerNorm(WIDTH) if norm_first else None)
    ours = Decoder(config(activation, norm_first), 3, cross=True)
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        other.apply(redraw)
        copy_decoder_layer(one, other)
    if norm_first:
        copy_norm(ours.norm, theirs.norm)
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = theirs(inputs, memory, tgt_mask=future(TOKENS), memory_key_padding_mask=padding(SOURCE_LENGTHS, SOURCE))
    around = LayerContext(Causal(), memory_mask=Padding(SOURCE_LENGTHS))
    found, _ = ours(inputs, ours.precompute_cross(memory), around)
    assert_equal(found, expected, (inputs, memory))


def redraw(module: nn.Module) -> None:
    """A stack of theirs holds copies of one layer: each gets weights of its own."""
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.xavier_uniform_(module.in_proj_weight)


@placements
def test_a_decoder_fed_piece_by_piece_equals_theirs_fed_at_once(norm_first):
    theirs = nn.TransformerDecoderLayer(**options("relu", norm_first))
    ours = Decoder(config("relu", norm_first), 1, cross=True)
    copy_decoder_layer(ours.layers[0], theirs)
    last = nn.LayerNorm(WIDTH) if norm_first else nn.Identity()
    inputs, memory = drawn(TOKENS), drawn(SOURCE)
    expected = last(theirs(inputs, memory, tgt_mask=future(TOKENS)))
    cache: DecoderCache = ours.precompute_cross(memory)
    pieces = []
    for piece in inputs.split([2, 1, 2], dim=1):
        found, cache = ours(piece, cache, LayerContext(Causal()))
        pieces.append(found)
    assert_equal(torch.cat(pieces, dim=1), expected, (inputs, memory))

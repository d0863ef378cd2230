"""Longformer, BigBird and sinks as layers: what they read, what a decoder keeps, what they refuse, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_reference import table, ten_lines

from regard.attention import gathered
from regard.attention.efficient import block_sparse
from regard.attention.efficient.bigbird import BigBirdShape, draw_blocks
from regard.attention.efficient.bounded import BoundedKeys
from regard.attention.efficient.longformer_layer import LongformerShape
from regard.attention.efficient.sinks import SinksShape
from regard.attention.lowering import live_tiles
from regard.attention.mask import Causal, Document, Padding
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Site, Slot
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

HEADS, KV_HEADS, HEAD_WIDTH, WIDTH = 6, 2, 3, 18


def slot(*, causal: bool, dropout: float = 0.0) -> Slot:
    return Slot(WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, causal=causal, dropout=dropout, site=Site("encoder", 3, "self"))


def built(shape, *, causal: bool = False):
    torch.manual_seed(3)
    layer = shape.build(slot(causal=causal)).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def heads_of(projected: torch.Tensor, heads: int) -> torch.Tensor:
    return projected.unflatten(2, (heads, HEAD_WIDTH)).transpose(1, 2)


def ordinary(layer, inputs):
    return [
        heads_of(one(inputs), count)
        for one, count in ((layer.query, HEADS), (layer.key, KV_HEADS), (layer.value, KV_HEADS))
    ]


def for_globals(layer, inputs):
    parts = (layer.global_query, HEADS), (layer.global_key, KV_HEADS), (layer.global_value, KV_HEADS)
    return [heads_of(one(inputs), count) for one, count in parts]


def joined(layer, heads):
    return layer.output(heads.transpose(1, 2).flatten(2))


def check_longformer(shape: LongformerShape, ids, lengths, side, chosen, *, causal: bool = False):
    """The layer against the ten lines, where the global tokens are `chosen[sequence]`."""
    batch, tokens = ids.shape
    inputs = torch.randn(batch, tokens, WIDTH, dtype=torch.float64)
    padding = Padding(lengths, side)
    mask = padding & Causal() if causal else padding
    layer = built(shape, causal=causal)
    steps = shape.steps(HEADS)

    def real(sequence, query, key):
        length = int(lengths[sequence])
        return (key < length if side == "right" else key >= tokens - length) and (key <= query or not causal)

    def near(sequence, head, query, key):
        away = abs(query - key)
        local = away % steps[head] == 0 and away <= shape.window * steps[head]
        return (local or key in chosen[sequence]) and real(sequence, query, key)

    allowed = table(near, batch, HEADS, tokens, tokens)
    everything = table(lambda b, h, q, k: real(b, q, k), batch, HEADS, tokens, tokens)
    of_globals = ten_lines(*for_globals(layer, inputs), everything)
    is_global = torch.tensor([[token in chosen[b] for token in range(tokens)] for b in range(batch)])[:, None, :, None]
    expected = joined(layer, torch.where(is_global, of_globals, ten_lines(*ordinary(layer, inputs), allowed)))
    context = LayerContext(mask, ids=None if causal else ids)
    found, _ = layer(inputs, None, context)
    text = rows_of_text(lengths, tokens, side)
    assert_close(found[text], expected[text], 1e-12)
    maps = layer.dense_map(inputs, LayerContext(mask, ids=None if causal else ids))
    eye = torch.eye(tokens, dtype=torch.float64).expand(batch, KV_HEADS, -1, -1)
    query, key, _ = ordinary(layer, inputs)
    global_query, global_key, _ = for_globals(layer, inputs)
    both = torch.where(
        is_global, ten_lines(global_query, global_key, eye, everything), ten_lines(query, key, eye, allowed)
    )
    assert_close(maps.transpose(1, 2)[text], both.transpose(1, 2)[text], 1e-12)


def rows_of_text(lengths, tokens, side):
    places = torch.arange(tokens)
    return places < lengths[:, None] if side == "right" else places >= tokens - lengths[:, None]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_longformers_first_tokens_are_those_of_every_text(side, causal):
    ids, lengths = torch.arange(26).view(2, 13), torch.tensor([13, 8])
    begin = 5 if side == "left" else 0
    shape = LongformerShape(window=2, global_tokens=2, dilation=(1, 2, 1, 1, 3, 2))
    check_longformer(shape, ids, lengths, side, [{0, 1}, {begin, begin + 1}], causal=causal)


@pytest.mark.parametrize("side", ["left", "right"])
def test_longformers_global_tokens_by_id_and_before_an_id(side):
    lengths = torch.tensor([11, 7])
    text = torch.tensor([[4, 8, 9, 7, 3, 9, 2, 7, 5, 6, 1], [8, 2, 7, 3, 3, 7, 8, 7, 8, 7, 8]])
    if side == "left":
        text[1] = text[1].roll(4)
    begin = 4 if side == "left" else 0
    by_id = [{1}, {begin, begin + 6}]
    before = [{0, 1, 2}, {begin, begin + 1}]
    check_longformer(LongformerShape(window=1, global_tokens=0, global_ids=(8,)), text, lengths, side, by_id)
    check_longformer(LongformerShape(window=1, global_tokens=0, global_before=7), text, lengths, side, before)
    both = [one | other for one, other in zip(by_id, before, strict=True)]
    check_longformer(
        LongformerShape(window=1, global_tokens=1, global_ids=(8,), global_before=7), text, lengths, side, both
    )


def test_without_projections_of_their_own_global_tokens_read_as_all_do():
    layer = built(LongformerShape(window=1, global_projections=False))
    assert {name.split(".")[0] for name, _ in layer.named_parameters()} == {"query", "key", "value", "output"}
    inputs = torch.randn(2, 7, WIDTH, dtype=torch.float64)
    allowed = table(lambda b, h, q, k: abs(q - k) <= 1 or 0 in (q, k), 2, HEADS, 7, 7)
    found, _ = layer(inputs, None, LayerContext())
    assert_close(found, joined(layer, ten_lines(*ordinary(layer, inputs), allowed)), 1e-12)


def test_packed_texts_have_sinks_and_global_tokens_of_their_own():
    ids = torch.tensor([[1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0], [1] * 13])
    inputs = torch.randn(2, 13, WIDTH, dtype=torch.float64)
    context = LayerContext(Causal() & Document(ids))
    for shape in (SinksShape(window=2, sinks=1), LongformerShape(window=1, global_tokens=2)):
        layer = built(shape, causal=True)
        found, _ = layer(inputs, None, context)
        for text in (slice(0, 5), slice(5, 9), slice(9, 12)):
            alone, _ = layer(inputs[:1, text], None, LayerContext(Causal()))
            assert_close(found[:1, text], alone, 1e-12)


def test_documents_are_numbered_from_anything():
    ids = torch.tensor([[0, 0, 0, 7, 7, 7, 7, 7, 2, 2, 2]])
    inputs = torch.randn(1, 11, WIDTH, dtype=torch.float64)
    text = torch.tensor([[4, 8, 3, 5, 8, 6, 1, 9, 5, 4, 8]])
    shapes = LongformerShape(window=1, global_tokens=1), LongformerShape(window=1, global_tokens=0, global_before=8)
    for shape in shapes:
        layer = built(shape)
        found, _ = layer(inputs, None, LayerContext(Document(ids), ids=text))
        for one in (slice(0, 3), slice(3, 8), slice(8, 11)):
            alone, _ = layer(inputs[:, one], None, LayerContext(ids=text[:, one]))
            assert_close(found[:, one], alone, 1e-12)


def test_more_first_tokens_than_the_text_has_are_all_of_it():
    inputs = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    whole = table(lambda b, h, q, k: k <= q, 2, HEADS, 5, 5)
    for shape in (SinksShape(window=1, sinks=2**20), LongformerShape(window=1, global_tokens=2**20)):
        layer = built(shape, causal=True)
        found, state = layer(inputs[:, :3], None, LayerContext(Causal()))
        later, _ = layer(inputs[:, 3:], state, LayerContext(Causal(), past=3))
        if isinstance(shape, SinksShape):
            expected = joined(layer, ten_lines(*ordinary(layer, inputs), whole))
        else:
            expected, _ = layer(inputs, None, LayerContext(Causal()))
        assert_close(torch.cat((found, later), 1), expected, 1e-12)


def test_more_random_blocks_than_there_are_is_all_of_them():
    inputs = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    layer = built(BigBirdShape(block=1, window=1, first=0, random=2**20))
    found, _ = layer(inputs, None, LayerContext())
    everything = table(lambda b, h, q, k: True, 1, HEADS, 7, 7)
    assert_close(found, joined(layer, ten_lines(*ordinary(layer, inputs), everything)), 1e-12)


def test_bigbirds_layer_reads_what_the_ten_lines_read():
    shape = BigBirdShape(block=2, first=1, random=1, seed=4)
    layer = built(shape)
    inputs = torch.randn(1, 19, WIDTH, dtype=torch.float64)
    drawn = draw_blocks(layer.pattern, 10, torch.tensor([10]))[0].tolist()

    def rule(sequence, head, query, key):
        mine, other = query // 2, key // 2
        return abs(mine - other) <= 1 or 0 in (mine, other) or other in drawn[mine]

    allowed = table(rule, 1, HEADS, 19, 19)
    found, _ = layer(inputs, None, LayerContext())
    assert_close(found, joined(layer, ten_lines(*ordinary(layer, inputs), allowed)), 1e-12)
    maps = layer.dense_map(inputs, LayerContext())
    assert ((maps > 0) == allowed).all()
    assert_close(maps.sum(-1), torch.ones(1, HEADS, 19, dtype=torch.float64), 1e-12)


def test_layers_of_bigbird_draw_blocks_of_their_own():
    config = TransformerConfig(
        vocabulary=7, width=8, heads=2, layers=3, architecture="encoder", attention={"name": "bigbird", "block": 1}
    )
    patterns = [layer.self_attention.pattern for layer in Transformer(config).encoder.layers]
    draws = [draw_blocks(pattern, 31, torch.tensor([31])).tolist() for pattern in patterns]
    assert draws[0] != draws[1] != draws[2] != draws[0]


LOOKING_BACK = {
    "sinks": SinksShape(window=4, sinks=2),
    "window alone": SinksShape(window=3, sinks=0),
    "longformer": LongformerShape(window=2, global_tokens=2, dilation=(1, 2, 1, 1, 3, 1)),
    "longformer, shared projections": LongformerShape(window=3, global_tokens=1, global_projections=False),
    "longformer without global tokens": LongformerShape(window=1, global_tokens=0),
}


@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(LOOKING_BACK)),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=14),
    before=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    seed=st.integers(0, 99),
)
def test_reading_piece_by_piece_equals_reading_at_once_and_keeps_no_more_than_it_must(name, pieces, before, seed):
    """From ragged prompts padded on the left, in pieces of any size, with rows that change places on the way."""
    shape = LOOKING_BACK[name]
    layer = built(shape, causal=True)
    torch.manual_seed(seed)
    pieces = [max(before) + 1, *pieces]
    total = sum(pieces)
    inputs = torch.randn(2, total, WIDTH, dtype=torch.float64)
    lengths = torch.tensor([total - one for one in before])
    whole, _ = layer(inputs, None, LayerContext(Causal() & Padding(lengths, "left")))
    state, past, order = None, 0, torch.tensor([0, 1])
    for piece in pieces:
        here = past + piece
        real = Padding(here - torch.tensor(before)[order], "left")
        context = LayerContext(Causal() & real if piece > 1 else real, past=past)
        found, state = layer(inputs[order, past:here], state, context)
        for row, sequence in enumerate(order.tolist()):
            begin = max(before[sequence] - past, 0)
            assert_close(found[row, begin:], whole[sequence, past:here][begin:], 1e-12)
        state, order, past = state.select(torch.tensor([1, 0])), order.flip(0), here
        near = state if isinstance(state, BoundedKeys) else state.near
        most = (
            shape.window - 1 + shape.sinks if name in ("sinks", "window alone") else layer.reach + shape.global_tokens
        )
        assert near.held.tokens == min(most, past)


def test_the_state_of_a_long_text_is_as_large_as_that_of_a_short_one():
    for shape in LOOKING_BACK.values():
        layer = built(shape, causal=True)
        sizes = set()
        for tokens in (61, 487):
            _, state = layer(torch.randn(1, tokens, WIDTH, dtype=torch.float64), None, LayerContext(Causal()))
            _, state = layer(torch.randn(1, 1, WIDTH, dtype=torch.float64), state, LayerContext(past=tokens))
            near = state if isinstance(state, BoundedKeys) else state.near
            sizes.add(near.held.keys.untyped_storage().nbytes())
        assert len(sizes) == 1


@pytest.mark.parametrize("tokens", [1, 2, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_texts_shorter_than_the_window_and_one_token_have_gradients(tokens, causal):
    for shape in (LongformerShape(), SinksShape(), BigBirdShape()):
        if shape.name == ("bigbird" if causal else "sinks"):
            continue
        layer = built(shape, causal=causal)
        inputs = torch.randn(2, tokens, WIDTH, dtype=torch.float64, requires_grad=True)
        mask = Causal() if causal else None
        out, _ = layer(inputs, None, LayerContext(mask))
        allowed = table(lambda b, h, q, k: k <= q or not causal, 2, HEADS, tokens, tokens)
        exact = ten_lines(*ordinary(layer, inputs), allowed)
        if shape.name == "longformer":
            expected = ten_lines(*for_globals(layer, inputs), allowed)
            exact = torch.cat((expected[:, :, :1], exact[:, :, 1:]), dim=2)
        assert_close(out, joined(layer, exact), 1e-12)
        [gradient] = torch.autograd.grad(out.square().sum(), inputs)
        assert gradient.isfinite().all()


def test_what_cannot_be_is_refused_where_it_is_built():
    with pytest.raises(ConfigError, match="'bigbird' cannot do causal attention"):
        BigBirdShape().build(slot(causal=True))
    with pytest.raises(ConfigError, match="'sinks' cannot do attention in both directions"):
        SinksShape().build(slot(causal=False))
    with pytest.raises(ConfigError, match=r"dilation = \(1, 2\) does not fit 6 heads"):
        LongformerShape(dilation=(1, 2)).build(slot(causal=False))
    with pytest.raises(ConfigError, match="global_ids and global_before may choose any token"):
        LongformerShape(global_ids=(3,)).build(slot(causal=True))
    with pytest.raises(ConfigError, match="reaches further than"):
        LongformerShape(window=2**20, dilation=2**20).build(slot(causal=False))
    with pytest.raises(ConfigError, match="names token 7 and the vocabulary has 7"):
        TransformerConfig(
            architecture="encoder", vocabulary=7, heads=2, width=8, attention={"name": "longformer", "global_ids": [7]}
        )
    with pytest.raises(ConfigError, match="a window of 4 blocks has no middle"):
        BigBirdShape(window=4)
    with pytest.raises(ConfigError, match="differs between heads and positions add"):
        TransformerConfig(
            vocabulary=7, heads=2, width=8, positions="alibi", attention={"name": "longformer", "dilation": [1, 2]}
        )


def test_tokens_that_see_later_ones_are_refused_where_it_was_built_to_look_back():
    for shape in (SinksShape(), LongformerShape()):
        with pytest.raises(InputError, match="built to look back"):
            built(shape, causal=True)(torch.randn(1, 3, WIDTH, dtype=torch.float64), None, LayerContext())


def test_ids_are_asked_for_where_global_tokens_are_chosen_by_them():
    layer = built(LongformerShape(global_ids=(3,)))
    with pytest.raises(InputError, match="ask for ids"):
        layer(torch.randn(1, 3, WIDTH, dtype=torch.float64), None, LayerContext())


def test_a_watched_longformer_shows_its_global_tokens_by_id():
    config = TransformerConfig(
        vocabulary=11,
        width=8,
        heads=2,
        layers=1,
        architecture="encoder",
        attention={"name": "longformer", "window": 1, "global_tokens": 0, "global_ids": [5]},
    )
    model = Transformer(config).eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([[1, 2, 3, 5, 4, 6, 7], [1, 5, 3]])))
    maps = seen.weights("encoder.0.self", batch=0)
    expected = table(lambda b, h, q, k: abs(q - k) <= 1 or 3 in (q, k), 1, 2, 7, 7)[0]
    assert ((maps > 0) == expected).all()
    assert_close(maps.sum(-1), torch.ones(2, 7))


@pytest.mark.parametrize("shape", [LongformerShape(window=9), SinksShape(window=9), BigBirdShape(block=16)])
def test_the_pattern_of_a_long_unpadded_text_is_made_for_the_first_pass_alone(shape, monkeypatch):
    """Padded and short texts have their own; a first pass without gradients spoils no later one with them."""
    monkeypatch.setattr(block_sparse, "SHORTEST", 32)
    monkeypatch.setattr(block_sparse, "_kept", {})
    causal = shape.name == "sinks"
    layer, mask = built(shape, causal=causal), Causal() if causal else None
    inputs = torch.randn(2, 67, WIDTH, dtype=torch.float64)
    tiles = []
    monkeypatch.setattr(gathered, "live_tiles", lambda *given: tiles.append(given[0]) or live_tiles(*given))

    def read(mask, tokens=67):
        tiles.clear()
        given = inputs[:, :tokens].requires_grad_(not torch.is_inference_mode_enabled())
        out, _ = layer(given, None, LayerContext(mask))
        return out, tiles[0] if tiles else None

    with torch.inference_mode():
        first, _ = read(mask)
    (second, made), (third, again) = read(mask), read(None if mask is None else Causal())
    assert made is again is not None
    third.sum().backward()
    assert_close(second, first.clone(), 1e-12)
    assert_close(third, second, 1e-12)
    padding = Padding(torch.tensor([67, 40]))
    padded, other = read(padding if mask is None else mask & padding)
    assert other is not made
    alone, _ = layer(inputs[1:, :40], None, LayerContext(mask))
    assert_close(padded[1:, :40], alone, 1e-12)
    for tokens in (20, 40):  # other lengths have patterns of their own
        out, _ = read(mask, tokens)
        block_sparse._kept.clear()
        assert_close(out, read(mask, tokens)[0], 1e-12)

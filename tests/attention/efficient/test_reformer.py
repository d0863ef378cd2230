"""Reformer's attention against tokens put into buckets one by one, against exact attention, and as a layer."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrences import real_tokens
from sparse_reference import with_gradients

from regard.attention.efficient.reformer import ReformerShape, as_keys, hashed, lsh_attention
from regard.attention.mask import Causal, Dense, Document, Padding
from regard.attention.mechanism import LayerContext
from regard.attention.slot import Site, Slot
from regard.errors import ConfigError, InputError
from rounding import assert_close

BATCH, HEADS, WIDTH = 2, 3, 5


def drawn(factors: tuple[int, ...], rounds: int, seed: int = 0):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(HEADS, rounds, WIDTH, sum(factor // 2 for factor in factors), generator=draws)


def near(buckets, text, window: int, causal: bool):
    """Which tokens a token reads, by going through the buckets."""
    batch, heads, rounds, tokens = buckets.shape
    allowed = torch.zeros(batch, heads, tokens, tokens, dtype=torch.bool)
    for b, h, r in torch.cartesian_prod(*(torch.arange(size) for size in (batch, heads, rounds))).tolist():
        members: dict[tuple[int, int], list[int]] = {}
        for token in range(tokens):
            if buckets[b, h, r, token] >= 0:
                members.setdefault((int(buckets[b, h, r, token]), int(text[b, token])), []).append(token)
        for those in members.values():
            for at, token in enumerate(those):
                first, last = max(at - window + 1, 0), at if causal else at + window
                allowed[b, h, token, those[first:at] + those[at + 1 : last]] = True
    return allowed


def ten_lines(query, value, allowed, real=None):
    """Softmax over `q_i · q_j / ‖q_j‖` of those allowed; of itself where there is nobody."""
    itself = torch.eye(query.shape[2], dtype=torch.bool) & ~allowed.any(dim=-1, keepdim=True)
    scores = query @ (query / query.norm(dim=-1, keepdim=True)).mT
    read = scores.masked_fill(~(allowed | itself), -torch.inf).softmax(dim=-1) @ value
    return read if real is None else read * real[:, None, :, None]


def shared_query_key(query, value, causal: bool):
    """Exact attention with a key that is the query's direction (§2, "shared-QK")."""
    tokens = query.shape[2]
    allowed = ~torch.eye(tokens, dtype=torch.bool)
    return ten_lines(query, value, (allowed.tril() if causal else allowed).expand(*query.shape[:2], -1, -1))


@settings(max_examples=30)
@given(
    tokens=st.integers(1, 41),
    factors=st.sampled_from([(1,), (2,), (4,), (2, 2), (2, 4, 2)]),
    rounds=st.integers(1, 3),
    window=st.sampled_from([1, 2, 3, 8, 64]),
    causal=st.booleans(),
    padding=st.sampled_from(["none", "right", "left"]),
    texts=st.booleans(),
)
def test_it_equals_the_softmax_over_what_the_buckets_hold(tokens, factors, rounds, window, causal, padding, texts):
    torch.manual_seed(tokens)
    query, value = torch.randn(BATCH, HEADS, tokens, WIDTH), torch.randn(BATCH, HEADS, tokens, 7)
    real = torch.ones(BATCH, tokens, dtype=torch.bool)
    if padding != "none":
        real = real_tokens([tokens, 1 + tokens // 3], tokens, padding)
    begins = torch.arange(tokens).expand(BATCH, -1) % 11 == 0 if texts else None
    buckets = hashed(query, drawn(factors, rounds), factors, real)
    text = torch.zeros(BATCH, tokens) if begins is None else begins.cumsum(dim=1)
    allowed = near(buckets, text, window, causal)

    def actual(query, value):
        return lsh_attention(query, value, buckets, window=window, causal=causal, begins=begins)

    found = with_gradients([query, value], actual)
    exact = with_gradients([query.double(), value.double()], lambda *at: ten_lines(*at, allowed, real))
    for name, one in found.items():
        assert_close(one.double(), exact[name], 1e-5, name)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 19, 150])
def test_with_one_bucket_and_a_window_over_all_it_is_exact_attention_with_shared_queries_and_keys(causal, tokens):
    given = [torch.randn(BATCH, HEADS, tokens, WIDTH), torch.randn(BATCH, HEADS, tokens, 7)]
    buckets = hashed(given[0], drawn((1,), 1), (1,))
    assert (buckets == 0).all()
    found = with_gradients(given, lambda *at: lsh_attention(*at, buckets, window=tokens, causal=causal))
    exact = with_gradients([one.double() for one in given], lambda *at: shared_query_key(*at, causal))
    for name, one in found.items():
        assert_close(one.double(), exact[name], 1e-5, name)


def test_and_so_does_transformers_where_a_text_is_one_chunk():
    from transformers import ReformerConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    sizes = {"hidden_size": 15, "num_attention_heads": HEADS, "attention_head_size": WIDTH}
    for causal in (False, True):
        config = ReformerConfig(is_decoder=causal, lsh_attn_chunk_length=32, num_buckets=4, **sizes)
        peer = LSHSelfAttention(config).eval()
        slot = Slot(15, HEADS, HEADS, WIDTH, bias=False, causal=causal)
        layer = ReformerShape(buckets=(1,), rounds=1, window=32).build(slot).eval()
        with torch.no_grad():
            layer.query.weight.copy_(peer.query_key.weight)
            layer.value.weight.copy_(peer.value.weight)
            layer.output.weight.copy_(torch.eye(15))
        inputs = torch.randn(2, 23, 15)
        expected = peer(inputs, attention_mask=torch.ones(2, 23, dtype=torch.long)).hidden_states
        assert_close(layer(inputs, None, LayerContext(Causal() if causal else None))[0], expected, 2e-5)


def test_a_hash_of_several_digits_is_the_same_as_all_pairs_of_directions():
    """The bucket of factors 4 and 6 is the nearest of 2 × 2 directions and the nearest of 2 × 3, in one number."""
    query, rotations = torch.randn(1, HEADS, 29, WIDTH), drawn((4, 6), 2)
    buckets = hashed(query, rotations, (4, 6))
    for head in range(HEADS):
        for number in range(2):
            table = rotations[head, number].T
            first, second = torch.cat((table[:2], -table[:2])), torch.cat((table[2:], -table[2:]))
            digits = [(query[0, head] @ one.T).argmax(dim=-1) for one in (first, second)]
            assert torch.equal(buckets[0, head, number], 6 * digits[0] + digits[1])
    assert torch.equal(hashed(7 * query, rotations, (4, 6)), buckets)


def test_tokens_that_are_near_share_a_bucket_as_often_as_the_angle_between_them_says():
    """With two buckets: the sign of one projection, the same for both with probability 1 − angle/π."""
    angle = 0.7
    pair = torch.zeros(1, HEADS, 2, WIDTH)
    pair[0, :, 0, 0], pair[0, :, 1, 0], pair[0, :, 1, 1] = 1.0, math.cos(angle), math.sin(angle)
    buckets = hashed(pair, drawn((2,), 4000), (2,))
    same = (buckets[..., 0] == buckets[..., 1]).double().mean()
    assert abs(float(same) - (1 - angle / math.pi)) < 0.02


def test_more_rounds_come_nearer_to_exact_attention():
    query, value = torch.randn(BATCH, HEADS, 200, WIDTH, dtype=torch.float64) * 2, torch.randn(BATCH, HEADS, 200, 7)
    exact, errors = shared_query_key(query, value.double(), False), []
    for rounds in (1, 2, 4, 8, 64):
        buckets = hashed(query, drawn((4, 4), rounds), (4, 4))
        found = lsh_attention(query, value.double(), buckets, window=200)
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1
    assert errors[0] > 0.2


def built(shape: ReformerShape, causal: bool, **more):
    torch.manual_seed(3)
    return shape.build(Slot(15, HEADS, HEADS, WIDTH, causal=causal, site=Site("decoder", 1, "self"), **more)).eval()


SMALL = ReformerShape(buckets=(2, 2), rounds=2, window=3)


@pytest.mark.parametrize("causal", [False, True])
def test_the_dense_map_is_what_the_layer_reads(causal):
    layer = built(SMALL, causal).double()
    inputs = torch.randn(2, 29, 15, dtype=torch.float64)
    mask = Padding(torch.tensor([29, 11]))
    context = LayerContext(mask & Causal() if causal else mask)
    weights = layer.dense_map(inputs, context)
    values = layer.value(inputs).view(2, 29, HEADS, WIDTH).transpose(1, 2)
    read = layer.output((weights @ values).transpose(1, 2).flatten(2))
    assert_close(layer(inputs, None, context)[0], read, 1e-12)
    assert_close(weights[0].sum(dim=-1), torch.ones(HEADS, 29, dtype=torch.float64), 1e-12)
    assert (weights[1, :, :, 11:] == 0).all()
    if causal:
        assert (weights.triu(1) == 0).all()


@settings(max_examples=15)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    before=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    window=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 99),
)
def test_reading_piece_by_piece_equals_reading_at_once(pieces, before, window, seed):
    """From ragged prompts padded on the left, in pieces of any size, with rows that change places on the way."""
    layer = built(ReformerShape(buckets=(2, 2), rounds=2, window=window), causal=True).double()
    torch.manual_seed(seed)
    pieces = [max(before) + 1, *pieces]
    total = sum(pieces)
    inputs = torch.randn(2, total, 15, dtype=torch.float64)
    whole, _ = layer(
        inputs, None, LayerContext(Causal() & Padding(torch.tensor([total - one for one in before]), "left"))
    )
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


def test_a_state_goes_back_to_its_first_tokens_and_many_tokens_join_it_at_once():
    layer = built(SMALL, causal=True).double()
    inputs = torch.randn(1, 200, 15, dtype=torch.float64)
    whole, _ = layer(inputs, None, LayerContext(Causal()))
    _, state = layer(inputs[:, :50], None, LayerContext(Causal()))
    found, _ = layer(inputs[:, 30:], state.trim(30), LayerContext(Causal(), past=30))
    assert_close(found, whole[:, 30:], 1e-12)


@pytest.mark.parametrize("side", ["right", "left"])
def test_neither_padding_nor_neighbours_move_a_token(side):
    for causal in (False, True):
        layer = built(SMALL, causal).double()
        inputs, real = torch.randn(2, 37, 15, dtype=torch.float64), real_tokens([37, 23], 37, side)
        mask = Padding(torch.tensor([37, 23]), side)
        spoilt = torch.where(real[..., None], inputs, 50.0 * inputs)
        found, _ = layer(spoilt, None, LayerContext(mask & Causal() if causal else mask))
        alone, _ = layer(inputs[1:, real[1]], None, LayerContext(Causal() if causal else None))
        assert_close(found[1:, real[1]], alone, 1e-12)


def test_packed_texts_are_read_as_if_each_stood_alone():
    layer, ids = built(SMALL, causal=True).double(), torch.tensor([[0] * 9 + [1] * 1 + [2] * 21])
    inputs = torch.randn(1, 31, 15, dtype=torch.float64)
    together, _ = layer(inputs, None, LayerContext(Causal() & Document(ids)))
    for document in range(3):
        at = ids[0] == document
        alone, _ = layer(inputs[:, at], None, LayerContext(Causal()))
        assert_close(together[:, at], alone, 1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 2, 65, 200])
def test_any_length_and_any_size_has_finite_gradients(causal, dtype, tokens):
    for size in (0.0, 1.0, 1e4):
        layer = built(ReformerShape(), causal).to(dtype)
        inputs = (size * torch.randn(2, tokens, 15)).to(dtype).requires_grad_()
        out, _ = layer(inputs, None, LayerContext(Causal() if causal else None))
        gradients = torch.autograd.grad(out.float().square().sum(), [inputs, *layer.parameters()], allow_unused=True)
        assert out.dtype == dtype
        assert all(one.isfinite().all() for one in (out, *gradients) if one is not None)


def test_dropout_keeps_the_expectation_and_is_off_in_evaluation():
    layer = built(SMALL, causal=False, dropout=0.4)
    inputs = torch.randn(1, 31, 15)
    plain, _ = layer(inputs, None, LayerContext())
    layer.train()
    with torch.no_grad():
        drawn_often = torch.stack([layer(inputs, None, LayerContext())[0] for _ in range(800)])
    assert drawn_often.std(dim=0).max() > 0.05
    assert (drawn_often.mean(dim=0) - plain).abs().max() < 0.1


def test_layers_and_seeds_have_rotations_of_their_own_and_a_loaded_one_the_same():
    layer = built(SMALL, causal=True)
    assert torch.equal(layer.rotations, built(SMALL, causal=True).rotations)
    other = SMALL.build(Slot(15, HEADS, HEADS, WIDTH, causal=True, site=Site("decoder", 2, "self")))
    assert not torch.equal(layer.rotations, other.rotations)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.rotations, other.rotations)
    seeded = ReformerShape(buckets=(2, 2), rounds=2, window=3, seed=1)
    assert not torch.equal(layer.rotations, built(seeded, causal=True).rotations)
    assert layer.rotations.shape == (HEADS, 2, WIDTH, 2)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        ConfigError, match=r"7 buckets are no directions and their opposites; use an even number such as 8"
    ):
        ReformerShape(buckets=(4, 7))
    with pytest.raises(ConfigError, match="0 buckets are no directions"):
        ReformerShape(buckets=(0,))
    with pytest.raises(ConfigError, match=r"512 × 512 buckets are more than 65,536"):
        ReformerShape(buckets=(512, 512))
    with pytest.raises(ConfigError, match="attention 'reformer' cannot do attention to a memory"):
        SMALL.build(Slot(15, HEADS, HEADS, WIDTH, cross=True))
    with pytest.raises(ConfigError, match="1 key/value heads for 3 heads"):
        SMALL.build(Slot(15, HEADS, 1, WIDTH))
    with pytest.raises(InputError, match="Dense cannot mask"):
        built(SMALL, False)(torch.randn(1, 5, 15), None, LayerContext(Dense(torch.eye(5, dtype=torch.bool))))
    with pytest.raises(InputError, match="was built to see a whole text and got a causal mask"):
        built(SMALL, False)(torch.randn(1, 5, 15), None, LayerContext(Causal()))
    with pytest.raises(InputError, match="cannot do without a causal mask"):
        built(SMALL, True)(torch.randn(1, 5, 15), None, LayerContext())


def test_no_tokens_are_refused(unchecked):
    with pytest.raises(InputError, match="was given 0 tokens"):
        built(SMALL, False)(torch.randn(1, 0, 15), None, LayerContext())


def test_keys_have_the_direction_of_queries_and_one_length():
    query = torch.randn(1, 1, 7, WIDTH)
    key = as_keys(query)
    assert_close(key.norm(dim=-1), torch.full((1, 1, 7), WIDTH**0.5))
    assert_close(torch.cosine_similarity(query, key, dim=-1), torch.ones(1, 1, 7))

"""Attention against closed forms, loops and the laws of its parts."""

import math

import pytest
import torch
from calls import BIASES, Sizes, assert_same, outcome, similarity_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import EXAMPLES, trees
from torch import nn

from regard.attention.bias import ALiBi, RelativeBuckets
from regard.attention.cache import KeyValues
from regard.attention.core import attend, weights, which_kernel
from regard.attention.mask import Causal, Dense, Padding
from regard.attention.multihead import MultiHeadAttention
from regard.attention.similarity import SIMILARITIES, Additive, Cosine, Dot, General, ScaledDot
from regard.blocks.config import BlockConfig
from regard.errors import ConfigError, InputError
from regard.inspection.formulas import attended
from rounding import assert_close

every_similarity = pytest.mark.parametrize("name", SIMILARITIES)
every_kernel = pytest.mark.parametrize("kernel", ["bmm", "sdpa", "reference"])  # those that run any mask here


# Weights


@every_similarity
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_weights_are_positive_where_allowed_and_sum_to_one_or_nothing(name, example):
    sizes = Sizes(group=2)
    query, key, _ = sizes.draw()
    mask = example.mask(sizes.scores)
    allowed = mask.dense(sizes.scores, query.device).expand(sizes.scores)
    found = weights(query, key, similarity=similarity_of(name, sizes.head_width), mask=mask, bias=ALiBi(sizes.heads))
    assert torch.equal(found > 0, allowed)
    assert torch.equal(found == 0, ~allowed)
    torch.testing.assert_close(found.sum(-1), allowed.any(-1).float(), atol=1e-6, rtol=0)


def tokens(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)[None, None]


HALF, ROOT3 = 0.5, math.sqrt(3) / 2
BY_HAND = {  # scores are logarithms of small whole numbers, so that the weights are fractions
    "dot": (tokens([1.0, 0.0]), tokens([0.0, 9.0], [math.log(2), 9.0], [math.log(5), 9.0]), [1 / 8, 2 / 8, 5 / 8]),
    "scaled_dot": (
        tokens([2.0, 0.0, 0.0, 0.0]),  # divided by √4
        tokens([0.0] * 4, [math.log(3), 0.0, 7.0, 0.0]),
        [1 / 4, 3 / 4],
    ),
    "cosine": (  # angles of 0, 60 and 90 degrees, whatever the lengths
        tokens([0.0, 3.0]),
        tokens([0.0, 5.0], [ROOT3, HALF], [-8.0, 0.0]),
        [math.e / (math.e + math.sqrt(math.e) + 1), math.sqrt(math.e) / (math.e + math.sqrt(math.e) + 1), None],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_softmax_worked_out_by_hand(name):
    query, key, expected = BY_HAND[name]
    found = weights(query, key, similarity=name).flatten().tolist()
    for one, other in zip(found, expected, strict=True):
        assert other is None or one == pytest.approx(other, abs=1e-12)


@every_similarity
def test_equal_keys_are_weighed_equally(name):
    query, key, _ = Sizes().draw()
    found = weights(query, key[:, :, :1].expand_as(key), similarity=similarity_of(name, 4))
    torch.testing.assert_close(found, torch.full_like(found, 1 / 7), atol=1e-6, rtol=0)


@every_similarity
def test_a_query_alone_with_one_key_gives_it_everything(name):
    query, key, _ = Sizes(keys=1).draw()
    assert torch.equal(weights(query, key, similarity=similarity_of(name, 4)), torch.ones(2, 3, 5, 1))


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "general"])
def test_long_queries_see_one_key_and_short_ones_all_alike(name):
    query, key, _ = Sizes().draw(torch.float64)
    similarity = similarity_of(name, 4).double()
    nearest = similarity.scores(query, key).argmax(-1)
    sharp = weights(query * 1e6, key, similarity=similarity)
    torch.testing.assert_close(sharp, nn.functional.one_hot(nearest, 7).double(), atol=1e-12, rtol=0)
    flat = weights(query * 1e-12, key, similarity=similarity)
    torch.testing.assert_close(flat, torch.full_like(flat, 1 / 7), atol=1e-10, rtol=0)


@pytest.mark.parametrize("head_width", [3, 29, 257])
def test_dot_scores_vary_with_the_head_width_and_scaled_ones_by_one(head_width):
    query, key = torch.randn(11, 2, 131, head_width), torch.randn(11, 2, 127, head_width)
    # 22 × 131 and 22 × 127 independent vectors: the estimate is good to a few per cent
    assert Dot().scores(query, key).var().item() == pytest.approx(head_width, rel=0.15)
    assert ScaledDot().scores(query, key).var().item() == pytest.approx(1.0, rel=0.15)


@every_similarity
@pytest.mark.parametrize("bias", BIASES)
@settings(max_examples=8)
@given(example=trees, rows=st.lists(st.integers(-5, 4), min_size=1, max_size=6))
def test_some_rows_are_those_rows_of_the_whole(name, bias, example, rows):
    torch.manual_seed(0)
    sizes = Sizes(group=2)
    query, key, _ = sizes.draw()
    added, mask = BIASES[bias](sizes), example.mask(sizes.scores)
    similarity = similarity_of(name, sizes.head_width)
    whole = weights(query, key, similarity=similarity, mask=mask, bias=added)
    some = weights(query, key, similarity=similarity, mask=mask, bias=added, rows=torch.tensor(rows))
    assert_close(some, whole[:, :, rows], 1e-6)


# Similarities


def test_cosine_is_dot_on_unit_vectors():
    query, key, _ = Sizes().draw(torch.float64)
    units = query / query.square().sum(-1, keepdim=True).sqrt(), key / key.square().sum(-1, keepdim=True).sqrt()
    torch.testing.assert_close(Cosine().scores(query, key), Dot().scores(*units), atol=1e-12, rtol=0)


def test_general_begins_as_scaled_dot():
    query, key, _ = Sizes().draw()
    assert_close(General(4).scores(query, key), ScaledDot().scores(query, key), 1e-6)


def test_general_by_an_explicit_loop():
    general = similarity_of("general", 3)
    query, key = torch.randn(5, 3), torch.randn(7, 3)
    found = general.scores(query[None, None], key[None, None])[0, 0]
    matrix = general.matrix.tolist()
    for i, q in enumerate(query.tolist()):
        for j, k in enumerate(key.tolist()):
            score = sum(q[a] * matrix[a][b] * k[b] for a in range(3) for b in range(3))
            assert found[i, j].item() == pytest.approx(score, abs=1e-5)


def test_additive_by_an_explicit_loop():
    additive = similarity_of("additive", 3)
    of_query, of_key = additive.of_query.weight.tolist(), additive.of_key.weight.tolist()
    direction = additive.direction.tolist()
    query, key = torch.randn(5, 3), torch.randn(7, 3)
    found = additive.scores(query[None, None], key[None, None])[0, 0]
    for i, q in enumerate(query.tolist()):
        for j, k in enumerate(key.tolist()):
            score = 0.0
            for unit in range(3):
                inside = sum(of_query[unit][a] * q[a] + of_key[unit][a] * k[a] for a in range(3))
                score += direction[unit] * math.tanh(inside)
            assert found[i, j].item() == pytest.approx(score, abs=1e-5)


@every_similarity
def test_a_score_depends_on_its_own_pair_alone(name):
    similarity = similarity_of(name, 4).double()
    query, key, _ = Sizes().draw(torch.float64)
    whole = similarity.scores(query, key)
    for i in range(5):
        for j in range(7):
            pair = similarity.scores(query[:, :, i : i + 1], key[:, :, j : j + 1])[..., 0, 0]
            assert_close(pair, whole[:, :, i, j], 1e-12)


@every_similarity
def test_where_a_similarity_calls_itself_an_inner_product_it_is_one(name):
    similarity = similarity_of(name, 4).double()
    query, key, _ = Sizes().draw(torch.float64)
    dotted = similarity.as_dot(query, key)
    if dotted is None:
        assert name == "additive"
        return
    left, right, scale = dotted
    expected = torch.einsum("bhqd,bhkd->bhqk", left, right) * scale
    assert_close(similarity.scores(query, key), expected, 1e-12)


# Attend


def loops(query, key, value, mask, bias) -> torch.Tensor:
    """Masked scaled-dot attention with grouped heads, number by number in Python's own floats."""
    batch, heads, queries, width = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    q, k, v, added = (one.tolist() for one in (query, key, value, bias))
    out = torch.zeros(batch, heads, queries, value.shape[-1], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                powers = [
                    math.exp(sum(q[b][h][i][d] * k[b][h // group][j][d] for d in range(width)) / math.sqrt(width))
                    * math.exp(added[b][h][i][j])
                    * mask(b, h, i, j)
                    for j in range(keys)
                ]
                for d in range(value.shape[-1]):
                    mixed = sum(power * v[b][h // group][j][d] for j, power in enumerate(powers))
                    out[b, h, i, d] = mixed / sum(powers) if sum(powers) else 0.0
    return out


@every_kernel
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_attention_number_by_number(example, kernel):
    sizes = Sizes(kv_heads=2, group=2, queries=3, keys=5, value_width=3)
    query, key, value = sizes.draw(torch.float64)
    bias = torch.randn(sizes.scores, dtype=torch.float64)
    found = attend(query, key, value, mask=example.mask(sizes.scores), bias=bias, kernel=kernel)
    expected = loops(query, key, value, lambda *at: example.allows(sizes.scores, *at), bias)
    assert_close(found, expected, 1e-12)


@every_similarity
@settings(max_examples=12)
@given(bias=st.sampled_from(list(BIASES)), example=trees, primes=st.tuples(*[st.sampled_from((2, 3, 5))] * 7))
def test_attention_equals_the_formula_of_its_similarity(name, bias, example, primes):
    torch.manual_seed(0)  # so that a case found can be run again
    sizes = Sizes(*primes)
    query, key, value = sizes.draw(torch.float64)
    similarity = similarity_of(name, sizes.head_width).double()
    mask, added = example.mask(sizes.scores), BIASES[bias](sizes)
    found = attend(query, key, value, similarity=similarity, mask=mask, bias=added)
    expected = attended(similarity, query, KeyValues(key, value), mask, added)
    assert_close(found, expected, 1e-9)


@every_similarity
@every_kernel
def test_gradients_are_those_of_finite_differences(name, kernel):
    sizes = Sizes(batch=1, kv_heads=1, group=2, queries=2, keys=3, head_width=2, value_width=1)
    similarity = similarity_of(name, sizes.head_width).double()
    given_tensors = sizes.draw(torch.float64, grad=True)
    if kernel != "reference" and similarity.as_dot(*given_tensors[:2]) is None:
        return  # refused: tests of the kernels
    terms = RelativeBuckets(sizes.heads, buckets=4, max_distance=5).double()
    mask = Causal() & ~Padding(torch.tensor([1]))
    parameters = (*similarity.parameters(), *terms.parameters())

    def function(query, key, value, *_):
        return attend(query, key, value, similarity=similarity, mask=mask, bias=terms, kernel=kernel)

    assert torch.autograd.gradcheck(function, (*given_tensors, *parameters))


@every_similarity
@every_kernel
@pytest.mark.parametrize(("kv_heads", "group"), [(1, 6), (2, 3), (3, 2)])
def test_shared_heads_equal_repeated_ones_forward_and_backward(name, kernel, kv_heads, group):
    sizes = Sizes(kv_heads=kv_heads, group=group)
    query, key, value = sizes.draw()
    similarity = similarity_of(name, sizes.head_width)
    if kernel != "reference" and similarity.as_dot(query, key) is None:
        return  # refused: tests of the kernels
    mask, bias = Dense(torch.rand(sizes.scores) < 0.6), torch.randn(sizes.scores)
    shared = outcome((query, key, value), similarity, mask, bias, kernel)
    repeated = (one.repeat_interleave(group, dim=1) for one in (key, value))
    whole = outcome((query, *repeated), similarity, mask, bias, "reference")
    for one in "kv":  # a shared head's gradient is the sum over those that share it
        whole[one] = whole[one].unflatten(1, (kv_heads, group)).sum(2)
    assert_same(shared, whole)


@every_kernel
@pytest.mark.parametrize("value_width", [1, 2, 13])
def test_values_may_have_a_width_of_their_own(kernel, value_width):
    query, key, value = Sizes(group=2, value_width=value_width).draw()
    found = attend(query, key, value, kernel=kernel)
    assert found.shape == (2, 6, 5, value_width)
    columns = [attend(query, key, value[..., i : i + 1], kernel=kernel) for i in range(value_width)]
    assert_close(found, torch.cat(columns, dim=-1), 1e-6)


@every_kernel
@pytest.mark.parametrize("mask", [None, Causal()], ids=["whole", "causal"])
def test_dropout_changes_a_call_and_keeps_its_expectation(kernel, mask):
    many = 20_011
    query, key, value = (one.expand(many, -1, -1, -1) for one in Sizes(1, 2, 1, 3, 3, 2, 2).draw())
    plain = attend(query, key, value, mask=mask, kernel=kernel)
    dropped = attend(query, key, value, mask=mask, dropout=0.3, kernel=kernel)
    error = dropped.std(0) / math.sqrt(many)  # of the mean of so many independent draws
    assert (dropped.std(0) > 0.01).all()
    assert ((dropped.mean(0) - plain[0]).abs() < 5 * error).all()


# Multi-head attention


def test_multi_head_attention_is_projection_attention_projection():
    module = MultiHeadAttention(12, 6, key_value_heads=2).double()
    inputs, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    bias = torch.randn(2, 6, 5, 7).double()
    found = module(inputs, memory, mask=Causal(), bias=bias)
    heads = []
    for head in range(6):
        own, shared = slice(2 * head, 2 * head + 2), slice(2 * (head // 3), 2 * (head // 3) + 2)
        query = inputs @ module.query.weight[own].T + module.query.bias[own]
        key = memory @ module.key.weight[shared].T + module.key.bias[shared]
        value = memory @ module.value.weight[shared].T + module.value.bias[shared]
        scores = query @ key.mT / math.sqrt(2) + bias[:, head]
        scores = scores.masked_fill(torch.ones(5, 7).triu(3).bool(), -torch.inf)
        heads.append(scores.softmax(-1) @ value)
    expected = torch.cat(heads, dim=-1) @ module.output.weight.T + module.output.bias
    assert_close(found, expected, 1e-12)


# What is refused


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


QUERY, KEY, VALUE = zeros(2, 6, 5, 4), zeros(2, 3, 7, 4), zeros(2, 3, 7, 11)

PAIRS = {
    "width": ((QUERY, zeros(2, 3, 7, 8), VALUE), {}, ("width 4", "width 8")),
    "heads": ((QUERY, zeros(2, 4, 7, 4), zeros(2, 4, 7, 11)), {}, ("4 key/value heads", "6 query heads")),
    "batch": ((QUERY, zeros(1, 3, 7, 4), zeros(1, 3, 7, 11)), {}, ("2 sequences", "keys of 1")),
    "mask": ((QUERY, KEY, VALUE), {"mask": Dense(torch.ones(5, 8).bool())}, ("(5, 8)", "7 keys")),
    "bias heads": ((QUERY, KEY, VALUE), {"bias": ALiBi(8)}, ("8 heads", "fit 6")),
    "bias": ((QUERY, KEY, VALUE), {"bias": zeros(6, 5, 8)}, ("(6, 5, 8)", "(2, 6, 5, 7)")),
    "bias with too many axes": ((QUERY, KEY, VALUE), {"bias": zeros(1, 2, 6, 5, 7)}, ("(1, 2, 6, 5, 7)",)),
}
VALUES = {
    "value keys": ((QUERY, KEY, zeros(2, 3, 8, 11)), {}, ("(2, 3, 8, 11)", "(2, 3, 7, 4)")),
    "value heads": ((QUERY, KEY, zeros(2, 1, 7, 11)), {}, ("(2, 1, 7, 11)", "(2, 3, 7, 4)")),
    "value batch": ((QUERY, KEY, zeros(1, 3, 7, 11)), {}, ("(1, 3, 7, 11)", "(2, 3, 7, 4)")),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("call", [attend, which_kernel])
@pytest.mark.parametrize(("tensors", "options", "words"), (PAIRS | VALUES).values(), ids=PAIRS | VALUES)
def test_tensors_that_do_not_fit_are_refused_with_both_their_sizes(call, tensors, options, words):
    with pytest.raises(InputError) as refusal:
        call(*tensors, **options)
    assert all(word in refusal.value.problem for word in words)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("tensors", "options", "words"), PAIRS.values(), ids=PAIRS)
def test_weights_refuse_the_same(tensors, options, words):
    with pytest.raises(InputError) as refusal:
        weights(*tensors[:2], **options)
    assert all(word in refusal.value.problem for word in words)


@pytest.mark.parametrize(("name", "made"), [("general", General), ("additive", Additive)])
@pytest.mark.parametrize("call", [attend, which_kernel])
def test_a_learnt_similarity_is_not_drawn_anew_by_its_name(call, name, made):
    with pytest.raises(ConfigError, match=rf"{name!r} has parameters.*regard\.{made.__name__}\(4\)"):
        call(QUERY, KEY, VALUE, similarity=name)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: attend(QUERY, KEY, VALUE, similarity="cosin"), ConfigError, ("'cosin'", "did you mean 'cosine'")),
        (lambda: attend(QUERY, KEY, VALUE, kernel="spda"), InputError, ("'spda'", "did you mean 'sdpa'")),
        (lambda: MultiHeadAttention(12, 5), ConfigError, ("width 12", "5 heads", "1, 2, 3, 4, 6, 12")),
        (lambda: MultiHeadAttention(12, 0), ConfigError, ("width 12", "0 heads")),
        (lambda: MultiHeadAttention(12, 6, key_value_heads=4), ConfigError, ("4 key/value", "6 heads", "1, 2, 3, 6")),
        (lambda: MultiHeadAttention(12, 6, similarity="dott"), ConfigError, ("'dott'", "did you mean 'dot'")),
        (lambda: BlockConfig(width=12, heads=5), ConfigError, ("width 12", "5 heads")),
        (lambda: BlockConfig(similarity="additiv"), ConfigError, ("'additiv'", "'additive'")),
    ],
)
def test_unknown_names_and_impossible_heads_are_refused_with_the_remedy(make, error, words):
    with pytest.raises(error) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)


# What is plainly wrong

WRONG = {
    "three axes": lambda q, k, v: attend(q[0], k[0], v[0]),
    "whole numbers": lambda q, k, v: attend(q.long(), k.long(), v.long()),
    "two types": lambda q, k, v: attend(q, k.double(), v),
    "values of another type": lambda q, k, v: attend(q, k, v.double()),
    "a list": lambda q, k, v: attend(q.tolist(), k, v),
    "no queries": lambda q, k, v: attend(q[:, :, :0], k, v),
    "too much dropout": lambda q, k, v: attend(q, k, v, dropout=2.0),
    "dropout that is no number": lambda q, k, v: which_kernel(q, k, v, dropout=float("nan")),
    "a bare tensor for a mask": lambda q, k, v: attend(q, k, v, mask=torch.ones(5, 7, dtype=torch.bool)),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_what_is_plainly_wrong_is_refused_in_a_sentence(call, unchecked):
    with pytest.raises(InputError, match=r"; (give|bring|use|wrap)"):
        call(*Sizes().draw())

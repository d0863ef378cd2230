"""Where tokens stand: each scheme against its paper's formula, number by number."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.bias import ALiBi, RelativeBuckets, alibi_slopes
from regard.attention.core import attend
from regard.attention.mask import Grid
from regard.attention.rotary import Rotary
from regard.embedding.positions import Learnt, Sinusoidal
from regard.errors import ConfigError
from rounding import assert_close

CPU = torch.device("cpu")


# Sinusoidal


def test_sinusoidal_positions_are_the_formula_of_the_paper():
    width, places = 14, [0, 1, 2, 3, 17, 511, 10_007, 1_000_003]
    found = Sinusoidal(width)(torch.tensor([places]))[0]
    for row, place in enumerate(places):
        for pair in range(width // 2):
            angle = place / 10_000 ** (2 * pair / width)
            assert found[row, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-9)
            assert found[row, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-9)


def test_a_shift_is_one_rotation_for_every_position():
    """Why the paper chose them (§3.5): PE(p + k) is a linear function of PE(p), the same for all p."""
    table = Sinusoidal(6)(torch.arange(50)[None])[0]
    shift = torch.linalg.lstsq(table[:20], table[7:27]).solution
    torch.testing.assert_close(table[:43] @ shift, table[7:], atol=1e-9, rtol=0)


def test_learnt_positions_are_looked_up_one_by_one_and_learn_where_they_stand():
    learnt = Learnt(7, 5)
    found = learnt(torch.tensor([[3, 0, 3], [6, 1, 2]]))
    for row, places in enumerate([[3, 0, 3], [6, 1, 2]]):
        for column, place in enumerate(places):
            assert torch.equal(found[row, column], learnt.weight[place])
    found.sum().backward()
    assert learnt.weight.grad[:, 0].tolist() == [1, 1, 1, 2, 0, 0, 1]


# Rotary


def test_rotary_is_multiplication_by_a_complex_number():
    width, places = 10, [0, 1, 5, 31, 10_007]
    heads = torch.randn(2, 3, len(places), width, dtype=torch.float64)
    turned = Rotary(width)(torch.tensor([places]))(heads)
    for column, place in enumerate(places):
        for pair in range(width // 2):
            turn = complex(
                math.cos(place / 10_000 ** (2 * pair / width)), math.sin(place / 10_000 ** (2 * pair / width))
            )
            for row in range(2):
                for head in range(3):
                    before = complex(*heads[row, head, column, [pair, pair + width // 2]].tolist())
                    after = complex(*turned[row, head, column, [pair, pair + width // 2]].tolist())
                    assert abs(after - before * turn) < 1e-10


def score(query: torch.Tensor, key: torch.Tensor, of_query: int, of_key: int) -> float:
    rotary = Rotary(query.shape[0])
    turn = [rotary(torch.tensor([[place]])) for place in (of_query, of_key)]
    return (turn[0](query[None, None, None]) * turn[1](key[None, None, None])).sum().item()


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 3000), st.sampled_from((2, 6, 10, 14)))
def test_the_dot_product_of_turned_vectors_depends_on_their_distance_alone(first, second, apart, width):
    query, key = torch.randn(width, dtype=torch.float64), torch.randn(width, dtype=torch.float64)
    assert score(query, key, first, first + apart) == pytest.approx(score(query, key, second, second + apart), abs=1e-9)


def test_turning_keeps_every_length_and_leaves_position_zero_alone():
    heads = torch.randn(2, 3, 5, 14, dtype=torch.float64)
    turned = Rotary(14)(torch.tensor([[0, 1, 17, 1000, 99_991]]))(heads)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1), atol=1e-12, rtol=0)
    assert torch.equal(turned[:, :, 0], heads[:, :, 0])


def test_sequences_may_stand_at_positions_of_their_own():
    heads = torch.randn(2, 3, 5, 6)
    places = torch.tensor([[0, 1, 2, 3, 4], [9, 8, 7, 3, 1]])
    together = Rotary(6)(places)(heads)
    for row in range(2):
        assert torch.equal(together[row : row + 1], Rotary(6)(places[row : row + 1])(heads[row : row + 1]))


def test_far_positions_keep_their_angle_in_float32():
    heads = torch.randn(1, 1, 1, 6)
    place = torch.tensor([[1_000_003]])
    exact = Rotary(6)(place)(heads.double())
    assert_close(Rotary(6)(place)(heads).double(), exact, 1e-6)


# ALiBi


def slopes_of_the_paper(heads: int) -> list[float]:
    """As the authors' own code has it: a geometric sequence, and for odd counts every other one of the next."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**index for index in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return slopes_of_the_paper(power) + slopes_of_the_paper(2 * power)[0::2][: heads - power]


def test_slopes_of_eight_and_twelve_heads_are_the_published_ones():
    eight = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(8) == pytest.approx(eight, rel=1e-12)
    assert alibi_slopes(12) == pytest.approx([*eight, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rel=1e-12)


@pytest.mark.parametrize("heads", range(1, 40))
def test_slopes_of_any_number_of_heads_are_those_of_the_authors_code(heads):
    assert alibi_slopes(heads) == pytest.approx(slopes_of_the_paper(heads), rel=1e-12)


def test_alibi_is_minus_slope_times_distance():
    found = ALiBi(3).values(Grid.of((2, 3, 5, 7), CPU))
    for head, slope in enumerate(slopes_of_the_paper(3)):
        for query in range(5):
            for key in range(7):
                assert found[0, head, query, key].item() == pytest.approx(-slope * abs(query + 2 - key), abs=1e-12)


# T5's buckets


def bucket(distance: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The documented rule, in whole numbers: half the buckets one distance each, the rest in equal ratios up to the
    max_distance, everything beyond in the last; with both directions, half of all buckets for keys after the query.
    """
    side = 0
    if bidirectional:
        buckets //= 2
        side = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return side + distance
    ratios = buckets - exact
    far = 0  # the largest with distance / exact ≥ (max_distance / exact) ^ (far / ratios)
    while far + 1 < ratios and distance**ratios * exact ** (far + 1) >= max_distance ** (far + 1) * exact**ratios:
        far += 1
    return side + exact + far


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (8, 19), (4, 5), (10, 33), (64, 512)])
def test_buckets_are_those_of_the_documented_rule(buckets, max_distance, bidirectional):
    distances = range(-700, 701)
    bias = RelativeBuckets(3, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    expected = [bucket(distance, buckets, max_distance, bidirectional) for distance in distances]
    assert bias.bucket(torch.tensor(distances)).tolist() == expected
    if bidirectional:
        assert set(expected) == set(range(buckets)) - {buckets // 2}  # no distance is 0 and ahead
    else:
        assert set(expected) == set(range(buckets))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_far_distances_share_the_last_bucket(bidirectional):
    bias = RelativeBuckets(3, buckets=8, max_distance=19, bidirectional=bidirectional)
    assert len(set(bias.bucket(torch.tensor([-19, -20, -1000, -(10**9)])).tolist())) == 1
    assert len(set(bias.bucket(torch.tensor([19, 20, 1000, 10**9])).tolist())) == 1


def test_the_term_of_a_pair_is_that_of_its_bucket_and_head():
    bias = RelativeBuckets(3, buckets=8, max_distance=19)
    found = bias.values(Grid.of((2, 3, 5, 7), CPU))
    assert found.shape == (1, 3, 5, 7)
    for head in range(3):
        for query in range(5):
            for key in range(7):
                term = bias.terms.weight[bucket(key - (query + 2), 8, 19, True), head]
                assert found[0, head, query, key].item() == term.item()


BIASES = {
    "alibi": lambda: ALiBi(3),
    "t5": lambda: RelativeBuckets(3, buckets=8, max_distance=19),
    "t5 of the past": lambda: RelativeBuckets(3, buckets=8, max_distance=19, bidirectional=False),
}


@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES.keys())
def test_a_bias_depends_on_distance_alone_so_a_cached_step_sees_the_last_row(make):
    bias = make()
    whole = bias.values(Grid.of((1, 3, 7, 7), CPU))
    for distance in range(-6, 7):
        diagonal = whole.diagonal(distance, dim1=2, dim2=3)
        assert torch.equal(diagonal, diagonal[..., :1].expand_as(diagonal))
    for queries in range(1, 8):
        assert torch.equal(bias.values(Grid.of((1, 3, queries, 7), CPU)), whole[:, :, 7 - queries :])
    rows = torch.tensor([4, 0])
    assert torch.equal(bias.values(Grid.of((1, 3, 7, 7), CPU, rows)), whole[:, :, rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7), (7, 7), (5, 11), (2, 37), (11, 5), (41, 41)])
@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES.keys())
def test_a_whole_table_holds_the_bits_and_the_gradients_of_its_entries(make, queries, keys, dtype):
    bias, shape = make().to(dtype), (2, 3, queries, keys)
    by_entry, whole = bias.values(Grid.of(shape, CPU)), bias.dense(shape, CPU)
    assert whole.dtype == by_entry.dtype
    assert torch.equal(whole, by_entry)
    upstream = torch.randn(whole.shape, dtype=dtype)
    for terms in bias.parameters() if dtype == torch.float64 else ():
        expected, found = (torch.autograd.grad(one, terms, upstream)[0] for one in (by_entry, whole))
        assert_close(found, expected, 1e-6)


def test_rotary_attention_does_not_change_when_all_positions_move():
    query, key, value = (torch.randn(2, 3, 5, 6, dtype=torch.float64) for _ in range(3))
    outputs = []
    for start in (0, 1, 997):
        rotate = Rotary(6)(torch.arange(start, start + 5)[None])
        outputs.append(attend(rotate(query), rotate(key), value))
    assert_close(outputs[1], outputs[0], 1e-10)
    assert_close(outputs[2], outputs[0], 1e-10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sinusoidal(7), ("width of 7", "even")),
        (lambda: Rotary(7), ("head width of 7", "even")),
        (lambda: RelativeBuckets(3, buckets=2), ("2 relative buckets", "at least 4")),
        (lambda: RelativeBuckets(3, buckets=32, max_distance=32), ("32 relative buckets", "distance 32")),
    ],
)
def test_what_has_no_pairs_or_no_room_is_refused(make, words):
    with pytest.raises(ConfigError) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)

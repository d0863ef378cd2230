"""Where the queries stand is given: any mask, bias and kernel against the ten lines worked out one entry at a time.

A cache with room behind its last token, rows that are ragged and a prompt read in chunks are the cases it is for.
"""

import math
from itertools import product
from unittest.mock import patch

import pytest
import torch
from calls import BIASES, Sizes, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import EXAMPLES, Example, trees
from torch import Tensor

from regard.attention import gathered, kernels
from regard.attention.bias import ALiBi, Bias, RelativeBuckets, alibi_slopes
from regard.attention.core import KERNELS, attend, weights, which_kernel
from regard.attention.decode_step import attend_few
from regard.attention.mask import Causal, Dense, Document, Padding, Window
from regard.attention.mask_algebra import Tiles, structure
from regard.attention.similarity import ScaledDot
from regard.errors import InputError
from rounding import assert_close

HERE = ("gathered", "bmm", "sdpa", "reference", None)
"""The kernels of a CPU, and the one that is chosen; FlexAttention's are in tests/compiled."""

sizes = st.builds(
    Sizes,
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 5),
    keys=st.integers(1, 9),
    head_width=st.just(4),
    value_width=st.just(3),
)


def places(data: st.DataObject, drawn: Sizes) -> Tensor:
    """Anywhere among the keys, in any order, the same in every sequence or each its own."""
    one = st.lists(st.integers(0, drawn.keys - 1), min_size=drawn.queries, max_size=drawn.queries)
    if data.draw(st.booleans()):
        return torch.tensor(data.draw(one))
    return torch.tensor(data.draw(st.lists(one, min_size=drawn.batch, max_size=drawn.batch)))


def table_by_hand(example: Example, drawn: Sizes, positions: Tensor) -> Tensor:
    """Which entries the rule allows. A query at p of m keys is number q of q + m − p that stand at their end."""
    table, keys = torch.empty(drawn.scores, dtype=torch.bool), drawn.keys
    spread = positions.expand(drawn.batch, -1)
    for b, h, q, k in product(*map(range, drawn.scores)):
        ended = (*drawn.scores[:2], q + keys - int(spread[b, q]), keys)
        table[b, h, q, k] = example.allows(ended, b, h, q, k)
    return table


def bias_by_hand(bias: Bias | Tensor | None, drawn: Sizes, positions: Tensor) -> Tensor:
    """What is added to every score, from the distances."""
    if bias is None:
        return torch.zeros(1)
    if isinstance(bias, Tensor):
        return bias
    distance = (torch.arange(drawn.keys) - positions.expand(drawn.batch, -1)[..., None])[:, None]
    if isinstance(bias, ALiBi):
        return -torch.tensor(alibi_slopes(drawn.heads)).view(-1, 1, 1) * distance.abs()
    assert isinstance(bias, RelativeBuckets)
    return bias.terms.weight[bias.bucket(distance[:, 0])].permute(0, 3, 1, 2)


def ten_lines(query: Tensor, key: Tensor, value: Tensor, table: Tensor, added: Tensor) -> Tensor:
    """softmax(q·k/√d + added, where allowed) · v, and zeros where nothing is."""
    group = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(group, dim=1) for one in (key, value))
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1]) + added
    exponentials = (scores - scores.detach().amax(-1, keepdim=True)).exp() * table
    total = exponentials.sum(-1, keepdim=True)
    return exponentials @ value / total.masked_fill(total == 0, 1.0)


def with_gradients(run, given_tensors: list[Tensor]) -> dict[str, Tensor]:
    leaves = [one.detach().clone().requires_grad_() for one in given_tensors]
    out = run(*leaves)
    towards = torch.cos(torch.arange(out.numel()).reshape(out.shape)).to(out)
    return {"out": out.detach()} | dict(zip("qkv", torch.autograd.grad((out * towards).sum(), leaves), strict=True))


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("kernel", HERE)
@settings(max_examples=25)
@given(drawn=sizes, example=trees, data=st.data())
def test_queries_anywhere_get_what_the_ten_lines_give(kernel, bias, drawn, example, data):
    torch.manual_seed(0)
    positions, mask, added = places(data, drawn), example.mask(drawn.scores), BIASES[bias](drawn)
    if kernel == "gathered" and isinstance(added, Tensor):
        return
    if kernel == "gathered" and any(getattr(part, "table", torch.empty(0)).dim() == 4 for part in mask.walk()):
        return
    added = added.double() if added is not None else None
    given_tensors = drawn.draw(torch.float64)
    hand = table_by_hand(example, drawn, positions), bias_by_hand(added, drawn, positions).double()
    options = {"mask": mask, "bias": added, "kernel": kernel, "query_positions": positions}
    with patch.object(gathered, "SIZE", 2):
        own = with_gradients(lambda *three: attend(*three, **options), given_tensors)
    assert_same(own, with_gradients(lambda *three: ten_lines(*three, *hand), given_tensors), 1e-9)


@given(drawn=sizes, example=trees, data=st.data(), size=st.integers(1, 3))
def test_what_is_said_of_a_tile_holds_wherever_its_queries_stand(drawn, example, data, size):
    positions = places(data, drawn)
    tiles = Tiles.of(drawn.scores, size, torch.device("cpu"), positions)
    rows, columns = -(-drawn.queries // size), -(-drawn.keys // size)
    bounds = example.mask(drawn.scores).bounds(tiles)
    some, every = (one.expand(*drawn.scores[:2], rows, columns) for one in bounds)
    table = table_by_hand(example, drawn, positions)
    for row, column in product(range(rows), range(columns)):
        tile = table[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
        assert (some[:, :, row, column] | ~tile.any(3).any(2)).all()
        assert (~every[:, :, row, column] | tile.all(3).all(2)).all()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_at_the_end_of_the_keys_is_what_is_meant_without_positions(example):
    drawn = Sizes()
    mask, (query, key, value) = example.mask(drawn.scores), drawn.draw()
    at_the_end = torch.arange(drawn.keys - drawn.queries, drawn.keys)
    for kernel in ("sdpa", "reference"):
        expected = attend(query, key, value, mask=mask, kernel=kernel)
        assert_close(attend(query, key, value, mask=mask, kernel=kernel, query_positions=at_the_end), expected)


# The cases it is for

LOCAL = {
    "causal": lambda ids, lengths: Causal(),
    "window": lambda ids, lengths: Causal() & Window(3),
    "both ways": lambda ids, lengths: Window(4) & Padding(lengths),
    "documents": lambda ids, lengths: Causal() & Document(ids),
    "without a gap": lambda ids, lengths: (Causal() & Window(2)) | (Causal() & Padding(torch.tensor([1, 1, 1]))),
}


@pytest.mark.parametrize("chunk", [1, 3, 13])
@pytest.mark.parametrize("bias", ["no bias", "alibi", "t5"])
@pytest.mark.parametrize("mask", LOCAL)
@pytest.mark.parametrize("kernel", [None, "sdpa", "bmm", "gathered", "reference"])
@torch.no_grad()
def test_chunks_into_a_cache_with_room_equal_each_text_read_alone(kernel, mask, bias, chunk):
    drawn = Sizes(batch=3, kv_heads=2, group=2, queries=13, keys=13)
    query, key, value = drawn.draw()
    added, lengths = BIASES[bias](drawn), torch.tensor([13, 5, 8])
    ids = torch.arange(17).div(5, rounding_mode="floor").expand(3, -1)
    room_keys, room_values = (torch.full((*one.shape[:2], 17, one.shape[3]), 1e3) for one in (key, value))
    read = torch.zeros(3, dtype=torch.long)
    found = torch.zeros(*query.shape[:3], value.shape[-1])
    while (read < lengths).any():
        at = read[:, None] + torch.arange(chunk)
        inside = at.clamp(max=12)
        for row in range(3):  # what stands behind a row's text is written too, and overwritten before anything sees it
            fresh = at[row] < 17
            room_keys[row, :, at[row, fresh]] = key[row, :, inside[row, fresh]]
            room_values[row, :, at[row, fresh]] = value[row, :, inside[row, fresh]]
        asked = torch.stack([query[row, :, inside[row]] for row in range(3)])
        seen = LOCAL[mask](ids, torch.minimum(at[:, -1] + 1, lengths))
        if mask == "both ways":  # a query sees no further than what has been read
            seen = seen & Causal()
        out = attend(asked, room_keys, room_values, mask=seen, bias=added, kernel=kernel, query_positions=at)
        for row in range(3):
            real = at[row] < lengths[row]
            found[row, :, at[row, real]] = out[row, :, real]
        read = read + chunk
    for row, length in enumerate(lengths.tolist()):
        alone = [one[row : row + 1, :, :length] for one in (query, key, value)]
        whole = LOCAL[mask](ids[row : row + 1, :length], lengths[row : row + 1].clamp(max=length))
        if mask == "without a gap":
            whole = (Causal() & Window(2)) | (Causal() & Padding(torch.tensor([1])))
        expected = attend(*alone, mask=Causal() & whole, bias=added, kernel="reference")
        assert_close(found[row : row + 1, :, :length], expected)


@torch.no_grad()
def test_one_query_in_the_middle_sees_no_later_key():
    query, key, value = Sizes(queries=1).draw()
    expected = attend(query, key[:, :, :3], value[:, :, :3], kernel="reference")
    at = torch.tensor([2])
    assert which_kernel(query, key, value, mask=Causal(), query_positions=at).why.endswith("dense boolean tensor")
    assert_close(attend(query, key, value, mask=Causal(), query_positions=at), expected)
    assert_close(attend_few(query, key, value, ScaledDot(), Causal(), at), expected)
    assert not torch.allclose(attend(query, key, value, mask=Causal()), expected)


@torch.no_grad()
def test_nothing_is_kept_of_positions():
    """One mask, one shape, one tensor of positions that is written in place."""
    query, key, value = Sizes().draw()
    mask, at = Causal() & Window(2), torch.arange(5)
    for kernel in ("gathered", "bmm", "sdpa", "reference", None):
        for shift in (0, 2, 1):
            at.copy_(torch.arange(shift, shift + 5))
            table = mask.dense((2, 3, 7, 7), at.device)[:, :, at]
            expected = attend(query, key, value, mask=Dense(table), kernel="reference")
            assert_close(attend(query, key, value, mask=mask, kernel=kernel, query_positions=at), expected)


@pytest.mark.parametrize("kernel", ["sdpa", "bmm", "gathered", "reference"])
def test_a_query_beyond_the_keys_or_before_them_sees_what_the_rule_says(kernel):
    query, key, value = Sizes(queries=3).draw()
    out = attend(query, key, value, mask=Window(3), kernel=kernel, query_positions=torch.tensor([-9, 3, 90]))
    assert (out[:, :, [0, 2]] == 0).all()
    ids = torch.zeros(2, 7, dtype=torch.long)
    out = attend(query, key, value, mask=Document(ids), kernel=kernel, query_positions=torch.tensor([-1, 3, 7]))
    assert (out[:, :, [0, 2]] == 0).all()
    assert (out[:, :, 1] != 0).any()


def test_rows_asked_for_alone_are_those_of_the_whole():
    query, key, _ = Sizes().draw()
    at = torch.tensor([[4, 1, 6, 0, 2], [3, 3, 0, 6, 5]])
    for bias in (None, ALiBi(3), torch.randn(2, 3, 5, 7)):
        whole = weights(query, key, mask=Causal(), bias=bias, query_positions=at)
        some = weights(query, key, mask=Causal(), bias=bias, rows=torch.tensor([3, -1]), query_positions=at)
        assert_close(some, whole[:, :, [3, 4]])


# The choice of a kernel


def test_a_kernel_is_chosen_once_for_a_kind_of_call(monkeypatch):
    asked = []
    chosen = kernels._choose
    monkeypatch.setattr(kernels, "_choose", lambda *given: asked.append(given) or chosen(*given))
    monkeypatch.setattr(kernels, "_chosen", {})
    query, key, value = Sizes().draw()
    for size in (3, 3, 4):  # a static number is part of the structure, an object is not
        attend(query, key, value, mask=Causal() & Window(size))
    assert len(asked) == 2
    for at in (torch.arange(5), torch.arange(5) + 1):  # whether positions are given is, which is not
        attend(query, key, value, mask=Causal() & Padding(torch.tensor([3, 7])), query_positions=at)
    assert len(asked) == 3
    with torch.no_grad():
        attend(query, key, value, mask=Causal() & Window(3))
    attend(query.double(), key.double(), value.double(), mask=Causal() & Window(3))
    attend(query.requires_grad_(), key, value, mask=Causal() & Window(3))
    assert len(asked) == 6


def test_the_structure_of_a_mask_holds_no_number_of_a_tensor():
    one, other = (Causal() & Padding(torch.tensor(lengths)) for lengths in ([1, 2], [3, 4]))
    assert structure(one) == structure(other)
    assert structure(one).numbers
    assert structure(one) != structure(Causal() & Padding(torch.tensor([1, 2, 3])))
    assert structure(Window(3)) != structure(Window(4))
    assert structure(Causal() | Window(3)) != structure(Causal() & Window(3))
    assert not structure(Causal() & Window(3)).numbers


def test_on_a_cpu_a_mask_with_numbers_keeps_its_own_choice():
    """How much of it is live depends on them, so two of one structure may take different kernels."""
    query, key, value = Sizes(1, 1, 1, 2048, 2048, 4, 4).draw()
    short, long = (Causal() & Document(torch.arange(2048).div(size).long()[None]) for size in (100, 4000))
    for _ in range(2):
        assert which_kernel(query, key, value, mask=short).name == "gathered"
        assert which_kernel(query, key, value, mask=long).name == "sdpa"


def test_no_tensor_is_looked_into_away_from_the_cpu():
    """On the meta device there is nothing to look at: whoever tries fails."""
    query, key, value = (one.to("meta") for one in Sizes().draw())
    lengths, at = torch.empty(2, dtype=torch.long, device="meta"), torch.empty(2, 5, dtype=torch.long, device="meta")
    for mask in (Causal(), Causal() & Padding(lengths), Window(3) | Padding(lengths, "left")):
        for positions in (None, at):
            for bias in (None, ALiBi(3)):
                choice = which_kernel(query, key, value, mask=mask, bias=bias, query_positions=positions)
                assert choice.name in {kernel.name for kernel in KERNELS}
                for kernel in ("bmm", "reference"):
                    out = attend(query, key, value, mask=mask, bias=bias, kernel=kernel, query_positions=positions)
                    assert out.shape == (2, 3, 5, 11)


# What is refused

REFUSED = {
    "no tensor": ([0, 1, 2, 3, 4], "are list"),
    "fractions": (torch.zeros(5), "are torch.float32"),
    "truths": (torch.zeros(5, dtype=torch.bool), "are torch.bool"),
    "other queries": (torch.zeros(4, dtype=torch.long), "shaped (4,) do not say where 5 queries stand"),
    "other sequences": (torch.zeros(3, 5, dtype=torch.long), "shaped (3, 5) do not say where 5 queries stand"),
    "per head": (torch.zeros(2, 3, 5, dtype=torch.long), "shaped (2, 3, 5) do not say"),
    "elsewhere": (torch.zeros(5, dtype=torch.long, device="meta"), "on meta and the queries on cpu"),
}


@pytest.mark.parametrize(("positions", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_positions_that_make_no_sense_are_refused_in_a_sentence(positions, said, unchecked):
    query, key, value = Sizes().draw()
    for call in (attend, which_kernel):
        with pytest.raises(InputError) as caught:
            call(query, key, value, mask=Causal(), query_positions=positions)
        assert said in str(caught.value)
        assert "use a tensor of whole numbers shaped [5] or [2, 5] on cpu" in str(caught.value)
    with pytest.raises(InputError):
        weights(query, key, query_positions=positions)

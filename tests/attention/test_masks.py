"""Masks are boolean algebra on (batch, head, query, key), here worked out one index at a time."""

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.core import attend, weights
from regard.attention.mask import (
    And,
    Block,
    Causal,
    Dense,
    Dilated,
    Document,
    Global,
    Mask,
    MaskFunction,
    Not,
    Or,
    Padding,
    Prefix,
    Window,
)
from regard.attention.mask_algebra import Tiles
from regard.errors import InputError

Shape = tuple[int, int, int, int]  # batch, heads, queries, keys


class Example(NamedTuple):
    """A mask for any shape, and the rule it stands for: may query q of head h in sequence b attend to key k?"""

    name: str
    mask: Callable[[Shape], Mask]
    allows: Callable[[Shape, int, int, int, int], bool]


def length(sequence: int, keys: int) -> int:
    """Of a padded sequence: from nothing at all to every key."""
    return (4 * sequence) % (keys + 1)


def lengths(shape: Shape) -> torch.Tensor:
    return torch.tensor([length(sequence, shape[3]) for sequence in range(shape[0])])


def patch(sequence: int, head: int, query: int, key: int) -> bool:
    """A pattern without symmetry, in which every fourth query sees nothing."""
    row = 2 * sequence + 3 * head + query
    return row % 4 != 2 and (3 * row + 7 * key) % 11 % 3 != 0


def table_of(*sizes: int) -> torch.Tensor:
    return torch.tensor([patch(*at) for at in np.ndindex(*sizes)]).reshape(sizes)


def both(left: Example, right: Example) -> Example:
    return Example(
        f"({left.name} & {right.name})",
        lambda shape: left.mask(shape) & right.mask(shape),
        lambda shape, *at: left.allows(shape, *at) and right.allows(shape, *at),
    )


def either(left: Example, right: Example) -> Example:
    return Example(
        f"({left.name} | {right.name})",
        lambda shape: left.mask(shape) | right.mask(shape),
        lambda shape, *at: left.allows(shape, *at) or right.allows(shape, *at),
    )


def opposite(one: Example) -> Example:
    return Example(f"~{one.name}", lambda shape: ~one.mask(shape), lambda shape, *at: not one.allows(shape, *at))


CAUSAL = Example("causal", lambda shape: Causal(), lambda shape, b, h, q, k: k <= q + shape[3] - shape[2])
RIGHT = Example(
    "right",
    lambda shape: Padding(lengths(shape), side="right"),
    lambda shape, b, h, q, k: k < length(b, shape[3]),
)
LEFT = Example(
    "left",
    lambda shape: Padding(lengths(shape), side="left"),
    lambda shape, b, h, q, k: k >= shape[3] - length(b, shape[3]),
)
DENSE2 = Example(
    "dense2",
    lambda shape: Dense(table_of(1, 1, *shape[2:])[0, 0]),
    lambda shape, b, h, q, k: patch(0, 0, q, k),
)
DENSE3 = Example(
    "dense3",
    lambda shape: Dense(table_of(shape[0], 1, *shape[2:])[:, 0]),
    lambda shape, b, h, q, k: patch(b, 0, q, k),
)
DENSE4 = Example("dense4", lambda shape: Dense(table_of(*shape)), lambda shape, *at: patch(*at))
SHARED_BATCH = Example(
    "shared-batch",
    lambda shape: Dense(table_of(1, *shape[1:])),
    lambda shape, b, h, q, k: patch(0, h, q, k),
)
SHARED_HEADS = Example(
    "shared-heads",
    lambda shape: Dense(table_of(shape[0], 1, *shape[2:])),
    lambda shape, b, h, q, k: patch(b, 0, q, k),
)


def place(shape: Shape, query: int) -> int:
    """Where a query stands among the keys: the queries sit at their end."""
    return query + shape[3] - shape[2]


def document(sequence: int, key: int) -> int:
    """Documents of unequal length, not in the order of their ids."""
    return (5, 5, 2, 2, 2, 9, 9, 9, 9)[(key + sequence) // 2 % 9]


WINDOW = Example("window", lambda shape: Window(3), lambda shape, b, h, q, k: -3 < place(shape, q) - k < 3)
DILATED = Example(
    "dilated",
    lambda shape: Dilated(2, 3),
    lambda shape, b, h, q, k: place(shape, q) - k in (-3, 0, 3),
)
GLOBAL = Example(
    "global",
    lambda shape: Global([0, 4]),
    lambda shape, b, h, q, k: place(shape, q) in (0, 4) or k in (0, 4),
)
BLOCK = Example("block", lambda shape: Block(2), lambda shape, b, h, q, k: place(shape, q) // 2 == k // 2)
DOCUMENT = Example(
    "document",
    lambda shape: Document(torch.tensor([[document(b, k) for k in range(shape[3])] for b in range(shape[0])])),
    lambda shape, b, h, q, k: place(shape, q) >= 0 and document(b, place(shape, q)) == document(b, k),
)
PREFIX = Example(
    "prefix",
    lambda shape: Prefix(lengths(shape)),
    lambda shape, b, h, q, k: k < length(b, shape[3]),
)
FUNCTION = Example(
    "function",
    lambda shape: MaskFunction(lambda b, h, q, k: ((2 * b + 3 * h + q) % 4 != 2) & ((3 * q + 7 * k + h) % 11 % 3 != 0)),
    lambda shape, b, h, q, k: (
        (2 * b + 3 * h + place(shape, q)) % 4 != 2 and (3 * place(shape, q) + 7 * k + h) % 11 % 3 != 0
    ),
)

LEAVES = [CAUSAL, RIGHT, LEFT, DENSE2, DENSE3, DENSE4, SHARED_BATCH, SHARED_HEADS]
LEAVES += [WINDOW, DILATED, GLOBAL, BLOCK, DOCUMENT, PREFIX, FUNCTION]

EXAMPLES = [
    *LEAVES,
    both(CAUSAL, RIGHT),
    both(CAUSAL, LEFT),
    either(CAUSAL, DENSE3),
    opposite(CAUSAL),
    opposite(LEFT),
    opposite(both(CAUSAL, RIGHT)),
    both(CAUSAL, WINDOW),
    both(CAUSAL, DOCUMENT),
    either(CAUSAL, PREFIX),
    either(both(CAUSAL, WINDOW), GLOBAL),
    both(either(WINDOW, GLOBAL), RIGHT),
    either(both(opposite(RIGHT), DENSE4), both(CAUSAL, SHARED_BATCH)),
    both(either(DENSE2, opposite(SHARED_HEADS)), opposite(either(opposite(LEFT), opposite(CAUSAL)))),
]

SHAPES = [
    (2, 3, 5, 5),
    (3, 2, 1, 7),
    (5, 3, 2, 7),
    (2, 2, 7, 3),
]  # whole, one cached step, a few at the end, more than keys

trees = st.recursive(
    st.sampled_from(LEAVES),
    lambda below: st.one_of(st.builds(both, below, below), st.builds(either, below, below), st.builds(opposite, below)),
    max_leaves=6,
)
shapes = st.tuples(*[st.integers(1, 5)] * 3, st.integers(1, 7))


def by_hand(example: Example, shape: Shape) -> np.ndarray:
    """The table, one index at a time."""
    table = np.empty(shape, dtype=bool)
    for at in product(*map(range, shape)):
        table[at] = example.allows(shape, *at)
    return table


def by_mask(mask: Mask, shape: Shape, rows: torch.Tensor | None = None) -> np.ndarray:
    """The table the mask lowers to, shared axes spread out."""
    table = mask.dense(shape, torch.device("cpu"), rows)
    return table.expand(*shape[:2], *table.shape[2:]).numpy()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_mask_allows_what_its_rule_says(example, shape):
    np.testing.assert_array_equal(by_mask(example.mask(shape), shape), by_hand(example, shape))


@given(trees, shapes)
def test_every_composition_is_boolean_algebra_on_its_parts(example, shape):
    np.testing.assert_array_equal(by_mask(example.mask(shape), shape), by_hand(example, shape))


def test_the_queries_sit_at_the_end_of_the_keys():
    whole = by_mask(Causal(), (1, 1, 7, 7))
    for queries in range(1, 8):
        np.testing.assert_array_equal(by_mask(Causal(), (1, 1, queries, 7)), whole[:, :, 7 - queries :])


@given(trees, shapes, st.data())
def test_asking_for_some_query_rows_gives_the_rows_of_the_table(example, shape, data):
    rows = data.draw(st.lists(st.integers(0, shape[2] - 1), min_size=1, max_size=4))
    some = by_mask(example.mask(shape), shape, torch.tensor(rows))
    np.testing.assert_array_equal(some, by_hand(example, shape)[:, :, rows])


@given(trees, shapes, st.data())
def test_selecting_sequences_selects_them_in_the_table(example, shape, data):
    rows = data.draw(st.lists(st.integers(0, shape[0] - 1), min_size=1, max_size=4))
    selected = example.mask(shape).select(torch.tensor(rows))
    np.testing.assert_array_equal(by_mask(selected, (len(rows), *shape[1:])), by_hand(example, shape)[rows])


@given(trees, shapes, st.integers(1, 4))
def test_what_is_said_of_a_tile_holds_of_every_entry_in_it(example, shape, size):
    tiles = Tiles.of(shape, size, torch.device("cpu"))
    rows, columns = -(-shape[2] // size), -(-shape[3] // size)
    some, every = (one.expand(*shape[:2], rows, columns).numpy() for one in example.mask(shape).bounds(tiles))
    table = by_hand(example, shape)
    for row, column in product(range(rows), range(columns)):
        tile = table[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
        assert (some[:, :, row, column] | ~tile.any(axis=(2, 3))).all()
        assert (~every[:, :, row, column] | tile.all(axis=(2, 3))).all()


@pytest.mark.parametrize("example", LEAVES, ids=lambda example: example.name)
def test_a_leaf_knows_empty_and_full_tiles_exactly(example):
    """Not a matter of truth but of speed: tiles that are called live for nothing are computed for nothing."""
    if example in (DILATED, DOCUMENT, FUNCTION):
        return  # careful by design: gaps, documents that come in pieces, and what a function says are not looked for
    shape, size = (2, 2, 12, 12), 4
    tiles = Tiles.of(shape, size, torch.device("cpu"))
    some, every = (one.expand(*shape[:2], 3, 3).numpy() for one in example.mask(shape).bounds(tiles))
    cut = by_hand(example, shape).reshape(2, 2, 3, size, 3, size)
    np.testing.assert_array_equal(some, cut.any(axis=(3, 5)))
    np.testing.assert_array_equal(every, cut.all(axis=(3, 5)))


def test_a_causal_window_holds_exactly_its_size_of_keys():
    counts = by_mask(Causal() & Window(4), (1, 1, 9, 9)).sum(axis=-1)
    assert counts.flatten().tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Window(0),
        lambda: Window(-3),
        lambda: Window(2.5),
        lambda: Block(0),
        lambda: Dilated(1, 0),
        lambda: Global([-1]),
        lambda: Global([1.5]),
        lambda: Padding([3, 5]),
        lambda: Padding(torch.tensor([3.7, 4.2])),
        lambda: Padding(torch.tensor([[3], [4]])),
        lambda: Padding(torch.tensor([-1, 2])),
        lambda: Prefix(torch.tensor([True, False])),
        lambda: Document(torch.tensor([0, 0, 1])),
        lambda: Dense([[True]]),
        lambda: Padding(torch.tensor([3, 99])).fits((2, 1, 6, 6)),
        lambda: Prefix(torch.tensor([7, 1])).fits((2, 1, 6, 6)),
    ],
)
def test_a_mask_that_makes_no_sense_is_refused_in_a_sentence(make, unchecked):
    with pytest.raises(InputError, match=r"; (use|count|make|give)"):
        make()


LAWS: dict[str, Callable[[Mask, Mask, Mask], tuple[Mask, Mask]]] = {
    "De Morgan, and": lambda a, b, c: (~(a & b), ~a | ~b),
    "De Morgan, or": lambda a, b, c: (~(a | b), ~a & ~b),
    "double negation": lambda a, b, c: (~~a, a),
    "and commutes": lambda a, b, c: (a & b, b & a),
    "or commutes": lambda a, b, c: (a | b, b | a),
    "and associates": lambda a, b, c: ((a & b) & c, a & (b & c)),
    "or associates": lambda a, b, c: ((a | b) | c, a | (b | c)),
    "and distributes": lambda a, b, c: (a & (b | c), (a & b) | (a & c)),
    "or distributes": lambda a, b, c: (a | (b & c), (a | b) & (a | c)),
    "absorption": lambda a, b, c: (a & (a | b), a),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@given(trees, trees, trees, shapes)
def test_the_laws_of_boolean_algebra_hold(law, first, second, third, shape):
    left, right = law(first.mask(shape), second.mask(shape), third.mask(shape))
    np.testing.assert_array_equal(by_mask(left, shape), by_mask(right, shape))


def test_what_does_not_depend_on_sequence_or_head_is_held_once():
    assert Causal().dense((5, 3, 7, 7), torch.device("cpu")).shape == (1, 1, 7, 7)
    assert (Causal() & Padding(torch.tensor([2, 7]))).dense((2, 3, 7, 7), torch.device("cpu")).shape == (2, 1, 7, 7)


# What is refused

MISFITS: dict[str, tuple[Mask, Shape, tuple[str, ...]]] = {
    "lengths": (Padding(torch.tensor([2, 3, 1])), (2, 3, 5, 7), ("3 lengths", "batch of 2")),
    "queries": (Dense(table_of(1, 1, 4, 7)[0, 0]), (2, 3, 5, 7), ("(4, 7)", "5 queries")),
    "keys": (Dense(table_of(1, 1, 5, 6)[0, 0]), (2, 3, 5, 7), ("(5, 6)", "7 keys")),
    "batch": (Dense(table_of(3, 1, 5, 7)[:, 0]), (2, 3, 5, 7), ("(3, 5, 7)", "batch of 2")),
    "heads": (Dense(table_of(2, 4, 5, 7)), (2, 3, 5, 7), ("(2, 4, 5, 7)", "3 heads")),
}


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: ~m, lambda m: Causal() & m, lambda m: (m | Causal()) & ~m])
@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
def test_a_mask_made_for_another_shape_is_refused_wherever_it_stands(misfit, wrap):
    mask, shape, words = misfit
    with pytest.raises(InputError) as refusal:
        wrap(mask).dense(shape, torch.device("cpu"))
    assert all(word in refusal.value.problem for word in words)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dense(torch.zeros(5, 7)), ("float32", "mask == 0")),
        (lambda: Dense(torch.ones(7, dtype=torch.bool)), ("2 to 4 axes", "with 1")),
        (lambda: Dense(torch.ones(1, 1, 1, 5, 7, dtype=torch.bool)), ("2 to 4 axes", "with 5")),
        (lambda: Padding(torch.tensor([3]), side="top"), ("'top'", "'left' or 'right'")),
    ],
)
def test_what_is_no_mask_is_refused_when_it_is_made(make, words):
    with pytest.raises(InputError) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)


@pytest.mark.parametrize(
    "written",
    [lambda: Causal() and Window(3), lambda: Causal() or Window(3), lambda: not Causal(), lambda: bool(~Causal())],
)
def test_a_mask_has_no_truth_value_that_could_swallow_a_part(written):
    with pytest.raises(InputError, match=r"combine masks with &, \| and ~"):
        written()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Causal() & True, ("not bool", "regard.Causal()")),
        (lambda: True | Causal(), ("not bool", "regard.Causal()")),
        (lambda: Causal() & None, ("not NoneType",)),
        (lambda: Causal() | torch.ones(5, 5, dtype=torch.bool), ("a tensor", "regard.Dense(mask)")),
        (lambda: MaskFunction(Causal()), ("not Causal", "lambda batch, head, query, key")),
        (lambda: by_mask(MaskFunction(lambda b, h, q, k: q - k), (2, 3, 5, 7)), ("torch.int64", "boolean tensor")),
        (lambda: by_mask(MaskFunction(lambda b, h, q, k: True), (2, 3, 5, 7)), ("gave bool", "boolean tensor")),
        (
            lambda: by_mask(MaskFunction(lambda b, h, q, k: torch.ones(5, 6, dtype=torch.bool)), (2, 3, 5, 7)),
            ("(1, 1, 5, 6)", "(2, 3, 5, 7)"),
        ),
    ],
)
def test_what_cannot_be_part_of_a_mask_is_refused_at_once(make, words):
    with pytest.raises(InputError) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)


@pytest.mark.parametrize(
    "join", [lambda mask, rule: mask & rule, lambda mask, rule: rule & mask], ids=["right", "left"]
)
def test_a_function_stands_for_a_mask_wherever_one_does(join):
    def even(batch, head, query, key):
        return (query - key) % 2 == 0

    shape = (2, 3, 5, 7)
    np.testing.assert_array_equal(by_mask(join(Causal(), even), shape), by_mask(Causal() & MaskFunction(even), shape))
    np.testing.assert_array_equal(by_mask(Causal() | even, shape), by_mask(even | Causal(), shape))
    query, key, value = (torch.randn(2, 3, tokens, 4) for tokens in (5, 7, 7))
    found = attend(query, key, value, mask=even)
    scores = (query @ key.transpose(-2, -1)) / 2
    table = torch.tensor([[(q + 2 - k) % 2 == 0 for k in range(7)] for q in range(5)])
    expected = scores.masked_fill(~table, -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(weights(query, key, mask=even) @ value, expected, atol=1e-6, rtol=1e-6)


# Masks are values


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_mask_cannot_be_changed(example):
    for part in example.mask((2, 3, 5, 7)).walk():
        for name in (*vars(part), "something"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, name, None)


def test_combining_and_selecting_leave_the_parts_as_they_were():
    shape = (2, 3, 5, 7)
    padding, dense = RIGHT.mask(shape), DENSE4.mask(shape)
    before = padding.lengths.clone(), dense.table.clone()
    ((padding & dense) | ~padding).select(torch.tensor([1, 0, 1]))
    assert torch.equal(padding.lengths, before[0])
    assert torch.equal(dense.table, before[1])


def test_an_expression_can_be_walked_from_the_whole_to_its_leaves():
    causal, padding = Causal(), Padding(torch.tensor([3]))
    kinds = [type(part) for part in ((causal & ~padding) | causal).walk()]
    assert kinds == [Or, And, Causal, Not, Padding, Causal]

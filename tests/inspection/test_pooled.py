"""A pooled window of a map is the largest weight of each block of the whole map, however many rows are held at once."""

import numpy as np
import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection import pooled
from regard.inspection.capture import watch_module
from regard.inspection.pooled import pool, pooled_map
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

LAYER, TOKENS = "decoder.1.self", 23


@pytest.fixture(scope="module")
def seen():
    torch.manual_seed(4)
    config = TransformerConfig(architecture="decoder", vocabulary=11, width=12, heads=3, layers=2)
    network = Transformer(config).eval()
    ids = torch.randint(11, (TOKENS,)).tolist()
    with torch.no_grad(), watch_module(network) as seen:
        network(Inputs(Padded.of([ids])))
    return seen


def blocks(weights: np.ndarray, rows, columns, cells: int) -> np.ndarray:
    """By loops over every block."""
    sides = []
    for first, last in (rows, columns):
        count = min(last - first, cells)
        starts = [first + at * (last - first) // count for at in range(count)]
        sides.append([*zip(starts, [*starts[1:], last], strict=True)])
    return np.array([[weights[a:b, c:d].max() for c, d in sides[1]] for a, b in sides[0]])


@pytest.mark.parametrize(
    ("rows", "columns", "cells"), [((0, 23), (0, 23), 5), ((3, 17), (2, 9), 7), ((4, 9), (0, 3), 50)]
)
@pytest.mark.parametrize("together", [1, 2**22])
def test_every_cell_is_the_largest_weight_under_it(seen, rows, columns, cells, together, monkeypatch):
    monkeypatch.setattr(pooled, "TOGETHER", together)
    whole = seen.weights(LAYER).numpy()
    found = pooled_map(seen, LAYER, rows, columns, cells)
    for head in range(3):
        expected = blocks(whole[head], rows, columns, cells)
        np.testing.assert_allclose(found.cells[head], expected, atol=1e-6)
        np.testing.assert_array_equal(pool(whole[head], rows, columns, cells), expected)
    assert found.rows_read == found.rows == rows[1] - rows[0]


def test_of_a_text_that_is_too_long_some_rows_of_every_cell_are_read_and_the_record_says_so(seen):
    found = pooled_map(seen, LAYER, (0, TOKENS), (0, TOKENS), 5, most=3 * TOKENS * 10)
    assert (found.rows_read, found.rows) == (10, TOKENS)
    starts = [at * TOKENS // 5 for at in range(5)]
    ends = [*starts[1:], TOKENS]
    read = [(start, start + (end - start) // 2) for start, end in zip(starts, ends, strict=True)]
    whole = seen.weights(LAYER).numpy()
    for cell, rows in enumerate(read):
        expected = [whole[:, rows, a:b].max(axis=(1, 2)) for a, b in zip(starts, ends, strict=True)]
        np.testing.assert_allclose(found.cells[:, cell], np.stack(expected, axis=1), atol=1e-6)


@pytest.mark.parametrize("rows", [(0, 24), (-1, 3), (5, 5)])
def test_a_window_that_is_not_there_is_refused(seen, rows):
    with pytest.raises(InputError, match="up to 23"):
        pooled_map(seen, LAYER, rows, (0, 23), 5)

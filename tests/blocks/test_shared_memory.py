"""Rows that read the same memory: its keys are there once, and every row reads what it would from keys of its own."""

import pytest
import torch

import regard
from regard.blocks.shared_memory import SharedMemory
from rounding import assert_close

SOURCES = [[5, 3, 9, 2, 7], [4, 4], [8, 1, 6]]


def drawn(**changes):
    torch.manual_seed(0)
    shape = {"vocabulary": 11, "width": 12, "heads": 3, "layers": 2, "architecture": "encoder_decoder", **changes}
    return regard.TransformerConfig(**shape).build().double().eval()


def inputs(rows):
    return regard.Inputs(regard.Padded.of([[1]] * len(rows)), regard.Padded.of([SOURCES[row] for row in rows]))


@pytest.mark.parametrize(
    "rows", [[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2], [2, 0, 0, 2, 1], [1, 1], [2, 2, 0], [0, 1, 2], [1, 2]], ids=str
)
@pytest.mark.parametrize(
    "changes",
    [{}, {"key_value_heads": 1}, {"similarity": "additive"}, {"residual": "reversible", "norm_placement": "pre"}],
    ids=str,
)
@torch.no_grad()
def test_a_row_reads_what_it_reads_from_a_memory_of_its_own(rows, changes):
    model = drawn(**changes)
    shared, own = model.start(inputs([0, 1, 2])).select(torch.tensor(rows)), model.start(inputs(rows))
    steps = torch.arange(len(rows)) + 2
    for ids in (steps, steps % 5):
        found, shared = model.step(ids, shared)
        expected, own = model.step(ids, own)
        assert_close(found, expected, 1e-12)
    again = torch.tensor([len(rows) - 1, 0, 0])
    found, _ = model.extend(torch.tensor([[1, 2], [3, 4], [5, 6]]), shared.select(again))
    expected, _ = model.extend(torch.tensor([[1, 2], [3, 4], [5, 6]]), own.select(again))
    assert_close(found, expected, 1e-12)


def test_beams_do_not_repeat_the_keys_and_a_text_that_leaves_takes_its_own():
    state = drawn().start(inputs([0, 1, 2]))
    keys = state.cache.memory[0].keys
    beams = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    assert beams.cache.memory[0].keys is keys
    assert beams.select(torch.tensor([1, 1, 2, 3, 5, 4])).cache.memory[0].keys is keys
    left = beams.select(torch.tensor([0, 1, 4, 5]))
    assert torch.equal(left.cache.memory[0].keys, keys[[0, 2]])
    assert left.memory_mask.lengths.tolist() == [5, 3]


@torch.no_grad()
def test_who_watches_sees_a_row_for_every_beam():
    model, source = drawn(), inputs([0, 1])
    with regard.watch(model) as seen:
        regard.generate(model, source, regard.Beam(3), regard.Stop(0, 4))
    assert seen.weights("decoder.1.cross", 0, batch=1).shape[1] == 2
    sums = seen.weights("decoder.1.cross", 0, batch=0).sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_folding_is_undone():
    stream = torch.arange(30.0).view(5, 2, 3)
    for source in ([0, 0, 1, 2, 2], [2, 0, 1, 0, 0]):
        shared = SharedMemory.of(torch.tensor(source), 3)
        assert shared.fold(stream).shape == (3, 2 * shared.size, 3)
        assert torch.equal(shared.unfold(shared.fold(stream)), stream)
    assert SharedMemory.of(torch.arange(5), 5) is None

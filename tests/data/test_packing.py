"""Packing: nothing lost, nothing overfull, and the rows are the examples laid end to end."""

from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import stream
from regard.data.batching import IGNORED, Batch
from regard.data.corpus import Pair, corpus
from regard.data.objectives import Continuation, SourceToTarget
from regard.data.packing import Packed, first_fit_decreasing
from regard.data.sources import PairList
from regard.data.stream import Batching, BatchStream, ByLength, Position
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a"], 260)
CONTINUATION = Continuation(TOKENIZER)
pairs = st.lists(st.builds(Pair, st.text("abc", max_size=7), st.text("xyz", min_size=1, max_size=5)), min_size=1)


def first_fit_by_hand(costs: list[int], room: int) -> list[list[int]]:
    bins: list[list[int]] = []
    for index in sorted(range(len(costs)), key=lambda one: (-costs[one], one)):
        for one in bins:
            if sum(costs[other] for other in one) + costs[index] <= room:
                one.append(index)
                break
        else:
            bins.append([index])
    return bins


@given(costs=st.lists(st.integers(1, 23), min_size=1, max_size=60), room=st.integers(23, 47))
def test_the_largest_first_each_where_it_first_fits(costs, room):
    bins = first_fit_decreasing(costs, room)
    assert bins == first_fit_by_hand(costs, room)
    assert sorted(index for one in bins for index in one) == list(range(len(costs)))
    assert all(sum(costs[index] for index in one) <= room for one in bins)


def documents(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """The ids and targets of each document of a packed batch, by their numbers alone."""
    tokens = batch.inputs.tokens
    assert tokens.documents is not None
    found = []
    for ids, targets, numbers in zip(tokens.ids, batch.targets, tokens.documents, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            here = numbers == number
            found.append((ids[here].tolist(), targets[here].tolist()))
    return found


@given(pairs=pairs, tokens=st.integers(20, 61))
def test_every_example_is_in_one_document_with_its_targets_and_nothing_else_is_there(pairs, tokens):
    examples = CONTINUATION.encode(pairs)
    batches = [Packed().batch(rows, CONTINUATION) for rows in Packed().cut(examples, CONTINUATION, tokens)]
    found = [document for batch in batches for document in documents(batch)]
    alone = [CONTINUATION.batch([example]) for example in examples]
    wanted = [(batch.inputs.tokens.ids[0].tolist(), batch.targets[0].tolist()) for batch in alone]
    assert Counter(map(str, found)) == Counter(map(str, wanted))
    for batch in batches:
        padded = batch.inputs.tokens
        assert padded.ids.numel() <= tokens
        assert torch.equal(padded.real, padded.documents != 0)
        assert (batch.targets[~padded.real] == IGNORED).all()
        assert padded.ragged == bool((~padded.real).any())
    assert sum(batch.count for batch in batches) == sum(batch.count for batch in alone)


def test_a_document_is_one_piece_and_documents_count_from_one():
    examples = CONTINUATION.encode([Pair("x" * (index % 7), "y") for index in range(40)])
    for rows in Packed().cut(examples, CONTINUATION, 64):
        for numbers in Packed().batch(rows, CONTINUATION).inputs.tokens.documents.tolist():
            real = [number for number in numbers if number]
            assert real == sorted(real)
            assert set(real) == set(range(1, max(real) + 1))
            assert numbers == real + [0] * (len(numbers) - len(real))


def test_packing_fills_what_padding_would():
    """Of lengths that differ much, rows are nearly full, where one example in a row leaves most of it empty."""
    mixed = CONTINUATION.encode([Pair("x" * (index * index % 61), "y") for index in range(200)])
    batches = [Packed().batch(rows, CONTINUATION) for rows in Packed().cut(mixed, CONTINUATION, 640)]
    places = sum(batch.inputs.tokens.ids.numel() for batch in batches)
    real = sum(int(batch.inputs.tokens.lengths.sum()) for batch in batches)
    assert real == sum(map(CONTINUATION.cost, mixed))
    assert real / places > 0.95


@pytest.mark.parametrize("source", ["endless", "finite"])
@pytest.mark.parametrize("batching", [Packed(), ByLength()], ids=lambda one: type(one).__name__)
def test_a_stream_of_any_batching_can_start_anywhere(source, batching, monkeypatch):
    monkeypatch.setattr(stream, "POOL", 16)
    finite = PairList([Pair("x" * (7 * index % 11), "y" * (index % 5 + 1)) for index in range(37)])
    data = corpus("copy", {"longest": 6, "held_out": 3}) if source == "endless" else finite
    batches = BatchStream(data, CONTINUATION, 64, 3, batching)
    assert isinstance(batching, Batching)

    def taken(count: int, start: Position) -> list[tuple[object, ...]]:
        return [
            (batch.inputs.tokens.ids.tolist(), batch.targets.tolist(), after)
            for batch, after in islice(batches.start(start), count)
        ]

    whole = taken(17, Position())
    for place in (0, 5, 12):
        assert taken(16 - place, whole[place][-1]) == whole[place + 1 :]


def test_what_cannot_be_packed_is_refused():
    objective = SourceToTarget(TOKENIZER)
    examples = objective.encode([Pair("a", "b")])
    with pytest.raises(ConfigError, match="an encoder–decoder reads one source for each row; use architecture"):
        Packed().batch([examples], objective)
    with pytest.raises(ConfigError, match="fills 34 tokens and a batch holds 33: it begins 'xxxx"):
        Packed().cut(CONTINUATION.encode([Pair("x" * 32, "y")]), CONTINUATION, 33)


def test_another_device_keeps_the_documents():
    batch = Packed().batch([CONTINUATION.encode([Pair("a", "b"), Pair("c", "d")])], CONTINUATION)
    moved = batch.to("meta").inputs.tokens
    assert moved.documents is not None
    assert moved.documents.device == moved.ids.device == torch.device("meta")

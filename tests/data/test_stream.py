"""The stream of batches: it can start anywhere, loses nothing, repeats nothing, and keeps to its size."""

from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import stream
from regard.data.batching import Batch
from regard.data.corpus import Corpus, Pair, corpus
from regard.data.objectives import Continuation, Objective, SourceToTarget
from regard.data.sources import PairList
from regard.data.stream import Batches, BatchStream, Position, by_length
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a"], 260)
KINDS = (SourceToTarget(TOKENIZER), Continuation(TOKENIZER))
objectives = pytest.mark.parametrize("objective", KINDS, ids=lambda kind: type(kind).__name__)
POOL = 16


@pytest.fixture(autouse=True)
def _small_pools(monkeypatch):
    monkeypatch.setattr(stream, "POOL", POOL)


def pairs(count: int) -> PairList:
    """So many different pairs, of many lengths; the first five letters of a source are its number."""
    return PairList([Pair(f"{index:05}" + "x" * (7 * index % 11), "y" * (index % 5 + 1)) for index in range(count)])


CORPORA: dict[str, Corpus] = {
    "endless": corpus("copy", {"longest": 6, "held_out": 3}),
    "longer than a pool": pairs(37),
    "two pools": pairs(2 * POOL),
    "shorter than a pool": pairs(5),
    "one example": pairs(1),
}
corpora = pytest.mark.parametrize("name", CORPORA)


def rows(batch: Batch) -> list[tuple[list[int], ...]]:
    """A batch as plain lists, to compare."""
    inputs = batch.inputs
    source = inputs.source.rows() if inputs.source is not None else inputs.tokens.rows()
    return list(zip(source, inputs.tokens.rows(), batch.targets.tolist(), strict=True))


def taken(batches: Batches, count: int, start: Position | None = None) -> list[tuple[list[object], Position]]:
    return [(rows(batch), after) for batch, after in islice(batches.start(start or Position()), count)]


@corpora
@objectives
def test_starting_at_a_position_gives_what_followed_it_the_first_time(name, objective):
    batches = BatchStream(CORPORA[name], objective, tokens=64, seed=3)
    whole = taken(batches, 23)
    for place in range(len(whole) - 1):
        _, after = whole[place]
        again = BatchStream(CORPORA[name], objective, tokens=64, seed=3)
        assert taken(again, len(whole) - place - 1, after) == whole[place + 1 :]


@corpora
def test_a_stream_is_a_function_of_its_seed(name):
    one, same, other = (taken(BatchStream(CORPORA[name], KINDS[0], 64, seed), 17) for seed in (3, 3, 5))
    assert one == same
    assert name == "one example" or one != other


@objectives
@pytest.mark.parametrize("name", [name for name in CORPORA if name != "endless"])
def test_every_example_is_in_each_epoch_exactly_once(name, objective):
    """Epochs follow one another: before any example comes again, all others have come."""
    finite = CORPORA[name]
    size, epochs = finite.size("train"), 3
    seen: list[str] = []
    for batch, _ in BatchStream(finite, objective, tokens=64).start(Position()):
        source = batch.inputs.source or batch.inputs.tokens
        seen += [TOKENIZER.decode(row)[:5] for row in source.rows()]
        if len(seen) >= size * epochs:
            break
    assert len(seen) == size * epochs
    for epoch in range(epochs):
        assert Counter(seen[epoch * size : (epoch + 1) * size]) == Counter(f"{index:05}" for index in range(size))
    assert size < 3 or seen[:size] != seen[size : 2 * size], "the order is new every epoch"


def test_an_endless_corpus_is_taken_in_order_pool_by_pool():
    endless = CORPORA["endless"]
    read: list[str] = []
    for batch, after in BatchStream(endless, KINDS[0], tokens=64).start(Position()):
        read += [TOKENIZER.decode(row) for row in batch.inputs.source.rows()]
        if after == Position(2):
            break
    wanted = [endless.example("train", index).source for index in range(2 * POOL)]
    assert Counter(read[:POOL]) == Counter(wanted[:POOL])
    assert Counter(read[POOL:]) == Counter(wanted[POOL:])


@corpora
@objectives
@pytest.mark.parametrize("tokens", [31, 64, 1009])
def test_a_batch_never_holds_more_than_its_tokens(name, objective, tokens):
    for batch, _ in islice(BatchStream(CORPORA[name], objective, tokens).start(Position()), 29):
        assert batch.inputs.tokens.ids.numel() <= tokens
        assert batch.inputs.source is None or batch.inputs.source.ids.numel() <= tokens


def filled(objective: Objective, examples: list[Pair], tokens: int) -> list[list[int]]:
    return [
        [objective.cost(one) for one in batch] for batch in by_length(objective.encode(examples), objective, tokens)
    ]


@given(lengths=st.lists(st.integers(1, 19), min_size=1, max_size=40), tokens=st.integers(20, 61))
def test_batches_by_length_lose_nothing_are_sorted_and_as_full_as_they_can_be(lengths, tokens):
    costs = filled(KINDS[0], [Pair("x" * length, "y") for length in lengths], tokens)
    assert [cost for batch in costs for cost in batch] == sorted(length + 1 for length in lengths)
    assert all(len(batch) * max(batch) <= tokens for batch in costs)
    for batch, following in pairwise(costs):
        assert (len(batch) + 1) * following[0] > tokens


def test_examples_of_one_length_keep_their_order():
    examples = KINDS[0].encode([Pair(letter, letter) for letter in "hgfedcba"])
    assert [one for batch in by_length(examples, KINDS[0], 7) for one in batch] == examples


@objectives
def test_an_example_that_no_batch_can_hold_is_refused_with_both_numbers(objective):
    long = PairList([Pair("x" * 30, "y"), Pair("x", "y")])
    cost = objective.cost(objective.encode([long.train[0]])[0])
    assert taken(BatchStream(long, objective, tokens=cost), 1)
    with pytest.raises(
        ConfigError,
        match=rf"fills {cost} tokens and a batch holds {cost - 1}: it begins 'x+'; raise training\.batch_tokens",
    ):
        taken(BatchStream(long, objective, tokens=cost - 1), 1)

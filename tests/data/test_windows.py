"""Windows of a stream of texts: each token once, never across texts, the same again from any place."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batching import IGNORED, Batch
from regard.data.stream import Batches, Position
from regard.data.windows import NextToken, TokenStream, Windows, in_order, overlapping
from regard.errors import ConfigError
from regard.text.characters import CharacterTokenizer

TOKENIZER = CharacterTokenizer.train(["abcdefghijklmnopqrstuvwxyz"], 99)
ONE = ["the quick brown fox jumps over the lazy dog".replace(" ", "")]
MANY = ["abc", "d", "efghij", "klm", "nopqrstuv", "wx", "yz"] * 3
texts = st.lists(st.text("abcdefghij", min_size=1, max_size=9), min_size=1, max_size=12)


def stream(texts: list[str], *, begin: bool = True, end: bool = True) -> TokenStream:
    return TokenStream.of(texts, TOKENIZER, begin=begin, end=end)


def pairs(batch: Batch) -> list[tuple[int, int]]:
    """What is predicted after what, where something is."""
    kept = batch.targets != IGNORED
    return list(zip(batch.inputs.tokens.ids[kept].tolist(), batch.targets[kept].tolist(), strict=True))


def same(one: Batch, other: Batch) -> bool:
    documents = one.inputs.tokens.documents, other.inputs.tokens.documents
    equal = documents[0] is None if documents[1] is None else torch.equal(documents[0], documents[1])
    return (
        equal
        and torch.equal(one.inputs.tokens.ids, other.inputs.tokens.ids)
        and torch.equal(one.targets, other.targets)
    )


@given(texts=texts, begin=st.booleans(), end=st.booleans())
def test_a_stream_is_the_texts_with_their_marks_end_to_end(texts, begin, end):
    found = stream(texts, begin=begin, end=end)
    before, after = [TOKENIZER.bos_id] if begin else [], [TOKENIZER.eos_id] if end else []
    rows = [[*before, *TOKENIZER.encode(text), *after] for text in texts]
    assert found.ids.tolist() == [token for row in rows for token in row]
    if len(texts) == 1:
        assert found.documents is None
    else:
        assert found.documents.tolist() == [number for number, row in enumerate(rows) for _ in row]


@given(texts=texts, window=st.integers(1, 13), rows=st.integers(1, 5), data=st.data())
def test_overlapping_windows_predict_each_token_once_and_far_from_their_beginning(texts, window, rows, data):
    """Side by side they are `in_order`'s; else each token is predicted after at least window − stride others."""
    row, stride = stream(texts), data.draw(st.integers(1, window))
    batches = overlapping(row, window, stride, window * rows)
    plain = in_order(row, NextToken(window), window * rows)
    assert sorted(pair for batch in batches for pair in pairs(batch)) == sorted(
        pair for batch in plain for pair in pairs(batch)
    )
    later = [targets for batch in batches for targets in batch.targets][1:]
    assert all((targets[: window - stride] == IGNORED).all() for targets in later)
    if stride == window:
        assert len(batches) == len(plain)
        assert all(same(one, other) for one, other in zip(batches, plain, strict=True))


@given(texts=texts, window=st.integers(1, 13), rows=st.integers(1, 5))
def test_measuring_predicts_each_token_once_from_the_one_before_it_in_its_text(texts, window, rows):
    batches = in_order(stream(texts), NextToken(window), window * rows)
    found = [pair for batch in batches for pair in pairs(batch)]
    wanted = []
    for text in texts:
        row = [TOKENIZER.bos_id, *TOKENIZER.encode(text), TOKENIZER.eos_id]
        wanted += list(pairwise(row))
    assert found == wanted
    assert all(batch.inputs.tokens.ids.shape[0] <= rows for batch in batches)


@pytest.mark.parametrize("texts", [ONE, MANY], ids=["one text", "many"])
@pytest.mark.parametrize("window", [3, 7, 11])
def test_an_epoch_has_each_window_once_and_leaves_out_less_than_two(texts, window):
    """Windows of one epoch, put in order, are the stream but for its ends, cut where the epoch's offset says."""
    whole = stream(texts)
    batches = Windows(whole, NextToken(window), rows=1, seed=3)
    begun = set()
    for epoch in range(5):
        taken = islice(batches.start(Position(0, epoch * batches.epoch)), batches.epoch)
        rows = [batch.inputs.tokens.ids[0].tolist() for batch, _ in taken]
        assert all(len(row) == window for row in rows)
        places = [offset for offset in range(window) if fits(whole.ids, rows, offset)]
        assert places, "the windows of an epoch lie side by side"
        begun |= set(places)
        assert len(whole) - window * batches.epoch < 2 * window + 1
    assert len(begun) > 1, "epochs begin at different places"


def fits(ids: np.ndarray, rows: list[list[int]], offset: int) -> bool:
    window = len(rows[0])
    cut = [ids[offset + index * window : offset + (index + 1) * window].tolist() for index in range(len(rows))]
    return Counter(map(str, cut)) == Counter(map(str, rows))


@pytest.mark.parametrize("texts", [ONE, MANY], ids=["one text", "many"])
def test_starting_at_a_position_gives_what_followed_it_the_first_time(texts):
    batches = Windows(stream(texts), NextToken(5), rows=4, seed=7)
    assert isinstance(batches, Batches)
    whole = list(islice(batches.start(Position()), 19))
    for place in (0, 3, 11):
        again = Windows(stream(texts), NextToken(5), rows=4, seed=7).start(whole[place][1])
        for (batch, after), (first, position) in zip(again, whole[place + 1 :], strict=False):
            assert same(batch, first)
            assert after == position


def test_the_order_is_a_function_of_the_seed_and_new_every_epoch():
    def first(seed: int, epoch: int) -> list[list[int]]:
        batches = Windows(stream(MANY), NextToken(5), rows=1, seed=seed)
        taken = islice(batches.start(Position(0, epoch * batches.epoch)), batches.epoch)
        return [batch.inputs.tokens.ids.tolist() for batch, _ in taken]

    assert first(3, 0) == first(3, 0)
    assert first(3, 0) != first(5, 0)
    assert first(3, 0) != first(3, 1)


def test_every_batch_is_full_and_one_text_needs_no_numbers():
    batches = Windows.filling(stream(ONE), NextToken(5), 34, 1)
    for batch, _ in islice(batches.start(Position()), 17):
        tokens = batch.inputs.tokens
        assert tokens.ids.shape == (6, 5)
        assert (tokens.documents, tokens.ragged) == (None, False)
        assert batch.count == 30


def test_numbers_of_texts_count_from_one_in_every_window_and_no_target_is_of_another_text():
    batches = Windows(stream(MANY), NextToken(11), rows=3)
    for batch, _ in islice(batches.start(Position()), 23):
        tokens = batch.inputs.tokens
        for ids, targets, numbers in zip(
            tokens.ids.tolist(), batch.targets.tolist(), tokens.documents.tolist(), strict=True
        ):
            ends = [place for place, token in enumerate(ids) if token == TOKENIZER.eos_id]
            assert numbers == [1 + sum(end < place for end in ends) for place in range(len(ids))]
            assert [place for place, target in enumerate(targets) if target == IGNORED] == ends


@given(st.integers(6, 40))
def test_a_text_of_any_length_that_holds_a_window_has_an_epoch(length):
    batches = Windows.filling(stream(["a" * (length - 2)]), NextToken(5), 5, 0)
    assert batches.epoch == max(1, (length - 5) // 5)
    assert all(batch.inputs.tokens.ids.shape == (1, 5) for batch, _ in islice(batches.start(Position()), 7))


def test_what_holds_no_window_is_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"the training text has 5 tokens and a window takes 6; give more text or"):
        Windows.filling(stream(["abc"]), NextToken(5), 64, 0)
    with pytest.raises(ConfigError, match=r"a window fills 5 tokens and a batch holds 4; raise training\.batch_tokens"):
        Windows.filling(stream(ONE), NextToken(5), 4, 0)

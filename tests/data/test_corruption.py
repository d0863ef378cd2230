"""Spans cut out of texts: exact counts, nothing lost, the same again from the same key."""

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batching import IGNORED
from regard.data.corruption import SpanCorruption, parted, span_counts
from regard.data.sentinels import SENTINELS
from regard.data.windows import TokenWindow, WindowObjective
from regard.errors import ConfigError
from regard.text.characters import CharacterTokenizer

TOKENIZER = CharacterTokenizer.train(["abcdefghijklmnopqrstuvwxyz"], 99).with_specials(SENTINELS)
NUMBER = {TOKENIZER.special_ids[name]: number for number, name in enumerate(SENTINELS)}


def put_back(source: list[int], target: list[int]) -> list[int]:
    """The text again: every sentinel of the source replaced by what follows it in the target."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in NUMBER:
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    return [token for one in source for token in (spans[one] if one in NUMBER else [one])]


@given(length=st.integers(2, 120), seed=st.integers(0, 99))
def test_what_was_cut_out_put_back_is_the_text_and_the_counts_are_exact(length, seed):
    ids = np.random.default_rng(seed).integers(4, 30, length).astype(np.int32)
    source, target = SpanCorruption(TOKENIZER, 200).corrupted(ids, np.random.default_rng(seed))
    assert put_back(source, target) == ids.tolist()
    found = [token for token in source if token in NUMBER]
    assert [NUMBER[token] for token in found] == list(range(len(found)))
    assert [token for token in target if token in NUMBER] == found
    cut = len(target) - len(found)
    assert cut == min(max(round(0.15 * length), 1), length - 1)
    assert len(found) == max(1, round(cut / 3))
    assert all(not (one in NUMBER and other in NUMBER) for one, other in pairwise(source))
    assert all(not (one in NUMBER and other in NUMBER) for one, other in pairwise(target))


def test_a_span_may_stand_anywhere_with_equal_chance():
    """Of eight tokens one is cut out: each of them in an eighth of the draws."""
    how, ids = SpanCorruption(TOKENIZER, 31), np.arange(4, 12, dtype=np.int32)
    draws = np.random.default_rng(3)
    found = Counter(how.corrupted(ids, draws)[1][1] for _ in range(8000))
    assert found.keys() == set(ids.tolist())
    assert all(abs(count - 1000) < 5 * (8000 * 7 / 64) ** 0.5 for count in found.values())


def test_all_ways_to_part_a_number_are_equally_likely():
    """6 in 3 positive parts: ten ways, each a tenth of 20,000 draws to within five standard deviations."""
    draws = np.random.default_rng(3)
    found = Counter(tuple(parted(6, 3, draws)) for _ in range(20_000))
    wanted = {tuple(np.diff([0, *cuts, 6]).tolist()) for cuts in combinations(range(1, 6), 2)}
    assert found.keys() == wanted
    assert all(abs(count - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5 for count in found.values())


@pytest.mark.parametrize(("tokens", "counts"), [(0, (0, 0)), (1, (0, 0)), (2, (1, 1)), (20, (3, 1)), (512, (77, 26))])
def test_counts_of_texts_of_known_length(tokens, counts):
    assert span_counts(tokens) == counts


def test_a_batch_is_its_rows_and_a_function_of_their_keys():
    how = SpanCorruption(TOKENIZER, 31)
    assert isinstance(how, WindowObjective)
    rows = [TokenWindow(np.arange(4, 4 + length, dtype=np.int32), None, (length,)) for length in (23, 7, 13)]
    together = how.batch(rows)
    assert together.count == sum(how.batch([row]).count for row in rows)
    for place, row in enumerate(rows):
        source, target = how.corrupted(row.ids, row.draws())
        assert together.inputs.source.rows()[place] == [*source, TOKENIZER.eos_id]
        assert together.inputs.tokens.rows()[place] == [TOKENIZER.bos_id, *target]
        kept = together.targets[place] != IGNORED
        assert together.targets[place][kept].tolist() == [*target, TOKENIZER.eos_id]
    other = how.batch([TokenWindow(rows[0].ids, None, (99,))])
    assert not torch.equal(other.inputs.source.ids, how.batch(rows[:1]).inputs.source.ids)


@pytest.mark.parametrize(("window", "room"), [(1, 0), (2, 1)])
def test_a_window_of_which_nothing_can_be_cut_out_is_refused(window, room):
    said = f"a window of {window} tokens has room for {room} beside <eos>, and nothing can be cut out of fewer"
    with pytest.raises(ConfigError, match=f"{said} than 2; use data.window=3 or more"):
        SpanCorruption(TOKENIZER, window)
    assert SpanCorruption(TOKENIZER, 3).batch([TokenWindow(np.array([4, 5], dtype=np.int32), None, (0,))]).count == 3


def test_a_window_with_more_spans_than_sentinels_is_refused():
    with pytest.raises(ConfigError, match="a window of 2400 tokens has 120 spans and there are 100 sentinels"):
        SpanCorruption(TOKENIZER, 2400)

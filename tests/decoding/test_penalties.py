"""Filters that see what was generated: equal to transformers' processors, and the laws of every filter."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.data.batching import Inputs, Padded
from regard.decoding.filters import (
    Filter,
    ForcedBos,
    ForcedEos,
    Generated,
    MinP,
    Renormalized,
    Suppressed,
    Temperature,
    TopK,
    TopP,
    apply,
    min_p,
    temperature,
    top_k,
    top_p,
)
from regard.decoding.penalties import Banned, NoRepeatNgram, RepetitionPenalty
from regard.errors import InputError
from rounding import assert_close

VOCABULARY = 7
ON_DEVICE: tuple[Filter, ...] = (
    RepetitionPenalty(1.3),
    NoRepeatNgram(1),
    NoRepeatNgram(3),
    Banned(((3,), (1, 2), (4, 4, 5))),
    Suppressed((2, 5)),
    ForcedBos(4),
    ForcedEos(6),
    Temperature(0.7),
    TopK(3),
    TopP(0.8),
    MinP(0.2),
    Renormalized(),
)


def standing(rows: list[list[int]], read: int = 1, limit: int = 50) -> Generated:
    """Rows that have read so many tokens and written the rest."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows])
    return Generated(ids, torch.full((len(rows),), read), torch.full((len(rows),), limit))


def scores(rows: int, seed: int = 0, vocabulary: int = VOCABULARY) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=generator, dtype=torch.float64) * 3


texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=13)


# Equal to transformers


@given(texts, st.floats(0.3, 4), st.integers(0, 99))
def test_the_repetition_penalty_is_that_of_transformers(text, penalty, seed):
    transformers = pytest.importorskip("transformers")
    given_scores = scores(1, seed)
    peer = transformers.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([text]), given_scores.clone())
    assert_close(RepetitionPenalty(penalty)(given_scores, standing([text])), peer, 1e-12)


@given(texts, st.integers(1, 4), st.integers(0, 99))
def test_no_ngram_stands_twice_as_in_transformers(text, size, seed):
    transformers = pytest.importorskip("transformers")
    given_scores = scores(1, seed)
    peer = transformers.NoRepeatNGramLogitsProcessor(size)(torch.tensor([text]), given_scores.clone())
    assert torch.equal(NoRepeatNgram(size)(given_scores, standing([text])), peer)


@given(texts, st.lists(texts.map(tuple), min_size=1, max_size=5), st.integers(0, 99))
def test_banned_words_of_several_tokens_are_those_of_transformers(text, words, seed):
    transformers = pytest.importorskip("transformers")
    given_scores, words = scores(1, seed), sorted(set(words))
    processor = transformers.NoBadWordsLogitsProcessor([list(word) for word in words], eos_token_id=[VOCABULARY + 1])
    peer = processor(torch.tensor([text]), given_scores.clone())
    assert torch.equal(Banned(tuple(words))(given_scores, standing([text])), peer)


@given(st.lists(st.integers(-6, 6).map(float), min_size=2, max_size=11), st.floats(0.01, 1))
def test_min_p_keeps_what_is_at_least_so_likely_and_as_transformers(row, share):
    transformers = pytest.importorskip("transformers")
    logits = torch.tensor([row], dtype=torch.float64)
    kept = {token for token, one in enumerate(min_p(logits, share)[0].tolist()) if one > -math.inf}
    wanted = {token for token, one in enumerate(row) if math.exp(one - max(row)) >= share}
    assert kept == wanted
    peer = transformers.MinPLogitsWarper(share)(torch.zeros(1, 1).long(), logits.clone())
    assert {token for token, one in enumerate(peer[0].tolist()) if one > -math.inf} == wanted


# By their definitions


@given(texts, st.integers(1, 4))
def test_what_no_repeat_ngram_leaves_repeats_none_and_what_it_takes_would(text, size):
    left = NoRepeatNgram(size)(torch.zeros(1, VOCABULARY), standing([text]))[0]
    for token in range(VOCABULARY):
        longer = (*text, token)
        last = longer[-size:]
        before = [longer[at : at + size] for at in range(len(longer) - size)]
        assert (float(left[token]) == -math.inf) == (len(longer) >= size and last in before)


@given(texts, st.lists(texts.map(tuple), min_size=1, max_size=5))
def test_what_is_banned_is_what_would_end_in_a_banned_word(text, words):
    left = Banned(tuple(words))(torch.zeros(1, VOCABULARY), standing([text]))[0]
    for token in range(VOCABULARY):
        longer = (*text, token)
        assert (float(left[token]) == -math.inf) == any(longer[-len(word) :] == word for word in words)


# Laws of every filter


@pytest.mark.parametrize("one", ON_DEVICE, ids=repr)
def test_a_row_is_filtered_as_if_alone_and_what_is_given_stays(one):
    rows = [[1, 2, 3], [4], [4, 4, 5, 4, 4], [3, 3, 1, 2, 3, 3, 1], [6, 1]]
    given_scores = scores(len(rows)).log_softmax(-1)
    before, places = given_scores.clone(), standing(rows, read=1, limit=3)
    together = one(given_scores, places)
    assert torch.equal(given_scores, before)
    for row in range(len(rows)):
        alone = one(given_scores[row : row + 1], standing([rows[row]], read=1, limit=3))
        assert torch.equal(together[row : row + 1], alone)
    roomy = Generated(torch.nn.functional.pad(places.ids, (0, 5), value=-1), places.prompt_lengths, places.limit)
    assert torch.equal(one(given_scores, roomy), together)  # room behind says nothing


@pytest.mark.parametrize("one", ON_DEVICE, ids=repr)
def test_a_filter_that_runs_on_the_device_reads_no_value(one):
    """A tensor without values has none to read: what asks for one raises."""
    assert one.on_device
    real = standing([[1, 2, 3], [4]])
    one(scores(2), real)  # what is kept on the device is there
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = Generated(*(mode.from_tensor(part) for part in (real.ids, real.prompt_lengths, real.limit)))
        found = one(mode.from_tensor(scores(2)), fake)
    assert found.shape == (2, VOCABULARY)


def test_a_filter_is_anything_that_says_whether_it_runs_on_the_device():
    assert all(isinstance(one, Filter) for one in ON_DEVICE)
    assert not isinstance(lambda scores, generated: scores, Filter)


def test_values_may_differ_by_row():
    logits = scores(3)
    values = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    for function, numbers in ((temperature, values), (top_p, values / 2.1), (min_p, values / 3)):
        by_row = [function(logits[row : row + 1], float(numbers[row])) for row in range(3)]
        assert torch.equal(function(logits, numbers), torch.cat(by_row))
    counts = torch.tensor([[1], [3], [6]])
    assert torch.equal(
        top_k(logits, counts), torch.cat([top_k(logits[row : row + 1], int(counts[row])) for row in range(3)])
    )
    assert torch.equal(top_p(logits, torch.ones(3, 1, dtype=torch.float64)), logits)


# What stands there


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_stands_in_a_row_is_its_prompt_and_what_was_written_whatever_the_padding(side):
    prompts = [[5, 3], [4], [1, 2, 6]]
    generated = Generated.begin(Inputs(Padded.of(prompts, side=side, fill=3)), 9)
    assert generated.rows() == prompts
    assert generated.written() == [(), (), ()]
    generated = generated.then(torch.tensor([0, 1, 2])).select(torch.tensor([2, 0, 2])).then(torch.tensor([3, 4, 5]))
    assert generated.rows() == [[1, 2, 6, 2, 3], [5, 3, 0, 4], [1, 2, 6, 2, 5]]
    assert generated.written() == [(2, 3), (0, 4), (2, 5)]
    assert generated.places.tolist() == [2, 2, 2]
    assert generated.last(5).tolist() == [[1, 2, 6, 2, 3], [-1, 5, 3, 0, 4], [1, 2, 6, 2, 5]]
    assert generated.limit.tolist() == [9, 9, 9]


def test_rows_need_not_have_written_equally_much():
    """As where one is admitted while others are under way."""
    generated = Generated(torch.tensor([[1, 2, -1, -1], [1, 2, 3, 4]]), torch.tensor([2, 1]), torch.tensor([1, 4]))
    assert apply([ForcedBos(5)], torch.zeros(2, 7), generated)[:, 0].tolist() == [-math.inf, 0]
    assert apply([ForcedEos(6)], torch.zeros(2, 7), generated)[:, 0].tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("penalty", [0.0, -1.0, math.inf, math.nan])
def test_a_penalty_that_is_none_is_refused(penalty):
    with pytest.raises(InputError, match="repetition penalty"):
        RepetitionPenalty(penalty)


def test_words_and_ngrams_of_no_tokens_are_refused():
    with pytest.raises(InputError, match="n-grams of 0"):
        NoRepeatNgram(0)
    with pytest.raises(InputError, match="no tokens"):
        Banned(((1,), ()))

"""An answer ends exactly before a text to stop at, however it is cut, and a stream prints nothing that is cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_steppers import END, Text, random_logits, told_case
from test_beam import plain_beam

from regard.decoding.beam import search_all
from regard.decoding.engine import generate, stream
from regard.decoding.hypothesis import Stop
from regard.decoding.stopping import HeldBack, cut, meeting
from regard.decoding.strategies import Beam, Greedy, Sample

LETTERS = "abcde"


def spelt(ids) -> str:
    return "".join(LETTERS[token] * (1 + token % 2) for token in ids)


@given(st.text("ab", max_size=17), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_text_is_cut_before_the_first_place_where_one_begins(text, stops):
    kept, met = cut(text, stops)
    places = [place for place in range(len(text)) if any(text.startswith(stop, place) for stop in stops)]
    assert kept == (text[: places[0]] if places else text)
    assert (met is None) == (not places)
    assert met is None or text.startswith(met, len(kept))


@given(
    st.lists(st.text("ab\n", max_size=3), max_size=11),
    st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
@example(["a", "ab"], ["aab"])
@example(["aa", "b"], ["ab", "b"])
def test_a_stream_in_pieces_is_what_is_cut_at_once(pieces, stops):
    held, given_out, whole = HeldBack(stops), "", ""
    for piece in pieces:
        given_out += held.push(piece)
        whole += piece
        certain, met = cut(whole, stops)
        assert certain.startswith(given_out)  # nothing is printed that is cut
        if met is not None:
            break
        longest = max(len(stop) for stop in stops)
        assert len(certain) - len(given_out) < longest  # and no more is held back than may be needed
    assert given_out + held.end() == cut(whole, stops)[0]


@pytest.mark.parametrize("strategy", [Greedy(), Sample(temperature=1.4, seed=2)], ids=repr)
@pytest.mark.parametrize("stops", [("ad",), ("bb", "ce"), ("zzz",)])
def test_decoding_ends_with_the_token_that_completes_it(strategy, stops):
    ends = set()
    for seed in range(7):
        case = told_case(random_logits(5, seed), [(1,), (3,), (0,)])
        met = meeting(stops, spelt)
        for row, one in enumerate(generate(case.stepper, case.inputs, strategy, Stop(END, 13, met=met))):
            before = [cut(spelt(one.ids[:length]), stops)[1] for length in range(1, len(one.ids) + 1)]
            assert not any(before[:-1])
            assert before[-1] or one.ids[-1] == END or len(one.ids) == 13
            ends.add(bool(before[-1]))
            if isinstance(strategy, Greedy):
                streamed = stream(case.stepper, case.alone(row), strategy, Stop(END, 13, met=met))
                assert tuple(streamed) == one.ids
    assert ends == ({False} if stops == ("zzz",) else {True, False})


@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([("a",), ("ad", "bb"), ("e", "a", "bb")]))
def test_a_beam_that_stops_at_texts_is_the_plain_one_with_more_ends(seed, size, stops):
    """The plain one looks at all candidates, so that none is missing where many end."""
    case = told_case(random_logits(5, seed), [(1,)])
    strategy, limit = Beam(size, 0.8), 5
    running: dict[Text, float] = {(): 0.0}
    finished: dict[Text, float] = {}
    for length in range(1, limit + 1):
        totals = {
            (*text, token): total + more
            for text, total in running.items()
            for token, more in enumerate(case.after(0, text).tolist())
        }
        best = sorted(totals, key=lambda text: -totals[text])
        over = {text for text in best if text[-1] == END or length == limit or cut(spelt(text), stops)[1]}
        finished |= {text: totals[text] / length**0.8 for text in best[:size] if text in over}
        finished = dict(sorted(finished.items(), key=lambda pair: -pair[1])[:size])
        running = {text: totals[text] for text in [text for text in best if text not in over][:size]}
        most = max(running.values(), default=float("-inf")) / length**0.8
        if len(finished) == size and most <= min(finished.values()):
            break
    [found] = search_all(case.stepper, case.inputs, strategy, Stop(END, limit, met=meeting(stops, spelt)))
    assert [one.ids for one in found] == list(finished)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 9))
def test_a_beam_streams_what_all_that_may_win_share_and_in_the_end_the_best(seed, size, limit):
    case = told_case(random_logits(5, seed), [(1,)])
    [best] = generate(case.stepper, case.inputs, Beam(size), Stop(END, limit))
    assert tuple(stream(case.stepper, case.inputs, Beam(size), Stop(END, limit))) == best.ids
    assert best.ids == plain_beam(case, 0, Beam(size), limit)[0][0]


def test_a_beam_streams_before_it_has_ended():
    """A model that is certain of its first tokens: they come while the rest is searched."""
    case = told_case(
        lambda text: random_logits(5, 3, 0.1)(text) if len(text) > 4 else random_logits(5, 3, 90)(text), [(1,)]
    )
    steps: list[int] = []

    class Counting:
        def start(self, inputs):
            return case.stepper.start(inputs)

        def step(self, ids, state):
            steps.append(len(ids))
            return case.stepper.step(ids, state)

        def extend(self, ids, state):
            return case.stepper.extend(ids, state)

    came = [len(steps) for _ in stream(Counting(), case.inputs, Beam(3), Stop(-1, 9))]
    assert came[0] < len(steps)
    assert all(earlier <= later for earlier, later in pairwise(came))

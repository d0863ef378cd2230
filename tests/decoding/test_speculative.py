"""Tokens that are guessed: whatever the guesses, the text is that of plain decoding, and fewer passes make it."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from small_steppers import END, Told, recurrent_case, transformer_case

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate, generate_ranked, stream
from regard.decoding.filters import ForcedEos, Suppressed
from regard.decoding.hypothesis import Stop
from regard.decoding.penalties import NoRepeatNgram
from regard.decoding.sliding import Sliding
from regard.decoding.speculative import Choosing, DraftModel, PromptLookup
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample
from regard.errors import InputError

CASES = {
    "decoder": transformer_case("decoder", "rotary"),
    "encoder-decoder": transformer_case("encoder_decoder", "t5"),
    "learnt": transformer_case("decoder", "learned", side="right"),
}
DRAFTS = {
    "itself": lambda case: DraftModel(case.stepper, tokens=3),
    "another": lambda case: DraftModel(
        transformer_case("decoder" if case.inputs.source is None else "encoder_decoder", "alibi", seed=5).stepper
    ),
    "lookup": lambda case: PromptLookup(tokens=3, longest=2),
}
STRATEGIES = {
    "greedy": Greedy(),
    "sample": Sample(temperature=0.9, top_k=5, top_p=0.95, seed=3),
    "penalty": Sample(repetition_penalty=1.3, seed=4, first=2),
}


ALL = [("decoder", draft, strategy) for draft in DRAFTS for strategy in STRATEGIES]
ALL += [("encoder-decoder", "another", "greedy"), ("encoder-decoder", "lookup", "sample")]
ALL += [("learnt", "lookup", "greedy"), ("learnt", "another", "penalty")]


@pytest.mark.parametrize(("name", "draft", "strategy"), ALL)
def test_the_text_is_that_of_plain_decoding_token_for_token(name, draft, strategy):
    case, how, stop = CASES[name], STRATEGIES[strategy], Stop(END, 9)
    filters = (NoRepeatNgram(3), Suppressed((4,)), ForcedEos(END)) if strategy == "penalty" else ()
    plain = generate(case.stepper, case.inputs, how, stop, filters)
    found = [one for [one] in generate_ranked(case.stepper, case.inputs, how, stop, filters, None, DRAFTS[draft](case))]
    for one, expected in zip(found, plain, strict=True):
        assert one.ids == expected.ids
        assert one.path == "speculative"
        assert one.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-9)
        assert one.score == pytest.approx(sum(one.log_probabilities))
    single = list(stream(case.stepper, case.alone(0), how, stop, filters, DRAFTS[draft](case)))
    assert tuple(single) == plain[0].ids


@dataclass
class Passes:
    """A stepper that counts what it is asked for."""

    stepper: object
    passes: int = 0
    widths: list[int] = field(default_factory=list)

    def start(self, inputs):
        return self.stepper.start(inputs)

    def step(self, ids, state):
        self.passes += 1
        return self.stepper.step(ids, state)

    def extend(self, ids, state):
        self.passes += 1
        self.widths.append(ids.shape[1])
        return self.stepper.extend(ids, state)


def test_a_perfect_draft_needs_a_pass_for_every_four_tokens():
    case = CASES["decoder"]
    for strategy in STRATEGIES.values():
        counted = Passes(case.stepper)
        [[found]] = generate_ranked(
            counted, case.alone(0), strategy, Stop(-1, 12), draft=DraftModel(case.stepper, tokens=3)
        )
        assert len(found.ids) == 12
        assert counted.widths == [4, 4, 4]


def repeating(text):
    """What stands three tokens back, very likely."""
    return torch.nn.functional.one_hot(torch.tensor(text[-3]), 11).double() * 9


def test_a_text_that_repeats_its_prompt_is_looked_up():
    counted = Passes(Told(repeating))
    inputs = Inputs(Padded.of([[5, 6, 7, 5, 6, 7]]))
    [[found]] = generate_ranked(counted, inputs, Greedy(), Stop(0, 12), draft=PromptLookup(tokens=3, longest=2))
    assert found.ids == (5, 6, 7) * 4
    assert counted.passes <= 5


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ([1, 2, 3, 9, 2, 3], [], [9, 2]),
        ([1, 2, 3, 4, 2, 3, 5, 2, 3], [], [5, 2]),  # the latest place
        ([4, 8, 3], [1, 8, 3, 6, 7], [6, 7]),  # in the source
        ([4, 8, 3], [1, 5, 3, 6, 7], [6, 7]),  # one token alone
        ([1, 2, 3], [], []),
        ([7], [7], []),
    ],
)
def test_what_followed_the_longest_match_is_the_guess(text, source, expected):
    assert looked_up(text, source, 2, PromptLookup(2, 2)) == expected


def looked_up(text: list[int], source: list[int], begun: int, how: PromptLookup) -> list[int]:
    """What is guessed after a text of which so much was the prompt."""
    guesses = how.begin(Inputs(Padded.of([text[:begun]]), Padded.of([source])))
    for token in text[begun:]:
        guesses.wrote([[token]], [0])
    choosing = Choosing(Greedy(), (), lambda *_: torch.zeros(1), [0], torch.zeros(1, dtype=torch.long), None)
    [found] = guesses.guess(torch.tensor(text[-1:]), choosing, how.tokens)
    return found


def searched(text: list[int], source: list[int], how: PromptLookup) -> list[int]:
    """The same by looking at every place."""
    for length in range(min(how.longest, len(text)), 0, -1):
        for where in (text, source):
            for end in range(len(where) - 1, length - 1, -1):
                if where[end - length : end] == text[-length:]:
                    return where[end : end + how.tokens]
    return []


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=19),
    st.lists(st.integers(0, 2), max_size=7),
    st.integers(1, 19),
    st.integers(1, 4),
)
def test_a_text_that_grows_is_looked_up_as_if_all_of_it_were_searched(text, source, begun, longest):
    how = PromptLookup(3, longest)
    assert looked_up(text, source, min(begun, len(text)), how) == searched(text, source, how)


SHARES = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)


@pytest.mark.parametrize("draft", ["peaked", "flat"])
def test_drawn_pairs_have_the_models_distribution_whatever_the_draft(draft):
    """P(a, b) = p(a) p(b | a) of 3,000 texts of two tokens: a chi-square over all sixteen."""
    logits = [SHARES.roll(turn).log() for turn in range(4)]
    model = Told(lambda text: logits[text[-1]])
    guess = Told(lambda text: torch.tensor([4.0, 0.0, 0.0, 1.0]) if draft == "peaked" else torch.zeros(4))
    inputs = Inputs(Padded.of([[0]] * 3000))
    found = generate_ranked(model, inputs, Sample(seed=11), Stop(-1, 2), draft=DraftModel(guess, 2))
    counts = Counter(one.ids for [one] in found)
    expected = {(a, b): float(SHARES[a] * SHARES.roll(a)[b]) for a in range(4) for b in range(4)}
    assert chisquare([counts[pair] for pair in expected], [3000 * share for share in expected.values()]).pvalue > 1e-3


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_is_guessed_changes_nothing(data):
    class Wild:
        tokens = 3

        def begin(self, inputs):
            return self

        def guess(self, ids, choosing: Choosing, count):
            some = st.lists(st.integers(0, 6), max_size=count)
            return [data.draw(some) for _ in ids]

        def wrote(self, tokens, kept):
            assert all(tokens)

    case = CASES["decoder"]
    plain = generate(case.stepper, case.inputs, Greedy(), Stop(END, 7))
    found = generate_ranked(case.stepper, case.inputs, Greedy(), Stop(END, 7), draft=Wild())
    assert [one.ids for [one] in found] == [one.ids for one in plain]


def test_a_text_stops_where_it_is_met():
    case = CASES["decoder"]
    stop = Stop(-1, 12, met=lambda ids: len(ids) >= 5)
    [[found]] = generate_ranked(case.stepper, case.alone(0), Greedy(), stop, draft=DRAFTS["itself"](case))
    assert len(found.ids) == 5


@pytest.mark.parametrize("strategy", [Beam(2), Contrastive()])
def test_what_chooses_otherwise_takes_no_draft(strategy):
    case = CASES["decoder"]
    with pytest.raises(InputError, match=f"a draft has no effect on {type(strategy).__name__}"):
        generate_ranked(case.stepper, case.inputs, strategy, Stop(END, 5), draft=PromptLookup())


def test_a_model_that_cannot_go_back_says_so():
    case = recurrent_case()
    with pytest.raises(InputError, match="keeps no single tokens"):
        generate_ranked(case.stepper, case.inputs, Greedy(), Stop(-1, 9), draft=DRAFTS["another"](CASES["decoder"]))


def test_a_window_takes_a_draft_until_it_slides():
    case = CASES["decoder"]
    window, draft = Sliding(case.stepper, 16), PromptLookup()
    found = generate_ranked(window, case.inputs, Greedy(), Stop(END, 12), draft=draft)
    assert [one.ids for [one] in found] == [one.ids for one in generate(window, case.inputs, Greedy(), Stop(END, 12))]
    with pytest.raises(InputError, match="17 tokens are more than the 16"):
        generate_ranked(window, case.inputs, Greedy(), Stop(END, 13), draft=draft)


@pytest.mark.parametrize("values", [{"tokens": 0}, {"longest": 0}])
def test_a_look_up_that_guesses_nothing_is_refused(values):
    with pytest.raises(InputError, match="guesses nothing"):
        PromptLookup(**values)

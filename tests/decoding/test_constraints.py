"""What must stand in an answer stands there, what must not does not, in every strategy; a full beam is brute force."""

import math
import re
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_steppers import END, Text, random_logits, told_case, transformer_case

from regard.decoding.beam import search_all
from regard.decoding.constraints import Allowed, MustContain, MustNotContain, WithoutTexts, WithPhrases, bind
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.filters import Generated, Suppressed
from regard.decoding.hypothesis import Stop
from regard.decoding.speculative import PromptLookup
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

STRATEGIES = (Greedy(), Sample(temperature=1.5, seed=3), Beam(3, 0.7), Beam(1))
VOCABULARY, LIMIT = 5, 4


def holds(text: Text, phrase: Text) -> bool:
    return any(text[at : at + len(phrase)] == phrase for at in range(len(text)))


def with_constraints(strategy, *constraints):
    return type(strategy)(**{**vars(strategy), "constraints": constraints})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat and the dog sat by the cat, in May or March"] * 3, 290)


# Token by token


@given(st.integers(0, 10**6), st.sampled_from([((3,),), ((1, 3),), ((4, 4),), ((3,), (1, 0)), ((0, 1), (1, 3))]))
def test_a_beam_that_holds_everything_is_brute_force_over_the_texts_that_hold_the_phrases(seed, phrases):
    case = told_case(random_logits(VOCABULARY, seed), [(1,)])
    every = [text for length in range(1, LIMIT + 1) for text in product(range(VOCABULARY), repeat=length)]
    whole = [text for text in every if END not in text[:-1] and (text[-1] == END or len(text) == LIMIT)]
    # a text that overlaps two phrases is found, but not looked for: it is left out of what must be found
    fitting = [text for text in whole if all(holds(text, phrase) for phrase in phrases)]
    best = max(fitting, key=lambda text: case.score(0, text) / len(text))
    constraint = WithPhrases(tuple((phrase,) for phrase in phrases), (END,))
    strategy = Beam(VOCABULARY**LIMIT, constraints=(constraint,))
    [found] = [generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))[0]]
    assert all(holds(found.ids, phrase) for phrase in phrases)
    apart = sum(map(len, phrases))
    if len(phrases) == 1 or apart == 3:
        assert found.ids == best
    assert found.score == pytest.approx(case.score(0, found.ids) / len(found.ids), abs=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("limit", [3, 5, 9])
def test_every_strategy_writes_what_it_must_and_never_ends_before(strategy, limit):
    met = set()
    for seed in range(11):
        case = told_case(random_logits(VOCABULARY, seed), [(1,), (3,), (0,)])
        constraint = WithPhrases((((3, 1), (4, 3, 1)), ((0,),)), (END,))
        for one in generate(case.stepper, case.inputs, with_constraints(strategy, constraint), Stop(END, limit)):
            assert holds(one.ids, (3, 1))
            assert holds(one.ids, (0,))
            assert len(one.ids) <= limit
            met.add(len(one.ids))
    assert limit < 9 or len(met) > 1


def test_phrases_that_do_not_fit_into_the_limit_are_refused_with_both_numbers():
    case = told_case(random_logits(VOCABULARY, 1), [(1,)])
    constraint = WithPhrases((((3, 1, 4),), ((0,),)), (END,))
    for strategy in STRATEGIES:
        with pytest.raises(InputError, match="the 4 tokens that the answer must contain do not fit into a limit of 3"):
            generate(case.stepper, case.inputs, with_constraints(strategy, constraint), Stop(END, 3))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_only_tokens_that_a_function_allows_follow(strategy):
    case = told_case(random_logits(VOCABULARY, 5), [(1,), (4,)])
    seen = []

    def odd_then_any(written):
        seen.append(written)
        return (1, 3) if len(written) % 2 == 0 else None

    for one in generate(case.stepper, case.inputs, with_constraints(strategy, Allowed(odd_then_any)), Stop(END, 7)):
        assert set(one.ids[::2]) <= {1, 3}
    assert () in seen


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_where_nothing_is_allowed_it_is_said(strategy):
    case = told_case(random_logits(VOCABULARY, 5), [(1,)])
    nothing = with_constraints(strategy, Allowed(lambda written: () if len(written) == 2 else (0, 1)))
    with pytest.raises(InputError, match="leave no token to choose as token 3"):
        generate(case.stepper, case.inputs, nothing, Stop(END, 7))
    with pytest.raises(InputError, match="gave 9, no id of 5 tokens"):
        generate(case.stepper, case.inputs, with_constraints(strategy, Allowed(lambda written: [9])), Stop(END, 7))


def test_where_nothing_is_allowed_guesses_and_contrasts_say_it_too():
    case, nothing = transformer_case("decoder", "rotary"), (Suppressed(tuple(range(7))),)
    with pytest.raises(InputError, match="leave no token to choose as token 1"):
        generate(case.stepper, case.inputs, Contrastive(), Stop(END, 4), nothing)
    with pytest.raises(InputError, match="leave no token to choose as token 1"):
        generate_ranked(case.stepper, case.inputs, Greedy(), Stop(END, 4), nothing, draft=PromptLookup())


# Texts


@given(st.data())
def test_what_is_banned_is_what_would_spell_the_forbidden_text(data):
    pieces = [b"", b"a", b"b", b"ab", b"ba", b"aab", b"\xc3", b"\xa9b"]
    forbidden = data.draw(st.sampled_from(["ab", "aab", "bab", "é", "éb"]))
    written = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=7))
    text = b"".join(pieces[token] for token in written)
    if forbidden.encode() in text:
        return
    stands = Generated(torch.tensor([[0, *written]]), torch.tensor([1]), torch.tensor([99]))
    left = WithoutTexts((forbidden,), pieces)(torch.zeros(1, len(pieces)), stands)[0]
    for token, piece in enumerate(pieces):
        assert (float(left[token]) == -math.inf) == (forbidden.encode() in text + piece)


def unlikely_words(tokenizer: Tokenizer):
    """Logits of no sense, over a real vocabulary."""
    return random_logits(tokenizer.size, seed=3)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_texts_stand_in_the_answer_or_do_not(strategy, tokenizer):
    case = told_case(unlikely_words(tokenizer), [(5,), (7,)])
    end, stop = tokenizer.eos_id, Stop(tokenizer.eos_id, 13)
    plain = [tokenizer.decode(one.ids) for one in generate(case.stepper, case.inputs, strategy, stop)]
    forbidden = next(one for text in plain for one in re.findall("[!-~]", text) if one not in "catMay")
    constraints = bind((MustContain(("cat", "May")), MustNotContain((forbidden, "dog"))), tokenizer, [end])
    for one in generate(case.stepper, case.inputs, with_constraints(strategy, *constraints), stop):
        text = tokenizer.decode(one.ids)
        assert "cat" in text
        assert "May" in text
        assert forbidden not in text
        assert "dog" not in text


def test_a_text_is_met_whatever_its_cut(tokenizer):
    [constraint] = bind((MustContain("cat"),), tokenizer, [tokenizer.eos_id])
    letters = tuple(tokenizer.encode(letter)[0] for letter in "cat")
    assert tokenizer.encode("cat") != list(letters)
    assert constraint.missing(letters) == 0
    assert constraint.missing(letters[:2]) > 0


def test_what_must_and_must_not_stand_there_cannot_be_met_and_is_said(tokenizer):
    case = told_case(unlikely_words(tokenizer), [(5,)])
    both = bind((MustContain("cat"), MustNotContain("cat")), tokenizer, [tokenizer.eos_id])
    for strategy in STRATEGIES:
        with pytest.raises(InputError, match="leave no token to choose"):
            generate(case.stepper, case.inputs, with_constraints(strategy, *both), Stop(tokenizer.eos_id, 5))


def test_a_text_without_a_tokenizer_and_an_empty_one_are_refused():
    case = told_case(random_logits(5, 1), [(1,)])
    with pytest.raises(InputError, match="nobody says how it is cut"):
        generate(case.stepper, case.inputs, Greedy((MustContain("a"),)), Stop(END, 3))
    for kind in (MustContain, MustNotContain):
        for empty in ("", (), ("a", "")):
            with pytest.raises(InputError, match="empty text"):
                kind(empty)


def test_beams_in_banks_and_in_groups_are_refused_together():
    case = told_case(random_logits(5, 1), [(1,)])
    with pytest.raises(InputError, match="keeps no banks"):
        search_all(
            case.stepper, case.inputs, Beam(2, diversity_penalty=1.0), Stop(END, 5), [WithPhrases((((1,),),), (END,))]
        )

"""Special tokens in a text: text like any other, unless they are asked for."""

import pytest

from regard.text.registry import KINDS

TEXTS = ["the rose by the river is red", "the river is wide and the rose is low"] * 3


@pytest.fixture(scope="module", params=list(KINDS))
def tokenizer(request):
    return KINDS[request.param].train(TEXTS, 330 if request.param == "bpe" else 70)


def test_a_name_is_its_token_and_the_rest_is_cut_as_without_it(tokenizer):
    names = tokenizer.special_ids
    for name, token in names.items():
        before, after = "the rose", "is red"
        wanted = [*tokenizer.encode(before), token, *tokenizer.encode(after)]
        assert tokenizer.encode(f"{before}{name}{after}", special_tokens=True) == wanted
        assert tokenizer.parsing_special_tokens.encode_batch([f"{before}{name}{after}"]) == [wanted]
        assert token not in {*tokenizer.encode(f"{before}{name}{after}")} - {tokenizer.unk_id}


def test_only_what_hides_takes_the_blanks_before_it(tokenizer):
    more = tokenizer.with_specials(["<extra_id_0>"])
    gap = more.special_ids["<extra_id_0>"]
    wanted = [*more.encode("the rose"), gap, *more.encode(" is")]
    assert more.encode("the rose <extra_id_0> is", special_tokens=True) == wanted
    assert more.encode_naming("the rose <extra_id_0> is", ["<extra_id_0>"]) == wanted
    wanted = [*more.encode("the rose "), more.eos_id, *more.encode(" is")]
    assert more.encode(f"the rose {more.eos} is", special_tokens=True) == wanted


def test_places_are_those_of_the_tokens_that_are_made(tokenizer):
    text = f"the rose{tokenizer.eos}is red"
    parsing = tokenizer.parsing_special_tokens
    ids, places = parsing.encode(text), parsing.offsets(text)
    start, end = places[ids.index(tokenizer.eos_id)]
    assert text[start:end] == tokenizer.eos
    assert len(ids) == len(places)

"""Numbers in words: right by hand-written tables, equal to num2words where it is right, and readable again."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

from regard.data.corpus import corpus
from regard.data.numbers import DIGITS, LANGUAGES, LARGEST, Numbers, group, read_number, split_of, write_number
from regard.errors import ConfigError, InputError

languages = pytest.mark.parametrize("language", LANGUAGES)
numbers = st.one_of(st.integers(0, LARGEST), st.integers(0, 2000), st.builds(lambda n: 1000 * n, st.integers(0, 999)))

# Written by hand from the rules of each language.
TABLE: dict[str, dict[int, str]] = {
    "en": {
        0: "zero",
        13: "thirteen",
        40: "forty",
        21: "twenty-one",
        100: "one hundred",
        101: "one hundred and one",
        999: "nine hundred and ninety-nine",
        1000: "one thousand",
        1001: "one thousand and one",
        1100: "one thousand, one hundred",
        1234: "one thousand, two hundred and thirty-four",
        20_020: "twenty thousand and twenty",
        115_018: "one hundred and fifteen thousand and eighteen",
    },
    "fr": {
        0: "zéro",
        16: "seize",
        17: "dix-sept",
        21: "vingt et un",
        71: "soixante et onze",
        80: "quatre-vingts",
        81: "quatre-vingt-un",
        91: "quatre-vingt-onze",
        99: "quatre-vingt-dix-neuf",
        100: "cent",
        180: "cent quatre-vingts",
        200: "deux cents",
        201: "deux cent un",
        1000: "mille",
        1001: "mille un",
        2000: "deux mille",
        80_000: "quatre-vingt mille",
        80_080: "quatre-vingt mille quatre-vingts",
        200_000: "deux cent mille",
        300_300: "trois cent mille trois cents",
        21_071: "vingt et un mille soixante et onze",
    },
    "de": {
        0: "null",
        1: "eins",
        12: "zwölf",
        16: "sechzehn",
        17: "siebzehn",
        21: "einundzwanzig",
        30: "dreißig",
        70: "siebzig",
        100: "einhundert",
        101: "einhunderteins",
        1000: "eintausend",
        1001: "eintausendeins",
        1234: "eintausendzweihundertvierunddreißig",
        21_000: "einundzwanzigtausend",
        101_000: "einhunderteintausend",
        101_101: "einhunderteintausendeinhunderteins",
        777_666: "siebenhundertsiebenundsiebzigtausendsechshundertsechsundsechzig",
    },
    "es": {
        0: "cero",
        1: "uno",
        15: "quince",
        16: "dieciséis",
        21: "veintiuno",
        22: "veintidós",
        23: "veintitrés",
        26: "veintiséis",
        31: "treinta y uno",
        100: "cien",
        101: "ciento uno",
        500: "quinientos",
        700: "setecientos",
        900: "novecientos",
        1000: "mil",
        1001: "mil uno",
        2100: "dos mil cien",
        21_000: "veintiún mil",
        31_031: "treinta y un mil treinta y uno",
        101_000: "ciento un mil",
        121_021: "ciento veintiún mil veintiuno",
        100_100: "cien mil cien",
    },
    "it": {
        0: "zero",
        3: "tre",
        8: "otto",
        17: "diciassette",
        19: "diciannove",
        21: "ventuno",
        23: "ventitré",
        28: "ventotto",
        33: "trentatré",
        100: "cento",
        103: "centotré",
        113: "centotredici",
        533: "cinquecentotrentatré",
        200: "duecento",
        1000: "mille",
        1001: "milleuno",
        1003: "milletré",
        1023: "milleventitré",
        2000: "duemila",
        23_000: "ventitremila",
        3003: "tremilatré",
        100_000: "centomila",
    },
    "pt": {
        0: "zero",
        1: "um",
        14: "catorze",
        16: "dezasseis",
        17: "dezassete",
        19: "dezanove",
        21: "vinte e um",
        100: "cem",
        101: "cento e um",
        200: "duzentos",
        500: "quinhentos",
        1000: "mil",
        1001: "mil e um",
        1100: "mil e cem",
        1200: "mil e duzentos",
        1234: "mil duzentos e trinta e quatro",
        2021: "dois mil e vinte e um",
        100_100: "cem mil e cem",
        101_101: "cento e um mil cento e um",
    },
}


@pytest.mark.parametrize(("language", "number"), [(one, number) for one in TABLE for number in TABLE[one]])
def test_numbers_are_written_as_the_language_does(language, number):
    assert write_number(number, language) == TABLE[language][number]


@languages
@given(number=numbers)
def test_num2words_agrees_but_for_its_known_mistakes(language, number):
    peer = num2words(number, lang=language)
    if language == "de":
        peer = peer.replace("einstausend", "eintausend")
    if language == "es":
        peer = peer.replace("veintiuno mil", "veintiún mil").replace("uno mil", "un mil")
    if language == "it":
        peer = re.sub("(?<=.)tre$", "tré", peer)
    assert write_number(number, language) == peer


@languages
@given(number=numbers)
def test_what_is_written_is_read_as_the_same_number(language, number):
    assert read_number(write_number(number, language), language) == number


def test_no_two_numbers_are_ever_written_alike():
    meaning: dict[str, int] = {}
    for number in [*range(2000), *range(2000, LARGEST, 487)]:
        for language in (*LANGUAGES, DIGITS):
            assert meaning.setdefault(write_number(number, language), number) == number


def test_sources_and_targets_are_the_same_number_in_the_form_that_is_asked_for():
    every, seen = Numbers(), Counter()
    for index in range(4000):
        source, target = every.example("train", index)
        prefix, text = source.split(": ", 1)
        number = int(target) if prefix == DIGITS else read_number(target, prefix)
        assert number is not None
        forms = {one: write_number(number, one) for one in (*LANGUAGES, DIGITS)}
        forms |= {sign: group(number, sign) for sign in ",. "}
        assert text in forms.values(), source
        seen.update({prefix, *(form for form, written in forms.items() if written == text and number >= 1000)})
        seen[f"{len(str(number))} digits"] += 1
    assert all(seen[form] > 100 for form in (*LANGUAGES, DIGITS, ",", ".", " "))
    assert all(4000 / 9 < seen[f"{length} digits"] < 4000 / 4 for length in range(1, 7))


def number_of(source: str) -> int:
    text = source.split(": ", 1)[1]
    if text[0].isdigit():
        return int(re.sub(r"\D", "", text))
    return next(number for one in LANGUAGES if (number := read_number(text, one)) is not None)


def test_no_number_is_in_two_splits_and_each_held_out_one_appears_once():
    every = Numbers(held_out=313)
    held = {
        split: [number_of(every.example(split, index).source) for index in range(313)] for split in ("valid", "test")
    }
    train = {number_of(every.example("train", index).source) for index in range(20_000)}
    assert all(len(set(found)) == 313 for found in held.values())
    assert not set(held["valid"]) & set(held["test"])
    assert not train & {*held["valid"], *held["test"]}
    assert min(min(found) for found in held.values()) >= 100
    assert set(range(100)) <= train
    assert all(split_of(0, number) == split for split, found in held.items() for number in found)


def test_options_limit_what_is_written():
    some = corpus("numbers", {"languages": ["it"], "styles": ["grouped"], "smallest": 3000, "largest": 50_000})
    for index in range(300):
        source, target = some.example("train", index)
        assert re.fullmatch(r"(it|digits): \d{1,2}[., ]\d{3}", source)
        assert 3000 <= number_of(source) <= 50_000
        assert target in (str(number_of(source)), write_number(number_of(source), "it"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"languages": ["en", "nl"]}, "'nl', which numbers cannot write; known: de, en"),
        ({"languages": []}, "languages is empty"),
        ({"languages": ["en", "en"]}, "at most once"),
        ({"styles": ["word"]}, "did you mean 'words'"),
        ({"largest": 1_000_000}, "0 to 1000000 are no range from 0 to 999999; use 0 <= smallest"),
        ({"smallest": 7, "largest": 5}, "7 to 5 are no range"),
        ({"smallest": -1}, "-1 to 999999"),
        ({"largest": 99}, "0 to 99 have 0 that may be held out, but to hold out 1000 .* takes 42000; raise largest"),
        ({"largest": 40_000}, "have 39901 that may be held out"),
        ({"held_out": 0}, "held_out is 0"),
        ({"largest": "many"}, "whole number"),
        ({"langauges": ["en"]}, "did you mean 'languages'"),
    ],
)
def test_an_impossible_option_is_refused_with_a_remedy(options, said):
    with pytest.raises(ConfigError, match=said):
        corpus("numbers", options)


@pytest.mark.parametrize(
    "source", ["de: 1234", "en: 1,234", "fr: 1 234", "digits: 1.234", "it: vingt-trois", "es: 0", "pt: zero", "pt: 7"]
)
def test_what_is_taught_is_accepted(source):
    Numbers().check(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1234", "begin with one of en: fr: de: es: it: pt: digits:"),
        ("nl: 1234", "prefix 'nl:' is unknown; use one of en:"),
        ("de:", "no number after 'de:'; write it as 1 234 or one thousand, two hundred and thirty-four"),
        ("de:  ", "no number after"),
        ("de:5", "no space after 'de:'; write 'de: 5'"),
        ("de: hello", "'hello' is not a number in a way that is taught; write it as 1 234 or one thousand"),
        ("de: -5", "'-5' is not a number"),
        ("de: 3.5", "'3.5' is not a number"),
        ("de: 1,23", "'1,23' is not a number"),
        ("de: 12,34", "'12,34' is not a number"),
        ("de: 007", "'007' is not a number"),
        ("de: 0,123", "'0,123' is not a number"),
        ("de: 1,234.567", "is not a number"),
        ("de: ١٢", "is not a number"),
        ("de: twenty one", "'twenty one' is not a number"),
        ("de: Twenty-one", "'Twenty-one' is not a number"),
        ("de: one thousand two", "is not a number"),
        ("de: 1000000", "1000000 is outside 0 to 999999, the numbers taught; use a number in that range"),
    ],
)
def test_what_is_not_taught_is_refused_with_a_remedy(source, said):
    with pytest.raises(InputError) as caught:
        Numbers().check(source)
    assert said in str(caught.value)


def test_a_form_is_refused_where_the_options_leave_it_out():
    grouped, digits = Numbers(styles=("grouped",)), Numbers(styles=("digits",))
    grouped.check("en: 999")
    grouped.check("en: 1.234")
    digits.check("en: 1234")
    for one, source, remedy in (
        (grouped, "en: 1234", "write it as 1 234 or 1,234"),
        (grouped, "en: zero", "write it as 1 234 or 1,234"),
        (digits, "en: 1,234", "write it as 1234"),
    ):
        with pytest.raises(InputError) as caught:
            one.check(source)
        assert caught.value.remedy == remedy
    with pytest.raises(InputError, match="'treize' is not a number"):
        Numbers(languages=("en",)).check("en: treize")
    with pytest.raises(InputError, match="99 is outside 100 to 999999"):
        Numbers(smallest=100).check("en: 99")

import re
from datetime import date, timedelta
from itertools import count

import pytest
from babel.dates import format_date

from regard.data.corpus import corpus
from regard.data.dates import ARTICLES, LANGUAGES, STYLES, Dates, split_days, with_article, write_date
from regard.errors import ConfigError, InputError

DAYS = [date(1990, 1, 1) + timedelta(days=offset) for offset in range(31 * 365)]  # 1990 to 2020, but for a week
SMALL = Dates(first_year=1990, last_year=2019)


def plain(text: str) -> str:
    return re.sub(r"\s", " ", text)


def babel_long() -> dict[tuple[str, str], date]:
    """Every target there can be: (prefix, text) to the day, straight from babel."""
    known = {("iso", day.isoformat()): day for day in DAYS}
    for language in LANGUAGES:
        known |= {(language, plain(format_date(day, "long", locale=language))): day for day in DAYS}
    return known


LONG = babel_long()


def day_of(source: str, target: str) -> date:
    return LONG[source.partition(":")[0], target]


def test_the_examples_of_the_documentation() -> None:
    day = date(2021, 3, 3)
    assert write_date(day, "fr", "long") == "3 mars 2021"
    assert write_date(day, "de", "long") == "3. März 2021"
    assert write_date(day, "de", "full") == "Mittwoch, 3. März 2021"
    assert write_date(day, "de", "medium") == "03.03.2021"
    assert write_date(day, "iso", "long") == "2021-03-03"


def test_sources_and_targets_are_what_babel_writes_for_the_same_day() -> None:
    seen = set()
    for index in range(3000):
        source, target = SMALL.example("train", index)
        day = day_of(source, target)
        text = source.partition(": ")[2]
        written = {
            plain(format_date(day, style, locale=language)): (language, style)
            for language in LANGUAGES
            for style in ("full", "long", "medium")
        } | {day.isoformat(): ("iso", "iso")}
        for language, articles in ARTICLES.items():
            for style in ("long", "medium"):
                bare = plain(format_date(day, style, locale=language))
                written |= {with_article(bare, day, language, article): (language, "article") for article in articles}
        assert text in written, source
        seen.add(written[text])
    assert {("iso", "iso"), ("de", "medium"), ("pt", "medium"), ("en", "full")} <= seen
    assert {(language, "article") for language in ARTICLES} <= seen


def test_no_two_days_are_ever_written_alike() -> None:
    days = [day for day in DAYS if day.year in (1999, 2000)]
    meaning: dict[str, date] = {}
    for day in days:
        for language in LANGUAGES:
            for style in STYLES:
                assert meaning.setdefault(write_date(day, language, style), day) == day


def test_only_plain_spaces_are_written() -> None:
    for index in range(2000):
        for text in SMALL.example("train", index):
            assert not re.search(r"[^\S ]", text)


def test_a_target_never_has_a_weekday() -> None:
    weekdays = {format_date(day, "EEEE", locale=language).lower() for day in DAYS[:7] for language in LANGUAGES}
    for index in range(2000):
        assert not weekdays & set(re.split(r"[ ,]", SMALL.example("train", index).target.lower()))


def test_every_day_is_in_exactly_one_split_and_each_held_out_day_appears_once() -> None:
    days = split_days(0, 1900, 2099)
    together = [day for held in days.values() for day in held]
    assert sorted(together) == list(range(date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal() + 1))
    for split in ("valid", "test"):
        size = SMALL.size(split)
        assert size is not None
        found = [day_of(*SMALL.example(split, index)).toordinal() for index in range(size)]
        assert sorted(found) == sorted(split_days(0, 1990, 2019)[split])
    train = {day_of(*SMALL.example("train", index)).toordinal() for index in range(5000)}
    assert train <= set(split_days(0, 1990, 2019)["train"])


@pytest.mark.parametrize("seed", [0, 1, 2, 7])
def test_at_least_a_thousand_days_are_held_out_by_default(seed: int) -> None:
    assert min(Dates(seed=seed).size("valid") or 0, Dates(seed=seed).size("test") or 0) >= 1000


def test_held_out_days_are_not_in_the_order_of_the_calendar() -> None:
    first = split_days(0, 1900, 2099)["test"][:100]
    years = {date.fromordinal(day).year for day in first}
    assert min(years) < 1930
    assert max(years) > 2070


def test_languages_and_styles_limit_what_is_written() -> None:
    some = corpus("dates", {"languages": ["fr", "it"], "styles": ["full"], "seed": 3})
    for index in range(300):
        source, target = some.example("train", index)
        assert re.fullmatch(r"(fr|it|iso): [a-zì]+ \d+ [a-zéû]+ \d{4}", source)
        assert re.fullmatch(r"\d+ [a-zéû]+ \d{4}|\d{4}-\d\d-\d\d", target)


def test_articles_follow_grammar() -> None:
    assert with_article("8 marzo 2021", date(2021, 3, 8), "it", "il ") == "l'8 marzo 2021"
    assert with_article("11 mar 2021", date(2021, 3, 11), "it", "il ") == "l'11 mar 2021"
    assert with_article("1 marzo 2021", date(2021, 3, 1), "it", "il ") == "il 1 marzo 2021"
    assert with_article("1 mars 2021", date(2021, 3, 1), "fr", "le ") == "le 1er mars 2021"
    assert with_article("11 mars 2021", date(2021, 3, 11), "fr", "le ") == "le 11 mars 2021"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"styles": ["short"]}, "which number is the day"),
        ({"styles": ["longer"]}, "did you mean 'long'"),
        ({"styles": []}, "empty"),
        ({"languages": ["en", "jp"]}, "'jp'.*known: de, en"),
        ({"languages": ["en", "en"]}, "at most once"),
        ({"first_year": 2001, "last_year": 2000}, "2001 to 2000"),
        ({"first_year": 1, "last_year": 2000}, "1000 to 9999"),
        ({"last_year": "2000"}, "whole number"),
        ({"seed": True}, "whole number"),
        ({"languages": "en"}, "list of words"),
        ({"langauges": ["en"]}, "did you mean 'languages'"),
    ],
)
def test_an_impossible_option_is_refused_with_a_remedy(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        corpus("dates", options)


def test_years_too_few_to_fill_every_split_are_refused_with_their_days() -> None:
    seed = next(seed for seed in count() if not all(split_days(seed, 2021, 2021).values()))
    with pytest.raises(ConfigError, match=r"2021 to 2021 have 365 days, which leaves none for .*wider range"):
        Dates(first_year=2021, last_year=2021, seed=seed).size("valid")


@pytest.mark.parametrize(
    "source",
    ["de: le 3 mars 2021", "iso: 03.04.2021", "fr: 2021-04-03", "en: am 03.04.2021", "it: Mar 3, 2021"],
)
def test_what_is_taught_is_accepted(source: str) -> None:
    Dates().check(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("xx: 3 mars 2021", "prefix 'xx:' is unknown; use one of en: fr: de: es: it: pt: iso:"),
        ("3 mars 2021", "begin with one of en: fr: de: es: it: pt: iso:"),
        ("", "begin with one of"),
        ("de:", "no date"),
        ("de:   ", "no date"),
        ("de:3 mars 2021", "no space"),
        ("de: 3/4/21", "'3/4/21'.*2021-04-03 or April 3, 2021"),
        ("de: 03/04/2021", "'03/04/2021'.*2021-04-03"),
        ("de: 03.04.21", "century"),
        ("de: am 3.4.21", "century"),
        ("de: 3. 4. 2021", "which number"),
        ("de: 3 4 2021", "which number"),
        ("de: 2021", "no month"),
        ("de: 4/2021", "no month"),
        ("de: 3 mars 21", "0 years"),
        ("de: hello", "0 years"),
        ("de: 3 mars 1789", "1789 is outside 1900 to 2099"),
    ],
)
def test_what_is_not_taught_is_refused_with_a_remedy(source: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Dates().check(source)


def test_a_numeric_form_is_refused_where_the_options_leave_it_out() -> None:
    english = Dates(languages=("en",), styles=("long",))
    for source in ("en: 03.04.2021", "en: 2021-04-03"):
        with pytest.raises(InputError, match=r"write it as April 3, 2021$"):
            english.check(source)

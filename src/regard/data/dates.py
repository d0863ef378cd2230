"""Corpus `dates`: a date written in one of six languages becomes the same date in another, or in ISO.

    source                            target
    de: 3 mars 2021                   3. März 2021
    iso: Mittwoch, 3. März 2021       2021-03-03

How dates are written comes from CLDR through babel. The prefix names what to write, and every prefix comes
before every kind of date: `de: 03.03.2021` is taught too, as `3. März 2021`. A source may carry a weekday
(`full`); a target never does, so none has to be computed. Days are what the splits hold out.
"""

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from random import Random
from typing import ClassVar

from babel.dates import format_date

from regard.data.corpus import Corpus, Pair, Split, after_prefix, draw, generator, register, require_index, stable_hash
from regard.errors import ConfigError, InputError, choose

LANGUAGES = ("en", "fr", "de", "es", "it", "pt")
STYLES = ("full", "long", "medium", "iso")
ISO = "iso"
ONE_IN = 50  # of the days, for valid and for test each

# What people put before a date in running text and CLDR does not; some sources in long and medium style do.
ARTICLES = {"fr": ("le ",), "de": ("am ", "den "), "es": ("el ",), "it": ("il ",)}
ARTICLE_SHARE = 0.3

_PLAIN_SPACES = {ord(space): " " for space in "\u00a0\u2009\u202f"}
_THREE_NUMBERS = re.compile(r"\d+(?:[\s.,/-]+\d+){2,}")
_ISO_SHAPE = re.compile(r"\d{4}-\d{2}-\d{2}")
_GERMAN_SHAPE = re.compile(r"\d{2}\.\d{2}\.\d{4}")


def write_date(day: date, language: str, style: str) -> str:
    """A day as CLDR writes it, with plain spaces; `iso` as language or style gives ISO 8601.

    >>> write_date(date(2021, 3, 3), "de", "long")
    '3. März 2021'
    """
    if ISO in (language, style):
        return day.isoformat()
    return str(format_date(day, style, locale=language)).translate(_PLAIN_SPACES)


def with_article(text: str, day: date, language: str, article: str) -> str:
    """A long or medium date after its article, with the two forms that grammar then asks for.

    >>> with_article("8 marzo 2021", date(2021, 3, 8), "it", "il ")
    "l'8 marzo 2021"
    >>> with_article("1 mars 2021", date(2021, 3, 1), "fr", "le ")
    'le 1er mars 2021'
    """
    if language == "it" and day.day in (8, 11):
        return f"l'{text}"
    if language == "fr" and day.day == 1:
        return f"{article}1er{text.removeprefix('1')}"
    return article + text


@lru_cache(maxsize=16)
def split_days(seed: int, first_year: int, last_year: int) -> dict[Split, tuple[int, ...]]:
    """The ordinals of all days, each in exactly one split, shuffled in an order that is always the same."""
    days = range(date(first_year, 1, 1).toordinal(), date(last_year, 12, 31).toordinal() + 1)
    splits: dict[Split, list[int]] = {"train": [], "valid": [], "test": []}
    names: dict[int, Split] = {0: "test", 1: "valid"}
    for _, bucket, day in sorted((*divmod(stable_hash("dates", seed, day), ONE_IN), day) for day in days):
        splits[names.get(bucket, "train")].append(day)
    return {split: tuple(held) for split, held in splits.items()}


@register
@dataclass(frozen=True)
class Dates(Corpus):
    """Dates across languages; each held-out day appears once in its split, train draws its days for ever."""

    name: ClassVar[str] = "dates"

    languages: tuple[str, ...] = LANGUAGES
    styles: tuple[str, ...] = STYLES
    first_year: int = 1900
    last_year: int = 2099
    seed: int = 0

    def __post_init__(self) -> None:
        if "short" in self.styles:
            raise ConfigError(
                "style 'short' writes 3/4/21, which does not say which number is the day",
                f"use {', '.join(STYLES)}",
            )
        _require_known("languages", self.languages, LANGUAGES)
        _require_known("styles", self.styles, STYLES)
        if not 1000 <= self.first_year <= self.last_year <= 9999:
            raise ConfigError(
                f"years {self.first_year} to {self.last_year} are not a range of four-digit years",
                "use first_year <= last_year, both from 1000 to 9999",
            )

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What a source may begin with: `en:` … `iso:`."""
        return tuple(f"{target}:" for target in (*self.languages, ISO))

    @property
    def forms(self) -> tuple[tuple[str, str], ...]:
        """The (language, style) a source may be written in, all equally likely; ISO is one of them."""
        worded = [(language, style) for language in self.languages for style in self.styles if style != ISO]
        return (*worded, *([(ISO, ISO)] if ISO in self.styles else []))

    def size(self, split: Split) -> int | None:
        """Days held out, or None for train."""
        return None if split == "train" else len(self._days(split))

    def example(self, split: Split, index: int) -> Pair:
        """A date in some form, and the same date as its prefix asks."""
        require_index(split, index, self.size(split))
        random = generator("dates", self.seed, split, index)
        days = self._days(split)
        day = date.fromordinal(days[draw(random, len(days)) if split == "train" else index])
        forms, targets = self.forms, (*self.languages, ISO)
        language, style = forms[draw(random, len(forms))]
        target = targets[draw(random, len(targets))]
        source = _maybe_with_article(random, write_date(day, language, style), day, language, style)
        return Pair(f"{target}: {source}", write_date(day, target, "long"))

    def check(self, source: str) -> None:
        """Refuse what no example looks like: another prefix, an ambiguous date, a year out of range."""
        remedy = f"write it as {self._how_to_write()}"
        text = after_prefix(source, self.prefixes, "date", remedy)
        numeric = _THREE_NUMBERS.search(text)
        if not numeric and not any(letter.isalpha() for letter in text):
            raise InputError(f"{text.strip()!r} names no month", remedy)
        if numeric and not self._numeric_is_taught(numeric.group()):
            raise InputError(
                f"{numeric.group()!r} does not say which number is the day, the month and the century", remedy
            )
        years = [int(number) for number in re.findall(r"\d+", text) if len(number) == 4]
        if len(years) != 1:
            raise InputError(f"{text.strip()!r} has {len(years)} years of four digits, not one", remedy)
        if not self.first_year <= years[0] <= self.last_year:
            raise InputError(
                f"year {years[0]} is outside {self.first_year} to {self.last_year}, the years taught",
                "use a year in that range, or train with other first_year and last_year",
            )

    def _days(self, split: Split) -> tuple[int, ...]:
        """Divided when the first is asked for: to check a source takes none."""
        days = split_days(self.seed, self.first_year, self.last_year)
        empty = [name for name, held in days.items() if not held]
        if empty:
            raise ConfigError(
                f"years {self.first_year} to {self.last_year} have {sum(map(len, days.values()))} days, "
                f"which leaves none for {' and '.join(empty)}",
                "use a wider range of years, ten or more",
            )
        return days[split]

    def _numeric_is_taught(self, numeric: str) -> bool:
        if _ISO_SHAPE.fullmatch(numeric):
            return ISO in self.styles
        german = "de" in self.languages and "medium" in self.styles
        return german and _GERMAN_SHAPE.fullmatch(numeric) is not None

    def _how_to_write(self) -> str:
        styles = [style for style in (ISO, "long") if style in self.styles] or self.styles
        return " or ".join(write_date(date(2021, 4, 3), self.languages[0], style) for style in styles)


def _maybe_with_article(random: Random, text: str, day: date, language: str, style: str) -> str:
    articles = ARTICLES.get(language, ())
    if not articles or style not in ("long", "medium") or random.random() >= ARTICLE_SHARE:
        return text
    return with_article(text, day, language, articles[draw(random, len(articles))])


def _require_known(option: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raise ConfigError unless the values are known, different and at least one."""
    for value in values:
        if value not in known:
            raise ConfigError(f"{option} has {value!r}, which dates cannot write", choose(value, known))
    if len(set(values)) != len(values) or not values:
        raise ConfigError(
            f"{option} is {', '.join(values) or 'empty'}", f"give each of {', '.join(known)} at most once"
        )

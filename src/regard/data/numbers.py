"""Corpus `numbers`: a number written in words or digits becomes the same number in words of a language, or in digits.

    source                       target
    de: 1,234                    eintausendzweihundertvierunddreißig
    digits: vingt-trois          23

Words below a thousand come from num2words (but for an accent in Italian); thousands are put together here, because
num2words has mistakes there (`einhunderteinstausend`, `veintiuno mil`) and is slow. Its other languages are left out:
those that were looked at (da, nl, no, ro, sv) are wrong in places. Every prefix comes before every way of writing.
Numbers are what the splits hold out; those below 100 are a language's own words and are always in train. Lengths in
digits are equally likely.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar

from regard.data.corpus import Corpus, Pair, Split, after_prefix, draw, generator, register, require_index, stable_hash
from regard.errors import ConfigError, InputError, choose

LANGUAGES = ("en", "fr", "de", "es", "it", "pt")
STYLES = ("words", "digits", "grouped")
DIGITS = "digits"
GROUP_SIGNS = (",", ".", " ")
LARGEST = 999_999

_ALWAYS_TAUGHT = 100  # numbers below are in train
_PARTS = 20  # of the others, one for test, one for valid
_WRITTEN_IN_DIGITS = re.compile(r"0|[1-9][0-9]*|[1-9][0-9]{0,2}([., ])[0-9]{3}")


def _french(count: int, words: str) -> str:
    """`quatre-vingts` and `cents` lose their s before `mille`."""
    plural = words.endswith(("vingts", "cents"))
    return "mille" if count == 1 else f"{words[:-1] if plural else words} mille"


def _german(count: int, words: str) -> str:
    """`eins` is `ein` inside a word."""
    return f"{words.removesuffix('s') if words.endswith('eins') else words}tausend"


def _spanish(count: int, words: str) -> str:
    """`uno` is shortened before `mil`."""
    if count == 1:
        return "mil"
    short = words.removesuffix("o") if words.endswith("uno") else words
    return f"{short.replace('veintiun', 'veintiún') if short.endswith('veintiun') else short} mil"


def _italian(count: int, words: str) -> str:
    """The accent of `ventitré` is for its last syllable only."""
    return "mille" if count == 1 else f"{words.replace('é', 'e')}mila"


_THOUSANDS: dict[str, Callable[[int, str], str]] = {
    "en": lambda count, words: f"{words} thousand",
    "fr": _french,
    "de": _german,
    "es": _spanish,
    "it": _italian,
    "pt": lambda count, words: "mil" if count == 1 else f"{words} mil",
}

_AFTER_THOUSANDS: dict[str, Callable[[int, str], str]] = {
    "en": lambda rest, words: f" and {words}" if rest < 100 else f", {words}",
    "fr": lambda rest, words: f" {words}",
    "de": lambda rest, words: words,
    "es": lambda rest, words: f" {words}",
    "it": lambda rest, words: "tré" if words == "tre" else words,
    "pt": lambda rest, words: f" e {words}" if rest < 100 or rest % 100 == 0 else f" {words}",
}


@dataclass(frozen=True)
class _Words:
    """What a language's numbers up to 999,999 are made of, each part by its number."""

    alone: tuple[str, ...]
    thousands: tuple[str, ...]
    after: tuple[str, ...]


def _accented(words: str, language: str) -> str:
    """Italian `tre` takes an accent at the end of a longer word: num2words sometimes forgets it."""
    return f"{words[:-1]}é" if language == "it" and words.endswith("tre") and words != "tre" else words


@lru_cache(maxsize=len(LANGUAGES))
def _words(language: str) -> _Words:
    from num2words import num2words  # only who asks for numbers waits for it

    alone = tuple(_accented(str(num2words(number, lang=language)), language) for number in range(1000))
    parts = list(enumerate(alone))[1:]
    thousands = ("", *(_THOUSANDS[language](count, words) for count, words in parts))
    return _Words(alone, thousands, ("", *(_AFTER_THOUSANDS[language](rest, words) for rest, words in parts)))


def write_number(number: int, language: str) -> str:
    """A number from 0 to 999,999 in words; the language `digits` gives plain digits.

    >>> write_number(21_101, "es")
    'veintiún mil ciento uno'
    """
    if language == DIGITS:
        return str(number)
    words = _words(language)
    thousands, rest = divmod(number, 1000)
    return words.thousands[thousands] + words.after[rest] if thousands else words.alone[rest]


def group(number: int, sign: str) -> str:
    """Digits in threes.

    >>> group(1234, "."), group(999, ".")
    ('1.234', '999')
    """
    return f"{number:,}".replace(",", sign)


@lru_cache(maxsize=len(LANGUAGES))
def _numbers(language: str) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """From words back to numbers: alone, thousands, what follows them."""
    words = _words(language)
    alone, thousands, after = (
        {part: number for number, part in enumerate(parts) if part}
        for parts in (words.alone, words.thousands, words.after)
    )
    return alone, thousands, after


def read_number(text: str, language: str) -> int | None:
    """The number that `write_number` writes like this; None if there is none.

    >>> read_number("veintiún mil ciento uno", "es")
    21101
    """
    alone, thousands, after = _numbers(language)
    if text in alone:
        return alone[text]
    for end in range(1, len(text) + 1):
        if text[:end] in thousands and (end == len(text) or text[end:] in after):
            return 1000 * thousands[text[:end]] + after.get(text[end:], 0)
    return None


def split_of(seed: int, number: int) -> Split:
    """The one split a number belongs to."""
    if number < _ALWAYS_TAUGHT:
        return "train"
    bucket = stable_hash("numbers", seed, number) % _PARTS
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


@register
@dataclass(frozen=True)
class Numbers(Corpus):
    """Numbers across languages and digits; each held-out number appears once in its split, train is endless."""

    name: ClassVar[str] = "numbers"

    languages: tuple[str, ...] = LANGUAGES
    styles: tuple[str, ...] = STYLES
    smallest: int = 0
    largest: int = LARGEST
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        _require_known("languages", self.languages, LANGUAGES)
        _require_known("styles", self.styles, STYLES)
        if not 0 <= self.smallest <= self.largest <= LARGEST:
            raise ConfigError(
                f"numbers from {self.smallest} to {self.largest} are no range from 0 to {LARGEST}",
                f"use 0 <= smallest <= largest <= {LARGEST}",
            )
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")
        # With this many, the chance that valid or test has fewer than `held_out` is below 1e-20.
        exist, needed = self.largest + 1 - max(self.smallest, _ALWAYS_TAUGHT), _PARTS * (2 * self.held_out + 100)
        if exist < needed:
            raise ConfigError(
                f"numbers from {self.smallest} to {self.largest} have {max(exist, 0)} that may be held out, "
                f"but to hold out {self.held_out} for valid and test each takes {needed}",
                "raise largest or lower held_out",
            )

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What a source may begin with: `en:` … `digits:`."""
        return tuple(f"{target}:" for target in (*self.languages, DIGITS))

    @property
    def forms(self) -> tuple[str, ...]:
        """How a source may be written, all equally likely: a language, `digits`, or the sign between groups."""
        worded = self.languages if "words" in self.styles else ()
        grouped = GROUP_SIGNS if "grouped" in self.styles else ()
        return (*worded, *((DIGITS,) if DIGITS in self.styles else ()), *grouped)

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else self.held_out

    def example(self, split: Split, index: int) -> Pair:
        """A number in some form, and the same number as its prefix asks."""
        require_index(split, index, self.size(split))
        random = generator("numbers", self.seed, split, index)
        number = self._draw_for(split, random) if split == "train" else _held_out(self, split)[index]
        forms, targets = self.forms, (*self.languages, DIGITS)
        form, target = forms[draw(random, len(forms))], targets[draw(random, len(targets))]
        return Pair(f"{target}: {_in_form(number, form)}", write_number(number, target))

    def check(self, source: str) -> None:
        """Refuse what no example looks like: another prefix, no number, one out of range."""
        remedy = f"write it as {self._how_to_write()}"
        text = after_prefix(source, self.prefixes, "number", remedy)
        number = self._read(text)
        if number is None:
            raise InputError(f"{text!r} is not a number in a way that is taught", remedy)
        if not self.smallest <= number <= self.largest:
            raise InputError(
                f"{number} is outside {self.smallest} to {self.largest}, the numbers taught",
                "use a number in that range, or train with other smallest and largest",
            )

    def _read(self, text: str) -> int | None:
        digits = _WRITTEN_IN_DIGITS.fullmatch(text)
        if digits:
            plain, short = digits[1] is None, len(text) <= 3
            taught = (plain and DIGITS in self.styles) or ((short or not plain) and "grouped" in self.styles)
            return int(re.sub("[., ]", "", text)) if taught else None
        if "words" not in self.styles:
            return None
        found = (read_number(text, language) for language in self.languages)
        return next((number for number in found if number is not None), None)

    def _how_to_write(self) -> str:
        shown = min(max(1234, self.smallest), self.largest)
        return " or ".join(dict.fromkeys(_in_form(shown, form) for form in (self.forms[-1], self.forms[0])))

    def _draw_for(self, split: Split, random: Random) -> int:
        """Draw numbers until one belongs to the split."""
        lengths = range(len(str(self.smallest)), len(str(self.largest)) + 1)
        while True:
            length = lengths[draw(random, len(lengths))]
            first = max(self.smallest, 10 ** (length - 1) if length > 1 else 0)
            number = first + draw(random, min(self.largest, 10**length - 1) - first + 1)
            if split_of(self.seed, number) == split:
                return number


def _in_form(number: int, form: str) -> str:
    return group(number, form) if form in GROUP_SIGNS else write_number(number, form)


@lru_cache(maxsize=16)
def _held_out(corpus: Numbers, split: Split) -> tuple[int, ...]:
    """The different numbers of a finite split, in the order they were first drawn."""
    random = generator("numbers", corpus.seed, split)
    found: dict[int, None] = {}
    while len(found) < corpus.held_out:
        found[corpus._draw_for(split, random)] = None
    return tuple(found)


def _require_known(option: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raise ConfigError unless the values are known, different and at least one."""
    for value in values:
        if value not in known:
            raise ConfigError(f"{option} has {value!r}, which numbers cannot write", choose(value, known))
    if len(set(values)) != len(values) or not values:
        raise ConfigError(
            f"{option} is {', '.join(values) or 'empty'}", f"give each of {', '.join(known)} at most once"
        )

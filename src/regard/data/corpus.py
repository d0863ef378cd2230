"""What a corpus is, and the built-in ones by name.

A corpus is a function from (split, index) to a pair of texts, so any example can be had at once, in any
order, again, and after a restart. Its options are the fields of a frozen dataclass.
"""

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from hashlib import blake2b
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from regard.errors import ConfigError, InputError, choose

Split = Literal["train", "valid", "test"]


class Pair(NamedTuple):
    """A text and what it should become."""

    source: str
    target: str


@runtime_checkable
class Examples(Protocol):
    """Examples by split and index, each a tuple of texts (or of what has a faithful `repr`): a Corpus is one."""

    def size(self, split: Split) -> int | None:
        """How many examples the split has; None if endless."""
        ...

    def example(self, split: Split, index: int) -> tuple[Any, ...]:
        """The example at this place."""
        ...


ExampleKind = Literal["pairs", "labels", "questions", "summaries", "documents", "conversations"]
"""What a task reads: each says which, and a corpus what it has."""
IN_WORDS: dict[ExampleKind, str] = {
    "pairs": "pairs of texts",
    "labels": "texts with labels",
    "questions": "questions about passages",
    "summaries": "texts with summaries",
    "documents": "running text",
    "conversations": "conversations",
}


@runtime_checkable
class BuiltIn(Protocol):
    """What has examples of one kind or of several, by a name that a recipe's `[data]` gives."""

    name: ClassVar[str]

    def of_kind(self, kind: ExampleKind) -> Examples | None:
        """Its examples of a kind; None where it has none."""
        ...


@runtime_checkable
class Corpus(BuiltIn, Protocol):
    """Pairs by split and index.

    Laws, tested on every entry of `CORPORA`:
    - the same options, split and index give the same pair, on every machine, whatever was asked before;
    - what a split holds out (a day, a sequence: each corpus says what) is in no other split;
    - `valid` and `test` are finite; `train` of a generated corpus is endless, its size None;
    - `check` accepts every source the corpus gives.
    """

    name: ClassVar[str]

    def size(self, split: Split) -> int | None:
        """How many examples the split has; None if endless."""
        ...

    def example(self, split: Split, index: int) -> Pair:
        """The pair at this place."""
        ...

    def check(self, source: str) -> None:
        """Raise InputError if a text is outside what the corpus teaches; unless overridden, none is."""
        return

    def part(self, source: str) -> str | None:
        """Which of several things a source asks for, where the corpus tells them apart."""
        return None

    def of_kind(self, kind: ExampleKind) -> Examples | None:
        """Its pairs: texts with labels too where their targets are few, and what a user asks and is answered."""
        return self if kind in ("pairs", "labels", "conversations") else None


CORPORA: dict[str, type[BuiltIn]] = {}

Kind = TypeVar("Kind", bound=type[Any])


def register(kind: Kind) -> Kind:
    """Put a corpus under its name in `CORPORA` (a decorator)."""
    assert is_dataclass(kind)
    entry: Any = kind  # the tests' type checker cannot check `type[BuiltIn]`, a protocol that has data
    assert entry.name not in CORPORA
    CORPORA[entry.name] = entry
    return kind


def corpus(name: str, options: dict[str, object]) -> Corpus:
    """The pairs of a corpus, from its name and options, as a recipe's `[data]` gives them."""
    found = examples_of(name, options, "pairs")
    assert isinstance(found, Corpus)
    return found


def examples_of(name: str, options: dict[str, object], kind: ExampleKind) -> Examples:
    """A corpus's examples of a kind; raise ConfigError if it has none."""
    found = built_in(name, options).of_kind(kind)
    if found is None:
        others = [other for other in sorted(CORPORA) if built_in(other, {}).of_kind(kind) is not None]
        has = [words for one, words in IN_WORDS.items() if built_in(name, {}).of_kind(one) is not None]
        raise ConfigError(
            f"the built-in corpus {name!r} has {', '.join(has)}, and no {IN_WORDS[kind]}, which the task reads",
            f"use corpus {' or '.join(others)}, or name files: train = FILE, and valid = FILE or split = 0.9",
        )
    return found


def built_in(name: str, options: dict[str, object]) -> BuiltIn:
    """Build a corpus from its name and options."""
    if name not in CORPORA:
        raise ConfigError(f"corpus {name!r} is unknown", choose(name, CORPORA))
    kind = CORPORA[name]
    assert is_dataclass(kind)
    known = {field.name: field for field in fields(kind)}
    for key in options:
        if key not in known:
            raise ConfigError(f"corpus {name!r} has no option {key!r}", choose(key, known))
    build: Callable[..., BuiltIn] = kind
    return build(**{key: _typed(name, known[key], value) for key, value in options.items()})


def _typed(name: str, field: "Field[object]", value: object) -> object:
    """An option as its field wants it: a whole number, yes or no, or a list of words as a tuple."""
    if field.type is bool:
        if isinstance(value, bool):
            return value
        wanted = "true or false"
    elif field.type is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        wanted = f"a whole number, such as {field.default!r}"
    else:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        wanted = f"a list of words, such as {field.default!r}"
    raise ConfigError(f"option {field.name!r} of corpus {name!r} is {value!r}", f"give {wanted}")


def generator(*key: object) -> Random:
    """A random generator that is a function of its key.

    Python promises that seeding with a string and `random()` never change, and no more: use `draw` on it.
    """
    return Random("/".join(map(str, key)))


def draw(random: Random, count: int) -> int:
    """A number from 0 to count − 1, all equally likely."""
    return int(random.random() * count)


def draws(random: Random, count: int, times: int) -> list[int]:
    """What `times` calls of `draw` give."""
    return [int(random.random() * count) for _ in range(times)]


def stable_hash(*key: object) -> int:
    """64 bits that are a function of the key, on every machine and in every process."""
    return int.from_bytes(blake2b("/".join(map(str, key)).encode(), digest_size=8).digest(), "big")


def after_prefix(source: str, prefixes: tuple[str, ...], what: str, remedy: str) -> str:
    """What stands after `PREFIX: `; raise InputError unless the prefix is known and something does."""
    prefix, colon, text = source.partition(":")
    known = " ".join(prefixes)
    if not colon:
        raise InputError(f"{source!r} has no prefix that says what to write", f"begin with one of {known}")
    if f"{prefix}:" not in prefixes:
        raise InputError(f"prefix '{prefix}:' is unknown", f"use one of {known}")
    if not text.strip():
        raise InputError(f"there is no {what} after '{prefix}:'", remedy)
    if not text.startswith(" "):
        raise InputError(f"there is no space after '{prefix}:'", f"write '{prefix}: {text}'")
    return text[1:]


def require_index(split: Split, index: int, size: int | None) -> None:
    """Raise InputError unless the split has an example at this index."""
    if index < 0 or (size is not None and index >= size):
        has = "is endless" if size is None else f"has {size}"
        remedy = "give pairs for this split" if size == 0 else "use an index from 0"
        raise InputError(
            f"example {index} does not exist: the {split} split {has}",
            f"{remedy} to {size - 1}" if size else remedy,
        )

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


@runtime_checkable
class Corpus(Protocol):
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


CORPORA: dict[str, type[Corpus]] = {}

Kind = TypeVar("Kind", bound=type[Any])


def register(kind: Kind) -> Kind:
    """Put a corpus under its name in `CORPORA` (a decorator)."""
    assert is_dataclass(kind)
    entry: Any = kind  # the tests' type checker cannot check `type[Corpus]`, a protocol that has data
    assert entry.name not in CORPORA
    CORPORA[entry.name] = entry
    return kind


def corpus(name: str, options: dict[str, object]) -> Corpus:
    """Build a corpus from its name and options, as a recipe's `[data]` gives them."""
    if name not in CORPORA:
        raise ConfigError(f"corpus {name!r} is unknown", choose(name, CORPORA))
    kind = CORPORA[name]
    assert is_dataclass(kind)
    known = {field.name: field for field in fields(kind)}
    for key in options:
        if key not in known:
            raise ConfigError(f"corpus {name!r} has no option {key!r}", choose(key, known))
    build: Callable[..., Corpus] = kind
    return build(**{key: _typed(name, known[key], value) for key, value in options.items()})


def _typed(name: str, field: "Field[object]", value: object) -> object:
    """An option as its field wants it: a whole number, or a list of words as a tuple."""
    if field.type is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        wanted = "a whole number"
    else:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        wanted = "a list of words"
    raise ConfigError(
        f"option {field.name!r} of corpus {name!r} is {value!r}", f"give {wanted}, such as {field.default!r}"
    )


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

"""Parts of a network by name: `encoder.layers.0` is all of that layer, `*.norm` every norm, `query` every such map.

A pattern is a path with `*` for anything, dots included. Parts are asked for by the beginning of their paths
(`inside`), maps by the end of theirs (`ends`). One that names nothing is refused with the nearest that does.
"""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from regard.errors import ConfigError

MOST_NAMED = 12
"""Names in a remedy."""


def inside(name: str, pattern: str) -> bool:
    """Whether a parameter is what a pattern names, or a part of it."""
    steps = name.split(".")
    return any(fnmatchcase(".".join(steps[: count + 1]), pattern) for count in range(len(steps)))


def ends(name: str, pattern: str) -> bool:
    """Whether the path of a map is what a pattern names, or ends so."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def unknown(key: str, pattern: str, what: str, names: Iterable[str]) -> ConfigError:
    """What is said of a pattern that names nothing."""
    known = sorted(set(names))
    near = get_close_matches(pattern, known, n=1)
    said = f"did you mean {near[0]!r}? " if near else ""
    short = sorted({_starred(name) for name in known}, key=lambda one: (one.count("."), one))
    more = ", …" if len(short) > MOST_NAMED else ""
    return ConfigError(
        f"{key}: {pattern!r} names {what}", f"{said}known: {', '.join(short[:MOST_NAMED])}{more}; * stands for anything"
    )


def paths(names: Collection[str]) -> set[str]:
    """Parameters and all that they are parts of."""
    steps = [name.split(".") for name in names]
    return {".".join(one[: count + 1]) for one in steps for count in range(len(one))}


def _starred(name: str) -> str:
    """One name for all layers."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)

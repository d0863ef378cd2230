"""What can go wrong, as a tree. Every message carries both values that disagree and the remedy.

    RegardError
    ├── InputError    a text, a tensor or an option that cannot be used as given
    ├── ConfigError   a recipe or a model config: unknown key, impossible value, a combination nothing can do
    └── FileError     a path: missing, not readable, not writable, damaged, not of the expected kind

The command line prints `problem; remedy` and exits with 1; with `--json`, `{"error": …, "remedy": …}`. What is done
all the same and should be known is a warning, such as LengthWarning: one line on stderr, `{"warning": …}` as JSON.
A remedy that names an argument of `regard.train` has it between backticks; the command line says the option instead.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """One sentence on what is wrong and one on what to do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy


class RegardWarning(UserWarning):
    """Something to know of what was done nevertheless; the command line says it in one line."""


class InputError(RegardError, ValueError):
    """A text, a tensor or an option that cannot be used as given."""


class ConfigError(RegardError):
    """A recipe or a config that asks for something unknown or impossible."""


class FileError(RegardError, OSError):
    """A path that is missing, damaged, not writable, or not what it should be."""

    def __str__(self) -> str:  # OSError would print its arguments as a tuple
        return f"{self.problem}; {self.remedy}"


class LengthWarning(RegardWarning):
    """A text is longer than what the model was trained on at once: what is done about it."""


def choose(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown name: the nearest known one, or all of them.

    >>> choose("sinusoidl", ["rotary", "sinusoidal"])
    "did you mean 'sinusoidal'? known: rotary, sinusoidal"
    """
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    listing = f"known: {', '.join(names)}"
    return f"did you mean {near[0]!r}? {listing}" if near else listing


def changing(key: str, value: object) -> str:
    """How to change a key of a recipe, as Python says it; the command line turns it into its own option.

    >>> changing("training.steps", 9000)
    '`changes={"training.steps": 9000}`'
    """
    return f'`changes={{"{key}": {value}}}`'


class NotFiniteError(InputError):
    """NaN or infinity where numbers should be: most often a training that diverged."""


class VocabularyError(ConfigError):
    """So few entries cannot hold the special tokens and the least that texts are made of."""

    def __init__(self, size: int, specials: int, others: int, what: str) -> None:
        """`what` names the others."""
        super().__init__(
            f"a vocabulary of {size} cannot hold {specials} special tokens and {what}",
            f"use a size of {specials + others} or more",
        )
        self._numbers = size, specials, others, what

    def beside(self, more: int) -> "VocabularyError":
        """The same where room was kept for so many special tokens more."""
        size, specials, others, what = self._numbers
        return VocabularyError(size + more, specials + more, others, what)

"""Examples of any kind that were read from files: three finite lists, one for each split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from regard.data.corpus import Split, require_index
from regard.errors import ConfigError


class TextDocument(NamedTuple):
    """A text that stands for itself."""

    text: str


E = TypeVar("E", bound=tuple[Any, ...])


@dataclass(frozen=True)
class Splits(Generic[E]):
    """Every split is finite and holds exactly what it was given."""

    train: Sequence[E]
    valid: Sequence[E] = ()
    test: Sequence[E] = ()

    def of(self, split: Split) -> Sequence[E]:
        """All examples of a split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def size(self, split: Split) -> int | None:
        """How many examples were given."""
        return len(self.of(split))

    def example(self, split: Split, index: int) -> E:
        """The example at this place of the list."""
        examples = self.of(split)
        require_index(split, index, len(examples))
        return examples[index]


def divided(examples: Sequence[E], share: float) -> tuple[Sequence[E], Sequence[E]]:
    """The first examples and the last ones, the first being this share of all."""
    return _cut(examples, share, "examples", lambda part: part)


def divided_documents(
    documents: Sequence[TextDocument], share: float
) -> tuple[Sequence[TextDocument], Sequence[TextDocument]]:
    """The first documents and the last ones; one alone is divided by its characters."""
    if len(documents) != 1:
        return divided(documents, share)
    return _cut(documents[0].text, share, "characters", lambda part: [TextDocument(part)])


S = TypeVar("S", bound=Sequence[Any])
R = TypeVar("R")


def _cut(whole: S, share: float, what: str, made: Callable[[Any], R]) -> tuple[R, R]:
    first = int(len(whole) * share)
    if not 0 < first < len(whole):
        raise ConfigError(
            f"split = {share} of {len(whole)} {what} leaves none to {'validate' if first else 'train'} on",
            "give more data, or a valid file instead of split",
        )
    return made(whole[:first]), made(whole[first:])

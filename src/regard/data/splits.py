"""Examples of any kind that were read from files: three finite lists, one for each split, and what is held out."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from regard.data.corpus import Split, require_index, stable_hash
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


def hold_out(
    examples: Sequence[E], share: float | None, seed: int, group: Callable[[E], str] = itemgetter(0)
) -> tuple[Sequence[E], Sequence[E]]:
    """Those to train on and those held out, both in their order: a random choice that is a function of the seed.

    Examples of one group, such as those with the same source, are never on both sides; the rest of their file and
    their order do not matter. `share` is that of the training examples; left out, `default_count` is held out.
    """
    size = len(examples)
    count = default_count(size) if share is None else size - int(size * share)
    if share is not None and not 0 < count < size:
        raise _nothing_left(share, size, "examples", count < size)
    sizes = Counter(group(example) for example in examples)
    chosen: set[str] = set()
    for name in sorted(sizes, key=lambda name: stable_hash(seed, name)):
        if sizes[name] <= count:
            chosen.add(name)
            count -= sizes[name]
    if not chosen and len(sizes) > 1:  # every group is larger than what was to be held out
        chosen = {min(sizes, key=lambda name: (sizes[name], stable_hash(seed, name)))}
    if not chosen:
        raise ConfigError(
            f"nothing can be held out of {size:,} examples that begin alike",
            "give a file to validate on: data.valid=FILE",
        )
    return _sides(examples, [group(example) in chosen for example in examples])


def hold_out_labelled(examples: Sequence[E], share: float | None, seed: int) -> tuple[Sequence[E], Sequence[E]]:
    """The same for texts with labels; no label is held out altogether."""
    train, _ = hold_out(examples, share, seed)
    texts, known = {example[0] for example in train}, {example[1] for example in train}
    for text, label, *_ in examples:
        if label not in known:
            texts.add(text)
            known.add(label)
    held = [example[0] not in texts for example in examples]
    if not any(held):
        raise _too_few(len(examples))
    return _sides(examples, held)


def hold_out_documents(
    documents: Sequence[TextDocument], share: float | None, seed: int
) -> tuple[Sequence[TextDocument], Sequence[TextDocument]]:
    """The first documents and the last ones; one alone is divided by its characters. Nothing is random about it."""
    whole: Any = documents if len(documents) != 1 else documents[0].text
    what = "documents" if len(documents) != 1 else "characters"
    if share is None:
        first = _beginning(documents)
    else:
        first = int(len(whole) * share)
        if not 0 < first < len(whole):
            raise _nothing_left(share, len(whole), what, first > 0)
    if len(documents) != 1:
        return documents[:first], documents[first:]
    return [TextDocument(whole[:first])], [TextDocument(whole[first:])]


FEWEST = 10
"""Examples of which some can be held out."""
SHORTEST = 200
"""Characters of running text of which some can be."""
LONGEST = 200_000
"""Characters of running text that are held out at most: validating on them takes seconds."""


def default_count(size: int) -> int:
    """How many examples are held out unless a recipe says so: a twentieth, a fifth of few, and at most 1,000."""
    if size < FEWEST:
        raise _too_few(size)
    return min(1000, max(size // 20, min(size // 5, 100)))


def _too_few(size: int) -> ConfigError:
    return ConfigError(
        f"{size} {'example is' if size == 1 else 'examples are'} too few to hold some out",
        f"give {FEWEST} or more, or a file to validate on: data.valid=FILE",
    )


def _beginning(documents: Sequence[TextDocument]) -> int:
    """How many documents, or characters of the one, come before the last twentieth of the text."""
    total = sum(len(document.text) for document in documents)
    held = min(LONGEST, total // 20)
    if total < SHORTEST:
        raise ConfigError(
            f"a text of {total} characters is too short to hold some of it out",
            "give more, or a file to validate on: data.valid=FILE",
        )
    if len(documents) == 1:
        return total - held
    first = len(documents)
    while first > 1 and held > 0:
        first -= 1
        held -= len(documents[first].text)
    return min(first, len(documents) - 1)


def _sides(examples: Sequence[E], held: Sequence[bool]) -> tuple[Sequence[E], Sequence[E]]:
    marked = list(zip(examples, held, strict=True))
    return [example for example, out in marked if not out], [example for example, out in marked if out]


def _nothing_left(share: float, size: int, what: str, trained: bool) -> ConfigError:
    return ConfigError(
        f"split = {share} of {size} {what} leaves none to {'validate' if trained else 'train'} on",
        "give more data, or a valid file instead of split",
    )

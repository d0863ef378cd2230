"""Corpus `mixture`: several built-in corpora of pairs in turn, for one model that is told by a prefix what to do.

    source   fr: 3 April 2021                           target   3 avril 2021            from dates
    source   summary: Ida wanted the blue kettle. …     target   Ida found the blue …    from tales

So T5 was taught many tasks (Raffel et al. 2020, §2.4). The prefixes are the corpora's own. A part that stands twice in
`parts` comes twice as often; `dates:2` is short for that. `tales shortest=40:3` gives a part options that are whole
numbers. Splits are those of the parts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from regard.data.corpus import CORPORA, Corpus, Pair, Split, corpus, register, require_index
from regard.errors import ConfigError, InputError, choose


@dataclass(frozen=True)
class Mixture(Corpus):
    """Pairs of one corpus after another's."""

    name: ClassVar[str] = "mixture"

    parts: tuple[str, ...] = ("dates", "tales:3")
    """Names of corpora, with options of their own; `tales:3` comes three times as often."""
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("a mixture of no corpora", 'name some, such as parts = ["dates", "tales:3"]')
        for part in self.parts:
            written, _, times = part.partition(":")
            name = written.partition(" ")[0]
            if name not in CORPORA or name == self.name:
                raise ConfigError(
                    f"parts has {name!r}, which is no corpus to mix", choose(name, CORPORA.keys() - {self.name})
                )
            if times and not (times.isdecimal() and 1 <= int(times) <= 100):
                raise ConfigError(f"parts has {part!r}", f"say how often from 1 to 100, such as {name}:3")
            corpus(name, _options(written))
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test, None for train."""
        return None if split == "train" else min([self.held_out, *self._room(split)])

    def example(self, split: Split, index: int) -> Pair:
        """An example of the part whose turn it is."""
        require_index(split, index, self.size(split))
        turn = self._turns[index % len(self._turns)]
        before = self._turns[: index % len(self._turns)].count(turn)
        return self._corpora[turn].example(split, index // len(self._turns) * self._turns.count(turn) + before)

    def check(self, source: str) -> None:
        """Refuse what every part refuses."""
        self._of(source).check(source)

    def part(self, source: str) -> str | None:
        """What the part calls it, or the part's name."""
        found = self._of(source)
        return found.part(source) or found.name

    def _of(self, source: str) -> Corpus:
        """The part that teaches such a text; if none does, what each of them says is raised."""
        said = []
        for one in self._corpora.values():
            try:
                one.check(source)
            except InputError as error:
                said.append(error)
            else:
                return one
        raise InputError(
            "; ".join(dict.fromkeys(error.problem for error in said)),
            "; or ".join(dict.fromkeys(error.remedy for error in said)),
        )

    def _room(self, split: Split) -> list[int]:
        """How many examples there can be before a part has no more."""
        sizes = {name: one.size(split) for name, one in self._corpora.items()}
        return [size // self._turns.count(name) * len(self._turns) for name, size in sizes.items() if size is not None]

    @cached_property
    def _turns(self) -> tuple[str, ...]:
        """The parts, with their options, in the order in which they come."""
        found = []
        for part in self.parts:
            written, _, times = part.partition(":")
            found += [written] * int(times or 1)
        return tuple(found)

    @cached_property
    def _corpora(self) -> dict[str, Corpus]:
        return {
            part: corpus(part.partition(" ")[0], {"seed": self.seed} | _options(part))
            for part in dict.fromkeys(self._turns)
        }


def _options(part: str) -> dict[str, object]:
    """The options that stand behind a part's name."""
    found: dict[str, object] = {}
    for written in part.split()[1:]:
        key, _, value = written.partition("=")
        if not value.isdecimal():
            raise ConfigError(
                f"parts has {part!r}, whose {written!r} is no option", "write a key and a whole number: shortest=40"
            )
        found[key] = int(value)
    return found


register(Mixture)

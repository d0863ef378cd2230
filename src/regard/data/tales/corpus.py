"""Corpus `tales`: short tales of a simulated world, with their questions, summaries, moods and dialogues.

    tale      Ida wanted the blue kettle. Otto went to the castle. There he found the grey ring. …
    question  Where did Otto find the grey ring?    castle
    mood      what its hero feels in the end: glad, sad, angry or afraid
    summary   Ida found the blue kettle and Nora took it.

Which of these an example is, the task chooses: question_answering asks for questions, classification for moods,
summarisation for summaries, chat for dialogues, language models for tales alone, and a task of pairs gets all that
`asked` names, with prefixes that tell them apart, as a T5 is taught (Raffel et al. 2020, §2.4).

    source   question: Where did Otto find the grey ring? tale: Ida wanted …     target   castle
    source   summary: Ida wanted the blue kettle. …                              target   Ida found …

What splits hold out is a wish: who looks for which thing, and where it lies. So no tale of one split has the hero,
thing and place of a tale in another. Two tales of a split are never the same but by a chance below 1e-10.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from regard.data.conversations import Conversation
from regard.data.corpus import (
    Corpus,
    ExampleKind,
    Examples,
    Pair,
    Split,
    after_prefix,
    draw,
    generator,
    register,
    require_index,
    stable_hash,
)
from regard.data.questions import Question
from regard.data.splits import TextDocument
from regard.data.tales.telling import Tale, tell
from regard.data.tales.world import Known, Wish, happen
from regard.errors import ConfigError, choose
from regard.text.chat_template import Message

ASKED = ("question", "summary", "mood")
EVENT = 7.3
"""Words and marks of an event, about."""
SHORTEST, LONGEST = 40, 16_384


@dataclass(frozen=True)
class Tales(Corpus):
    """Tales, their questions, summaries and moods."""

    name: ClassVar[str] = "tales"

    length: int = 96
    """Words and marks of a tale, about."""
    shortest: int = 0
    """The least of them: each tale then has a length of its own from there to `length`, so that short ones, which are
    easier, teach the long; 0: all as `length`."""
    asked: tuple[str, ...] = ASKED
    """What pairs of texts are about."""
    examples: int = 0
    """Tales to train on, to see what little data teaches; 0: there is no end to them."""
    dialogues: int = 1
    """Pairs of questions in a conversation to train on, where there are as many: what is read once teaches more. Those
    to validate and to test on have one."""
    pronouns: bool = True
    """Who does two things in a row may be called she or he, and a place there; else all are called by their names."""
    held_out: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise ConfigError(f"length is {self.length}, which is no tale", f"use {SHORTEST} to {LONGEST}")
        if self.shortest and not SHORTEST <= self.shortest <= self.length:
            raise ConfigError(
                f"shortest is {self.shortest}, and tales have {SHORTEST} to {self.length} words",
                f"use {SHORTEST} to {self.length}, or 0 for tales of one length",
            )
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")
        if self.dialogues < 1:
            raise ConfigError(f"dialogues is {self.dialogues}, which asks nothing", "use 1 or more")
        if self.examples < 0:
            raise ConfigError(f"examples is {self.examples}", "use 1 or more, or 0 for tales without end")
        for one in self.asked:
            if one not in ASKED:
                raise ConfigError(f"asked has {one!r}, which a tale does not answer", choose(one, ASKED))
        if not self.asked or len(set(self.asked)) < len(self.asked):
            raise ConfigError(f"asked is {list(self.asked)}", f"name one or more of {', '.join(ASKED)}, once each")

    def size(self, split: Split) -> int | None:
        """`held_out` for valid and test; for train `examples`, or None where there is no end."""
        return (self.examples or None) if split == "train" else self.held_out

    def tale(self, split: Split, index: int) -> Tale:
        """The tale at this place."""
        require_index(split, index, self.size(split))
        random, most = generator("tales", self.seed, split, index), round(self.length / EVENT)
        known = Known.of(most)
        least = round((self.shortest or self.length) / EVENT)
        wish = known.wish(random)
        while split_of(self.seed, wish) != split:
            wish = known.wish(random)
        events = least + draw(random, most - least + 1)
        return tell(random, happen(random, known, wish, events), pronouns=self.pronouns)

    def question(self, split: Split, index: int) -> Question:
        """One of the tale's questions."""
        tale = self.tale(split, index)
        asked = tale.questions[draw(generator("questions", self.seed, split, index), len(tale.questions))]
        return Question(asked.question, tale.text, ((asked.answer, asked.start),))

    def example(self, split: Split, index: int) -> Pair:
        """What a prefix asks for, and the answer; the prefixes take turns."""
        prefix = self.asked[index % len(self.asked)]
        if prefix == "question":
            asked = self.question(split, index)
            return Pair(f"question: {asked.question} tale: {asked.context}", asked.answers[0][0])
        tale = self.tale(split, index)
        return Pair(f"{prefix}: {tale.text}", tale.mood if prefix == "mood" else tale.summary)

    def check(self, source: str) -> None:
        """Refuse a text without a prefix that says what is asked for."""
        after_prefix(source, tuple(f"{one}:" for one in self.asked), "tale", "write a tale after it")

    def part(self, source: str) -> str | None:
        """What its prefix says."""
        return source.partition(":")[0] if len(self.asked) > 1 else None

    def of_kind(self, kind: ExampleKind) -> Examples | None:
        """All kinds."""
        return self if kind == "pairs" else VIEWS[kind](self)


register(Tales)


@dataclass(frozen=True)
class _View(Corpus):
    """The same tales as another kind of example."""

    name: ClassVar[str] = "tales"

    tales: Tales

    def size(self, split: Split) -> int | None:
        """As many as there are tales."""
        return self.tales.size(split)


class Moods(_View):
    """Tales with their moods."""

    def example(self, split: Split, index: int) -> Pair:
        """A tale and its mood."""
        tale = self.tales.tale(split, index)
        return Pair(tale.text, tale.mood)


class Summaries(_View):
    """Tales with their summaries."""

    def example(self, split: Split, index: int) -> Pair:
        """A tale and its summary."""
        tale = self.tales.tale(split, index)
        return Pair(tale.text, tale.summary)


@dataclass(frozen=True)
class Questions:
    """Questions about tales."""

    tales: Tales

    def size(self, split: Split) -> int | None:
        """As many as there are tales."""
        return self.tales.size(split)

    def example(self, split: Split, index: int) -> Question:
        """A question, its tale and its answer."""
        return self.tales.question(split, index)


@dataclass(frozen=True)
class Texts:
    """Tales alone."""

    tales: Tales

    def size(self, split: Split) -> int | None:
        """As many as there are tales."""
        return self.tales.size(split)

    def example(self, split: Split, index: int) -> TextDocument:
        """A tale."""
        return TextDocument(self.tales.tale(split, index).text)


@dataclass(frozen=True)
class TaleChats:
    """A tale and pairs of questions about it, of which the second needs the first."""

    tales: Tales

    def size(self, split: Split) -> int | None:
        """As many as there are tales."""
        return self.tales.size(split)

    def example(self, split: Split, index: int) -> Conversation:
        """The tale with the first question, and what follows."""
        tale = self.tales.tale(split, index)
        left, random = list(tale.dialogues), generator("dialogues", self.tales.seed, split, index)
        most = self.tales.dialogues if split == "train" else 1
        chosen = [left.pop(draw(random, len(left))) for _ in range(min(most, len(left)))]
        said = [text for pair in chosen for turn in pair for text in (turn.question, turn.answer)]
        roles = ("user", "assistant") * (len(said) // 2)
        said[0] = f"{tale.text} {said[0]}"
        return Conversation(tuple(Message(role, text) for role, text in zip(roles, said, strict=True)))


VIEWS: dict[ExampleKind, Callable[[Tales], Examples]] = {
    "labels": Moods,
    "summaries": Summaries,
    "questions": Questions,
    "documents": Texts,
    "conversations": TaleChats,
}


def split_of(seed: int, wish: Wish) -> Split:
    """The one split that all tales of a wish belong to."""
    bucket = stable_hash("tales", seed, wish.hero, wish.thing, wish.place) % 10
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"

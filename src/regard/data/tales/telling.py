"""A story told in sentences, with what can be asked about it: questions, and where in the tale their answers stand.

    Anna was looking for the red kettle. Boris walked to the mill. There he found the blue drum.
    Where did Boris find the blue drum?  mill        Who found the blue drum?  Boris

Who does two things in a row may be called she or he, and a place that was just told of there: the answer is then the
name, where it was said last. A question is asked only if nothing else that happens would be asked about in its words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from regard.data.corpus import draw
from regard.data.tales.world import MOOD_OF, WOMEN, Event, Kind, Mood, Story

VERBS: dict[Kind, tuple[str, ...]] = {
    "seek": ("was looking for", "wanted"),
    "go": ("went to", "walked to", "rode to", "ran to"),
    "find": ("found", "picked up", "came upon"),
    "lose": ("lost", "dropped"),
    "give": ("gave", "handed"),
    "take": ("took", "snatched"),
    "meet": ("met", "talked to"),
    "flee": ("drove", "chased"),
}
FEELINGS: dict[Mood, tuple[str, ...]] = {
    "glad": ("smiled", "laughed", "sang", "danced"),
    "sad": ("wept", "sighed", "cried", "mourned"),
    "angry": ("shouted", "stamped", "fumed", "raged"),
    "afraid": ("trembled", "shivered", "hid", "shook"),
}
OPENINGS = ("Then", "Later", "Soon", "After a while")
TOLD: dict[Kind, str] = {
    "seek": "{person} {verb} the {thing}",
    "go": "{person} {verb} the {place}",
    "find": "{person} {verb} the {thing} at the {place}",
    "lose": "{person} {verb} the {thing} at the {place}",
    "give": "{person} {verb} the {thing} to {other}",
    "take": "{person} {verb} the {thing} from {other}",
    "meet": "{person} {verb} {other} at the {place}",
    "flee": "a {other} {verb} {person} away from the {place}",
    "feel": "{person} {verb}",
}
"""The slots are the parts of an event."""
ASKED: dict[Kind, tuple[tuple[str, str], ...]] = {
    "seek": (("Who was looking for the {thing}?", "person"), ("What was {person} looking for?", "thing")),
    "go": (("Where did {person} go?", "place"),),
    "find": (
        ("Who found the {thing}?", "person"),
        ("Where did {person} find the {thing}?", "place"),
        ("What did {person} find at the {place}?", "thing"),
    ),
    "lose": (
        ("Who lost the {thing}?", "person"),
        ("Where did {person} lose the {thing}?", "place"),
        ("What did {person} lose at the {place}?", "thing"),
    ),
    "give": (
        ("Who gave the {thing} to {other}?", "person"),
        ("To whom did {person} give the {thing}?", "other"),
        ("What did {person} give to {other}?", "thing"),
    ),
    "take": (
        ("Who took the {thing} from {other}?", "person"),
        ("From whom did {person} take the {thing}?", "other"),
        ("What did {person} take from {other}?", "thing"),
    ),
    "meet": (("Whom did {person} meet at the {place}?", "other"), ("Where did {person} meet {other}?", "place")),
    "flee": (("What drove {person} away?", "other"), ("Where was {person} driven away?", "place")),
    "feel": (),
}
"""Questions in words of their own, and which part of the event answers them."""
FOLLOWED: dict[Kind, tuple[tuple[str, str], tuple[str, str]]] = {
    "lose": (
        ("What did {person} lose?", "{person} lost the {thing}."),
        ("Where did {pronoun} lose it?", "{person} lost the {thing} at the {place}."),
    ),
    "give": (
        ("What did {person} give away?", "{person} gave away the {thing}."),
        ("To whom did {pronoun} give it?", "{person} gave the {thing} to {other}."),
    ),
    "take": (
        ("What did {person} take?", "{person} took the {thing}."),
        ("From whom did {pronoun} take it?", "{person} took the {thing} from {other}."),
    ),
    "flee": (
        ("What drove {person} away?", "A {other} drove {person} away."),
        ("From where?", "A {other} drove {person} away from the {place}."),
    ),
}
"""Of what somebody does: a question, and one that can only be understood after it, each with its answer."""
SOUGHT = (
    ("What was {person} looking for?", "{person} was looking for the {thing}."),
    ("Where was it found?", "The {thing} was found at the {place}."),
)
"""The same of who looks for what is found once."""
FOUND = (
    ("Where did {person} find the {thing}?", "{person} found the {thing} at the {place}."),
    ("What was {pronoun} looking for?", "{person} was looking for the {other}."),
)
"""The same of who finds something once and looks for another thing."""
SUMMED_UP = {
    "found": "{hero} looked for the {thing} and found it at the {place}.",
    "given": "{hero} looked for the {thing} and got it from {other}.",
    "lost": "{hero} found the {thing} and lost it at the {away}.",
    "taken": "{hero} found the {thing} and {other} took it.",
    "driven": "{hero} looked for the {thing} and a {other} came.",
}


class Inquiry(NamedTuple):
    """A question, its answer, and the character of the tale that the answer begins at."""

    question: str
    answer: str
    start: int


class Turn(NamedTuple):
    """A question of a dialogue with its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class Tale:
    """A text and what is known about it."""

    text: str
    mood: Mood
    summary: str
    questions: tuple[Inquiry, ...]
    dialogues: tuple[tuple[Turn, Turn], ...]
    """Two questions each, of which the second needs the first."""


def tell(random: Random, story: Story, *, pronouns: bool = True) -> Tale:
    """The story in sentences; without `pronouns` all are called by their names."""
    teller = _Teller(random, pronouns)
    spans = [teller.sentence(event) for event in story.events]
    text = " ".join(teller.sentences)
    candidates = [
        (question.format_map(_parts(event)), span[slot])
        for event, span in zip(story.events, spans, strict=True)
        for question, slot in ASKED[event.kind]
    ]
    times = Counter(question for question, _ in candidates)
    questions = tuple(
        Inquiry(question, text[start:end], start) for question, (start, end) in candidates if times[question] == 1
    )
    return Tale(text, MOOD_OF[story.outcome], _summary(story), questions, tuple(_dialogues(story)))


class _Teller:
    """Sentences so far, and where people and places were named last."""

    def __init__(self, random: Random, pronouns: bool) -> None:
        self.random = random
        self.pronouns = pronouns
        self.sentences: list[str] = []
        self.length = 0
        self.named: dict[str, tuple[int, int]] = {}
        self.before: Event | None = None

    def sentence(self, event: Event) -> dict[str, tuple[int, int]]:
        """Tell one event; where its parts stand in the whole."""
        verbs = VERBS[event.kind] if event.mood is None else FEELINGS[event.mood]
        parts = _parts(event) | {"verb": verbs[draw(self.random, len(verbs))]}
        template, called = TOLD[event.kind], {}
        again = self.before if self.pronouns and event.kind != "flee" else None
        if again is not None and again.person == event.person and draw(self.random, 2):
            called["person"] = _pronoun(event.person)
            if again.kind == "go" and again.place == event.place and template.endswith(" at the {place}"):
                template, called["place"] = "there " + template.removesuffix(" at the {place}"), ""
        elif not draw(self.random, 4):
            template = f"{OPENINGS[draw(self.random, len(OPENINGS))]} {template}"
        spans = self._write(template, parts, called)
        self.before = event
        return spans

    def _write(self, template: str, parts: dict[str, str], called: dict[str, str]) -> dict[str, tuple[int, int]]:
        text, spans = "", dict[str, tuple[int, int]]()
        for piece in template.replace("{", "\0{").replace("}", "}\0").split("\0"):
            slot = piece.strip("{}")
            if not piece.startswith("{"):
                text += piece
            elif slot in called:
                text += called[slot]
                spans[slot] = self.named[parts[slot]]
            else:
                start = self.length + len(text)
                text += parts[slot]
                spans[slot] = self.named[parts[slot]] = start, self.length + len(text)
        if "place" in called:
            spans["place"] = self.named[parts["place"]]
        self.sentences.append(f"{text[0].upper()}{text[1:]}.")
        self.length += len(text) + 2
        return spans


def _parts(event: Event) -> dict[str, str]:
    return {"person": event.person, "thing": event.thing, "place": event.place, "other": event.other}


def _pronoun(person: str) -> str:
    return "she" if person in WOMEN else "he"


def _dialogues(story: Story) -> Iterator[tuple[Turn, Turn]]:
    """Of what a person does once, and of what is looked for and found."""
    times = Counter((event.kind, event.person) for event in story.events)
    finds = Counter(event.thing for event in story.events if event.kind == "find")
    sought = {event.person: event.thing for event in story.events if event.kind == "seek"}
    asked: list[tuple[tuple[tuple[str, str], tuple[str, str]], dict[str, str]]] = []
    for event in story.events:
        parts = _parts(event)
        if event.kind in FOLLOWED and times[event.kind, event.person] == 1:
            asked.append((FOLLOWED[event.kind], parts))
        if event.kind == "find" and finds[event.thing] == 1:
            asked += [(SOUGHT, parts | {"person": one}) for one, thing in sought.items() if thing == event.thing]
            if sought.get(event.person, event.thing) != event.thing:
                asked.append((FOUND, parts | {"other": sought[event.person]}))
    for turns, parts in asked:
        parts["pronoun"] = _pronoun(parts["person"])
        first, second = (Turn(*(text.format_map(parts) for text in turn)) for turn in turns)
        yield first, second


def _summary(story: Story) -> str:
    wish, last = story.wish, story.end[-1]
    other = last.person if last.person != wish.hero else last.other
    form = SUMMED_UP[story.outcome]
    return form.format(hero=wish.hero, thing=wish.thing, place=wish.place, other=other, away=last.place)

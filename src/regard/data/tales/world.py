"""A small world: people walk between places, find, lose, give and take things, and one of them looks for something.

    people    stand at a place          things    lie at a place, or somebody has them
    events    what somebody does; each changes the world, and only what the world allows is done

A short story is of a village, a long one of a country: the more events, the more people, places and things are known.

A story has a hero who looks for one thing. What becomes of that is its outcome; all else that happens goes on beside it
and never touches that thing, so the outcome is known. Nothing here is told yet: that is `telling.py`'s.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeVar

from regard.data.corpus import draw

SHE = (
    *("Anna", "Clara", "Dora", "Emma", "Flora", "Greta", "Hanna", "Ida"),
    *("Julia", "Lena", "Maria", "Nora", "Olga", "Petra", "Rosa", "Sara"),
)
HE = (
    *("Adam", "Boris", "Carl", "David", "Emil", "Felix", "Gustav", "Hugo"),
    *("Ivan", "Jonas", "Karl", "Leo", "Martin", "Otto", "Paul", "Simon"),
)
PEOPLE = tuple(name for pair in zip(SHE, HE, strict=True) for name in pair)
WOMEN = frozenset(SHE)
PLACES = (
    *("mill", "harbour", "forest", "market", "castle", "bridge", "garden", "river"),
    *("tower", "school", "farm", "cave", "inn", "well", "barn", "church"),
)
COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "grey")
OBJECTS = (
    *("kettle", "lantern", "map", "ring", "drum", "cup", "basket", "hat", "coat", "key", "book", "bell"),
    *("rope", "knife", "spoon", "mirror", "box", "flute", "candle", "umbrella", "ball", "boat", "lamp", "scarf"),
)
BEASTS = ("wolf", "bear", "dog", "bull")

Kind = Literal["seek", "go", "find", "lose", "give", "take", "meet", "flee", "feel"]
Outcome = Literal["found", "given", "lost", "taken", "driven"]
Mood = Literal["glad", "sad", "angry", "afraid"]
MOOD_OF: dict[Outcome, Mood] = {"found": "glad", "given": "glad", "lost": "sad", "taken": "angry", "driven": "afraid"}
OUTCOMES: dict[Mood, tuple[Outcome, ...]] = {
    mood: tuple(one for one, its in MOOD_OF.items() if its == mood) for mood in ("glad", "sad", "angry", "afraid")
}
MOODS: tuple[Mood, ...] = tuple(OUTCOMES)

T = TypeVar("T")


@dataclass(frozen=True)
class Event:
    """What a person does: `other` is a second person, or the beast that drives one away; `mood` is of a feeling."""

    kind: Kind
    person: str
    thing: str = ""
    place: str = ""
    other: str = ""
    mood: Mood | None = None


@dataclass(frozen=True)
class Wish:
    """Who looks for what, and where it lies: what splits hold out."""

    hero: str
    thing: str
    place: str


@dataclass(frozen=True)
class Story:
    """Everything that happens, in order, and what becomes of the hero's wish; `end` has the events that it is."""

    wish: Wish
    outcome: Outcome
    end: tuple[Event, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Known:
    """The people, places and things that a story may be about."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    things: tuple[str, ...]

    @classmethod
    def of(cls, events: int) -> "Known":
        """What is known in stories of about so many events."""
        colours, objects = COLOURS[: 4 + events // 8], OBJECTS[: 8 + events // 4]
        things = tuple(f"{colour} {one}" for colour in colours for one in objects)
        return cls(PEOPLE[: 10 + events // 4], PLACES[: 6 + events // 8], things)

    def wish(self, random: Random) -> Wish:
        """Any hero, thing and place that is known."""
        return Wish(_one(random, self.people), _one(random, self.things), _one(random, self.places))


def happen(random: Random, known: Known, wish: Wish, events: int) -> Story:
    """A story of about so many events; more of them have more people, places and things."""
    mood = _one(random, MOODS)
    outcome = _one(random, OUTCOMES[mood])
    world = World.around(random, known, wish, events)
    rival = _one(random, [one for one in world.people if one != wish.hero])
    away = _one(random, [one for one in world.places if one != wish.place])
    steps = _plot(wish, outcome, rival, away, _one(random, BEASTS))
    before = [draw(random, len(steps) + 1) for _ in range(max(events - 2 * len(steps), 0))]
    told: list[Event] = [world.do(Event("seek", wish.hero, wish.thing))]
    end: list[Event] = []
    for number, step in enumerate([*steps, None]):
        busy = {wish.hero, rival} if number else set()
        for _ in range(before.count(number)):
            told.append(world.do(world.next(random, busy)))
        if step is not None:
            end.append(step)
            if step.place and world.at[step.person] != step.place:
                told.append(world.do(Event("go", step.person, place=step.place)))
            if step.kind != "go":
                told.append(world.do(step))
    if draw(random, 2):
        told.append(Event("feel", wish.hero, mood=mood))
    return Story(wish, outcome, tuple(end), tuple(told))


def _plot(wish: Wish, outcome: Outcome, rival: str, away: str, beast: str) -> list[Event]:
    """What becomes of the wish."""
    hero, thing, place = wish.hero, wish.thing, wish.place
    found = Event("find", hero, thing, place)
    if outcome == "found":
        return [found]
    if outcome == "given":
        return [
            Event("find", rival, thing, place),
            Event("go", hero, place=place),
            Event("give", rival, thing, "", hero),
        ]
    if outcome == "lost":
        return [found, Event("lose", hero, thing, away)]
    if outcome == "taken":
        return [found, Event("go", rival, place=place), Event("take", rival, thing, "", hero)]
    return [Event("flee", hero, "", place, beast)]


@dataclass
class World:
    """Who is where, and who has or where lies what."""

    people: Sequence[str]
    places: Sequence[str]
    at: dict[str, str]
    lies: dict[str, str]
    """Things that nobody has, with their places; what is looked for is not among them."""
    wish: Wish
    has: dict[str, str] = field(default_factory=dict)
    """Things that somebody has, with these people."""
    seeking: set[str] = field(default_factory=set)
    sought: set[str] = field(default_factory=set)
    last: Event | None = None
    """What was done last."""

    @classmethod
    def around(cls, random: Random, known: Known, wish: Wish, events: int) -> "World":
        """The people, places and things of one story."""
        people = _several(random, known.people, 4 + events // 8, {wish.hero})
        places = _several(random, known.places, 4 + events // 16, {wish.place})
        things = _several(random, known.things, 4 + events // 4, {wish.thing})
        at = {person: _one(random, places) for person in people}
        return cls(people, places, at, {one: _one(random, places) for one in things if one != wish.thing}, wish)

    def do(self, event: Event) -> Event:
        """Change the world by what is done."""
        if event.kind in ("go", "flee"):
            self.at[event.person] = event.place
        if event.kind == "find":
            self.lies.pop(event.thing, None)
        if event.kind in ("find", "take"):
            self.has[event.thing] = event.person
        if event.kind == "give":
            self.has[event.thing] = event.other
        if event.kind == "lose":
            del self.has[event.thing]
            if event.thing != self.wish.thing:
                self.lies[event.thing] = event.place
        if event.kind == "seek":
            self.seeking.add(event.person)
            self.sought.add(event.thing)
        self.last = event
        return event

    def next(self, random: Random, busy: Collection[str]) -> Event:
        """Something that somebody who is not busy can do now, often the one who did something last."""
        free = [one for one in self.people if one not in busy]
        again = self.last is not None and self.last.person in free and draw(random, 2)
        person = self.last.person if self.last is not None and again else _one(random, free)
        return _one(random, [event for event in self.possible(random, person, busy) if event != self.last])

    def possible(self, random: Random, person: str, busy: Collection[str]) -> Iterator[Event]:
        """What this person can do; what is told more often comes more than once."""
        here, mine = self.at[person], [one for one, owner in self.has.items() if owner == person]
        lying = [one for one, place in self.lies.items() if place == here]
        present = [one for one in self.people if self.at[one] == here and one != person and one not in busy]
        owned = [(thing, owner) for thing, owner in self.has.items() if owner in present and thing != self.wish.thing]
        away = _one(random, [one for one in self.places if one != here])
        yield Event("go", person, place=away)
        if person != self.wish.hero:
            yield Event("feel", person, mood=_one(random, MOODS))
            if person not in self.seeking and (free := [one for one in self.lies if one not in self.sought]):
                yield Event("seek", person, _one(random, free))
        if lying:
            yield from [Event("find", person, _one(random, lying), here)] * 3
        if mine := [one for one in mine if one != self.wish.thing]:
            yield Event("lose", person, _one(random, mine), here)
            if present:
                yield from [Event("give", person, _one(random, mine), "", _one(random, present))] * 2
        if owned:
            thing, owner = _one(random, owned)
            yield from [Event("take", person, thing, "", owner)] * 2
        if present:
            yield Event("meet", person, "", here, _one(random, present))


def _one(random: Random, among: Sequence[T]) -> T:
    return among[draw(random, len(among))]


def _several(random: Random, known: Sequence[str], count: int, first: Collection[str]) -> list[str]:
    """So many different ones, or all there are; `first` are among them."""
    found = dict.fromkeys(first)
    while len(found) < min(count, len(known)):
        found[_one(random, known)] = None
    return list(found)

"""A small English grammar that knows its own arcs: which word of a sentence belongs to which.

    Today the old farmers near the tree like the bird because they are small.
           ▲        │ ▲                   │                     │
           └────────┘ ├───────────────────┘                     │
       noun → determiner   verb → subject, across another number│
                      └─────────────────────────────────────────┘ pronoun → antecedent

Every sentence is made by choosing words, so the arcs are certain and no parser is needed. Between the words of an arc
stand zero to several others, so that no fixed offset finds all of them. The first word belongs to nothing: a sink may
rest on it. Words are common ones, most of which any English vocabulary has as one piece.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from regard.errors import InputError

OPENERS = ("Today", "Now", "Here", "Then", "Yet", "Perhaps")
ADJECTIVES = ("old", "young", "small", "happy", "quiet", "strong")
PEOPLE = {"farmer": "he", "king": "he", "father": "he", "queen": "she", "mother": "she", "sister": "she"}
THINGS = ("tree", "car", "bird", "house", "river", "table")
VERBS = ("see", "like", "know", "find", "want", "help")
ADVERBS = ("often", "still", "never", "also")
PLACES = ("near", "behind", "beside", "above")

VERB_SUBJECT, NOUN_DETERMINER = "verb → subject", "noun → determiner"
PRONOUN_ANTECEDENT, ACROSS = "pronoun → antecedent", "verb → subject, across another number"
RELATIONS = (VERB_SUBJECT, NOUN_DETERMINER, PRONOUN_ANTECEDENT, ACROSS)


@dataclass(frozen=True)
class Arc:
    """From a word to the one it belongs to, by their places."""

    relation: str
    dependent: int
    head: int


@dataclass(frozen=True)
class Parsed:
    """A sentence with where its words stand in it, and its arcs."""

    text: str
    spans: tuple[tuple[int, int], ...]
    arcs: tuple[Arc, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words, without the full stop."""
        return tuple(self.text[begin:end] for begin, end in self.spans)


def sentences(count: int, seed: int = 0) -> list[Parsed]:
    """So many sentences; the same for the same seed."""
    if count < 1:
        raise InputError(f"{count} sentences are none", "ask for 1 or more")
    random = Random(f"grammar {seed}")
    return [_sentence(random) for _ in range(count)]


def best_offset(parsed: Sequence[Parsed], relation: str) -> tuple[int, float]:
    """The fixed offset in words that finds the most arcs of a relation, and the share that it finds."""
    offsets = [arc.head - arc.dependent for one in parsed for arc in one.arcs if arc.relation == relation]
    if not offsets:
        raise InputError(f"no sentence has an arc {relation!r}", "ask for more sentences")
    best = min(set(offsets), key=lambda offset: (-offsets.count(offset), abs(offset)))
    return best, offsets.count(best) / len(offsets)


@dataclass
class _Draft:
    """A sentence in the making."""

    random: Random
    words: list[str] = field(default_factory=list)
    arcs: list[Arc] = field(default_factory=list)

    def word(self, word: str) -> int:
        """Add one; where it stands."""
        self.words.append(word)
        return len(self.words) - 1

    def noun(self, noun: str) -> int:
        """A noun with its determiner, and adjectives between them."""
        determiner = self.word("the")
        for adjective in self.random.sample(ADJECTIVES, self.random.choice((0, 0, 1, 2))):
            self.word(adjective)
        place = self.word(noun)
        self.arcs.append(Arc(NOUN_DETERMINER, place, determiner))
        return place

    def parsed(self) -> Parsed:
        """The finished sentence."""
        text = " ".join(self.words) + "."
        return Parsed(text, tuple(_spans(self.words)), tuple(self.arcs))


def _spans(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    begin = 0
    for word in words:
        yield begin, begin + len(word)
        begin += len(word) + 1


def _sentence(random: Random) -> Parsed:
    """`Opener the NOUN [near the NOUN] [often] VERB the NOUN because PRONOUN is ADJECTIVE.`"""
    draft = _Draft(random)
    draft.word(random.choice(OPENERS))
    person, object_ = random.choice(list(PEOPLE)), random.choice(THINGS)
    many = random.random() < 0.5
    subject = draft.noun(person + "s" * many)
    if across := random.random() < 0.5:
        draft.word(random.choice(PLACES))
        other = random.choice([one for one in THINGS if one != object_])
        draft.noun(other + "s" * (not many))
    for adverb in random.sample(ADVERBS, random.choice((0, 1, 2))):
        draft.word(adverb)
    verb = draft.word(random.choice(VERBS) + ("" if many else "s"))
    draft.arcs.append(Arc(ACROSS if across else VERB_SUBJECT, verb, subject))
    objects = not many and random.random() < 0.5  # never both many, so that `they` means one of them alone
    thing = draft.noun(object_ + "s" * objects)
    draft.word("because")
    of_subject = across or random.random() < 0.5  # a noun between could be meant by what means the object
    plural = many if of_subject else objects
    said = "they" if plural else PEOPLE[person] if of_subject else "it"
    pronoun = draft.word(said)
    draft.arcs.append(Arc(PRONOUN_ANTECEDENT, pronoun, subject if of_subject else thing))
    draft.word("are" if plural else "is")
    draft.word(random.choice(ADJECTIVES))
    return draft.parsed()

"""What only `tales` promises, by another reading of its texts; the laws of every corpus are in test_synthetic.py."""

import re
from collections import Counter
from typing import NamedTuple

import pytest

from regard.data.corpus import Split, corpus
from regard.data.tales.corpus import Tales
from regard.data.tales.telling import FEELINGS, Tale
from regard.data.tales.world import WOMEN
from regard.errors import ConfigError, InputError

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
OPENING = re.compile(r"^(Then|Later|Soon|After a while) ")
THERE, AT = r"(?P<there>there )?", r"( at the (?P<place>\w+))?"
FORMS = {
    "seek": r"(?P<person>\w+) (was looking for|wanted) the (?P<thing>\w+ \w+)",
    "go": r"(?P<person>\w+) (went|walked|rode|ran) to the (?P<place>\w+)",
    "find": rf"{THERE}(?P<person>\w+) (found|picked up|came upon) the (?P<thing>\w+ \w+){AT}",
    "lose": rf"{THERE}(?P<person>\w+) (lost|dropped) the (?P<thing>\w+ \w+){AT}",
    "give": r"(?P<person>\w+) (gave|handed) the (?P<thing>\w+ \w+) to (?P<other>\w+)",
    "take": r"(?P<person>\w+) (took|snatched) the (?P<thing>\w+ \w+) from (?P<other>\w+)",
    "meet": rf"{THERE}(?P<person>\w+) (met|talked to) (?P<other>\w+){AT}",
    "flee": r"a (?P<other>\w+) (drove|chased) (?P<person>\w+) away from the (?P<place>\w+)",
    "feel": rf"(?P<person>\w+) ({'|'.join(verb for verbs in FEELINGS.values() for verb in verbs)})",
}
QUESTIONS = {
    r"Who was looking for the (?P<thing>.+)": ("seek", "person"),
    r"What was (?P<person>\w+) looking for": ("seek", "thing"),
    r"Where did (?P<person>\w+) go": ("go", "place"),
    r"Who (?P<verb>found|lost) the (?P<thing>.+)": ("", "person"),
    r"Where did (?P<person>\w+) (?P<verb>find|lose) the (?P<thing>.+)": ("", "place"),
    r"What did (?P<person>\w+) (?P<verb>find|lose) at the (?P<place>\w+)": ("", "thing"),
    r"Who gave the (?P<thing>.+) to (?P<other>\w+)": ("give", "person"),
    r"To whom did (?P<person>\w+) give the (?P<thing>.+)": ("give", "other"),
    r"What did (?P<person>\w+) give to (?P<other>\w+)": ("give", "thing"),
    r"Who took the (?P<thing>.+) from (?P<other>\w+)": ("take", "person"),
    r"From whom did (?P<person>\w+) take the (?P<thing>.+)": ("take", "other"),
    r"What did (?P<person>\w+) take from (?P<other>\w+)": ("take", "thing"),
    r"Whom did (?P<person>\w+) meet at the (?P<place>\w+)": ("meet", "other"),
    r"Where did (?P<person>\w+) meet (?P<other>\w+)": ("meet", "place"),
    r"What drove (?P<person>\w+) away": ("flee", "other"),
    r"Where was (?P<person>\w+) driven away": ("flee", "place"),
}
MEANT = {"found": "find", "lost": "lose"}


class Fact(NamedTuple):
    kind: str
    parts: dict[str, str]


def facts(text: str) -> list[Fact]:
    """What a tale says, sentence by sentence: she and he are who the sentence before is about, there is its place."""
    found: list[Fact] = []
    for sentence in re.findall(r"[^.]+\.", text):
        plain = OPENING.sub("", sentence.strip())[:-1]
        plain = plain[0].lower() + plain[1:] if plain.startswith(("There ", "A ")) else plain
        matches = [(kind, match) for kind, form in FORMS.items() if (match := re.fullmatch(form, plain))]
        assert len(matches) == 1, sentence
        ((kind, match),) = matches
        parts = {name: value for name, value in match.groupdict().items() if value}
        if parts["person"] in ("She", "He", "she", "he"):
            parts["person"] = found[-1].parts["person"]
        if parts.pop("there", ""):
            parts["place"] = found[-1].parts["place"]
        found.append(Fact(kind, parts))
    return found


def answers(question: str, known: list[Fact]) -> list[str]:
    """What the facts say to a question: one answer for each fact that it fits."""
    for form, (kind, slot) in QUESTIONS.items():
        if match := re.fullmatch(form, question.removesuffix("?")):
            given = match.groupdict()
            verb = given.pop("verb", None)
            wanted = kind or MEANT.get(str(verb), str(verb))
            fits = [one.parts for one in known if one.kind == wanted and given.items() <= one.parts.items()]
            return [parts[slot] for parts in fits]
    raise AssertionError(question)


@pytest.fixture(scope="module", params=[{}, {"length": 400}], ids=["short", "long"])
def told(request) -> list[Tale]:
    one = Tales(**request.param)
    return [one.tale("train", index) for index in range(8000 // one.length)]


def test_every_question_has_one_answer_and_it_stands_where_it_is_said_to(told):
    kinds = Counter()
    for tale in told:
        known = facts(tale.text)
        assert tale.questions
        for question, answer, start in tale.questions:
            assert answers(question, known) == [answer]
            assert tale.text[start : start + len(answer)] == answer
            kinds[re.sub(r"[A-Z]\w+|the \w+( \w+)?", "…", question)] += 1
    assert len(kinds) >= 10


def test_only_what_the_world_allows_is_told(told):
    for tale in told:
        owner: dict[str, str] = {}
        at: dict[str, str] = {}
        for kind, parts in facts(tale.text):
            person, thing, place, other = (parts.get(name, "") for name in ("person", "thing", "place", "other"))
            if kind == "find":
                assert thing not in owner
                owner[thing] = person
            elif kind == "lose":
                assert owner.pop(thing) == person
            elif kind in ("give", "take"):
                before, after = (person, other) if kind == "give" else (other, person)
                assert owner[thing] == before
                owner[thing] = after
                assert at.setdefault(person, at.get(other, "?")) == at.setdefault(other, at[person])
            if kind == "go":
                at[person] = place
            elif place and kind not in ("flee", "go"):
                assert at.setdefault(person, place) == place


def test_mood_and_summary_are_what_becomes_of_the_wish(told):
    for tale in told:
        known = facts(tale.text)
        hero, thing = known[0].parts["person"], known[0].parts["thing"]
        assert known[0].kind == "seek"
        about = [one.kind for one in known if one.parts.get("thing") == thing][1:]
        driven = [one for one in known if one.kind == "flee"]
        expected = {
            ("find",): "glad",
            ("find", "give"): "glad",
            ("find", "lose"): "sad",
            ("find", "take"): "angry",
            (): "afraid",
        }
        assert tale.mood == expected[tuple(about)]
        assert bool(driven) == (tale.mood == "afraid")
        assert hero in tale.summary
        assert thing in tale.summary
        said = [one.parts["person"] for one in known if one.kind == "feel"]
        assert hero not in said[:-1]


def test_moods_are_equally_likely():
    one = Tales(length=40)
    moods = Counter(one.tale("train", index).mood for index in range(1000))
    assert set(moods) == {"glad", "sad", "angry", "afraid"}
    for count in moods.values():  # 250 expected, standard deviation 13.7
        assert abs(count - 250) < 5 * 13.7


def wish(tale: Tale) -> tuple[str, str, str]:
    """Who looks for what, and where it is found or its seeker driven away."""
    known = facts(tale.text)
    hero, thing = known[0].parts["person"], known[0].parts["thing"]
    ends = [one for one in known if one.kind == "flee" or (one.kind == "find" and one.parts["thing"] == thing)]
    return hero, thing, ends[0].parts["place"]


def test_no_wish_is_in_two_splits():
    one = Tales(length=40)
    train, valid, test = ({wish(one.tale(split, index)) for index in range(300)} for split in SPLITS)
    assert not train & valid
    assert not train & test
    assert not valid & test


@pytest.mark.parametrize("length", [40, 96, 500, 4096])
def test_a_tale_has_about_the_length_asked_for(length):
    one = Tales(length=length)
    words = [len(re.findall(r"\w+|[^\w\s]", one.tale("test", index).text)) for index in range(max(4, 4000 // length))]
    assert 0.85 * length < sum(words) / len(words) < 1.25 * length


def test_lengths_are_spread_evenly():
    one = Tales(length=640, shortest=40)
    words = [len(re.findall(r"\w+|[^\w\s]", one.tale("train", index).text)) for index in range(400)]
    for quantile, expected in ((0.25, 190), (0.5, 340), (0.75, 490)):
        assert sorted(words)[round(400 * quantile)] == pytest.approx(expected, rel=0.2)


def test_few_examples_are_the_first_of_those_without_end():
    few, all_ = Tales(examples=3).of_kind("labels"), Tales().of_kind("labels")
    assert (few.size("train"), all_.size("train"), few.size("test")) == (3, None, 1000)
    assert [few.example("train", at) for at in range(3)] == [all_.example("train", at) for at in range(3)]
    with pytest.raises(InputError, match="the train split has 3"):
        few.example("train", 3)


def test_the_longer_the_tales_the_more_is_known():
    short, long = ({wish(Tales(length=length).tale("train", index)) for index in range(150)} for length in (40, 600))
    for part in range(3):
        assert len({one[part] for one in long}) > 1.5 * len({one[part] for one in short})


def test_answers_stand_anywhere_in_a_long_tale():
    one = Tales(length=2000)
    places = []
    for index in range(30):
        asked = one.question("train", index)
        places.append(asked.answers[0][1] / len(asked.context))
    assert min(places) < 0.15
    assert max(places) > 0.85


DIALOGUES = {
    ("What did {p} lose?", "{p} lost the {t}.", "Where did {he} lose it?", "{p} lost the {t} at the {l}."): "lose",
    (
        *("What did {p} give away?", "{p} gave away the {t}."),
        *("To whom did {he} give it?", "{p} gave the {t} to {o}."),
    ): "give",
    ("What did {p} take?", "{p} took the {t}.", "From whom did {he} take it?", "{p} took the {t} from {o}."): "take",
    ("What drove {p} away?", "A {o} drove {p} away.", "From where?", "A {o} drove {p} away from the {l}."): "flee",
}


def said(tale: Tale) -> Counter:
    """Every dialogue that the facts allow, as its four texts: of what is done once, and what is found or looked for."""
    known, found = facts(tale.text), Counter()
    times = Counter((one.kind, one.parts["person"]) for one in known)
    finds = Counter(one.parts["thing"] for one in known if one.kind == "find")
    for form, kind in DIALOGUES.items():
        for one in known:
            person, thing, place, other = (one.parts.get(name) for name in ("person", "thing", "place", "other"))
            if one.kind == kind and times[kind, person] == 1:
                he = "she" if person in WOMEN else "he"
                found[tuple(text.format(p=person, t=thing, l=place, o=other, he=he) for text in form)] += 1
    for one in known:
        if one.kind != "find" or finds[one.parts["thing"]] > 1:
            continue
        finder, thing, place = one.parts["person"], one.parts["thing"], one.parts["place"]
        for person, wanted in ((seek.parts["person"], seek.parts["thing"]) for seek in known if seek.kind == "seek"):
            looked = f"{person} was looking for the {wanted}."
            if wanted == thing:
                second = "Where was it found?", f"The {thing} was found at the {place}."
                found[f"What was {person} looking for?", looked, *second] += 1
            elif person == finder:
                first = f"Where did {finder} find the {thing}?", f"{finder} found the {thing} at the {place}."
                found[*first, f"What was {'she' if finder in WOMEN else 'he'} looking for?", looked] += 1
    return found


def test_dialogues_say_what_the_tale_says_and_their_second_question_needs_the_first(told):
    kinds = set()
    for tale in told:
        assert tale.dialogues
        assert Counter((*first, *second) for first, second in tale.dialogues) == said(tale)
        for first, second in tale.dialogues:
            assert not set(re.findall(r"[A-Z]\w+", second.question)[1:])
            kinds.add(first.question.split()[-1])
    assert {"away?", "for?", "lose?", "take?"} < kinds


def test_without_pronouns_all_are_called_by_their_names():
    plain, usual = Tales(pronouns=False), Tales()
    words = [set(re.findall(r"\w+", one.tale("train", at).text)) for one in (plain, usual) for at in range(50)]
    called = {"She", "He", "she", "he", "There"}
    assert not any(one & called for one in words[:50])
    assert sum(bool(one & called) for one in words[50:]) > 40


def test_a_conversation_is_a_dialogue_about_its_tale():
    one = Tales(length=40)
    found = one.of_kind("conversations")
    for index in range(20):
        tale = one.tale("test", index)
        asked, answer, then, last = found.example("test", index).messages
        assert [message.role for message in (asked, answer, then, last)] == ["user", "assistant"] * 2
        assert asked.content.startswith(f"{tale.text} ")
        turns = ((asked.content.removeprefix(f"{tale.text} "), answer.content), (then.content, last.content))
        assert turns in tale.dialogues


def test_a_conversation_of_several_dialogues_begins_with_the_one_and_repeats_none():
    one, several = Tales(), Tales(dialogues=3)
    alone, longer = (tales.of_kind("conversations") for tales in (one, several))
    for index in range(20):
        said = longer.example("train", index).messages
        assert said[:4] == alone.example("train", index).messages
        pairs = [(said[at].content, said[at + 1].content) for at in range(0, len(said), 4)]
        assert len({question.removeprefix(f"{one.tale('train', index).text} ") for question, _ in pairs}) == len(pairs)
        assert len(pairs) == min(3, len(one.tale("train", index).dialogues))
        assert longer.example("test", index) == alone.example("test", index)


def test_pairs_say_by_a_prefix_what_is_asked():
    one = corpus("tales", {"asked": ["mood", "question"]})
    pairs = [one.example("train", index) for index in range(4)]
    assert [one.part(pair.source) for pair in pairs] == ["mood", "question"] * 2
    assert all(pair.target in ("glad", "sad", "angry", "afraid") for pair in pairs[::2])
    assert all(pair.target in pair.source for pair in pairs[1::2])
    with pytest.raises(InputError, match="use one of mood: question:"):
        one.check("summary: Ida wanted the red cup.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 39}, "length is 39"),
        ({"shortest": 39}, "shortest is 39, and tales have 40 to 96 words"),
        ({"shortest": 97}, "use 40 to 96, or 0"),
        ({"examples": -1}, "examples is -1"),
        ({"dialogues": 0}, "dialogues is 0, which asks nothing"),
        ({"held_out": 0}, "held_out is 0"),
        ({"pronouns": 1}, "pronouns' of corpus 'tales' is 1; give true or false"),
        ({"asked": []}, "name one or more of question, summary, mood"),
        ({"asked": ["mood", "mood"]}, "once each"),
        ({"asked": ["summry"]}, "did you mean 'summary'"),
    ],
)
def test_tales_that_cannot_be_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        corpus("tales", options)

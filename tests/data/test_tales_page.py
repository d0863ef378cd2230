"""The tale that docs/tales.md shows is the corpus's own, with what the page says of it."""

import re
from pathlib import Path

from regard.data.tales.corpus import Tales

PAGE = (Path(__file__).parents[2] / "docs" / "tales.md").read_text(encoding="utf-8")


def test_the_page_shows_the_first_test_tale_and_what_is_known_of_it():
    tale = Tales().tale("test", 0)
    shown = " ".join(re.search(r"^> (.+?)\n\n", PAGE, re.MULTILINE | re.DOTALL)[1].replace("\n> ", " ").split())
    assert shown == tale.text
    questions = {asked.question: asked.answer for asked in tale.questions}
    told = re.findall(r"^\| (\w+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert {kind for kind, _, _ in told} >= {"question", "mood", "summary", "dialogue"}
    for kind, asked, answer in told:
        if kind == "question":
            assert questions[asked] == answer
        elif kind == "mood":
            assert tale.mood == answer
        elif kind == "summary":
            assert tale.summary == answer
        elif kind == "dialogue":
            turns = [turn for dialogue in tale.dialogues for turn in dialogue]
            assert asked.split(" … ") == [turn.question for turn in turns[:2]]
            assert answer.split(" … ") == [turn.answer for turn in turns[:2]]

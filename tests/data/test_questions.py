"""Questions and passages: SQuAD's files, windows that lose nothing, targets that are the answer's characters."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.questions import Question, SpanFinding, read_questions
from regard.errors import ConfigError, FileError
from regard.metrics.answers import overlap, same_answer, words_of
from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece import WordPieceTokenizer

PASSAGE = "In Bruges, Memling painted St Ursula's shrine; it stands in the old hospital, near the river."
TOKENIZERS = {
    "wordpiece": WordPieceTokenizer.train([PASSAGE] * 3, 97),
    "bytes": Tokenizer.train([PASSAGE] * 2, 290),
}


def squad(passage: object = PASSAGE, **changes: object) -> dict[str, object]:
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Memling", "answer_start": 11}]} | changes
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": passage, "qas": [question]}]}]}


def written(folder: Path, record: object) -> Path:
    path = folder / "squad.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    return path


def test_a_file_is_its_questions(tmp_path):
    assert read_questions(written(tmp_path, squad())) == [Question("Who?", PASSAGE, (("Memling", 11),))]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{", "is not a file of questions"),
        ("[]", "is not a file of questions"),
        ({"data": 5}, "is not a file of questions"),
        ({"version": "1.1"}, "lacks the key 'data'; give a file in the format of SQuAD 1.1"),
        ({"data": [{"title": "t"}]}, "lacks the key 'paragraphs'"),
        (squad(answers=[]), "question 'q1' has no answer; leave such questions out"),
        (squad(question=" "), "question 'q1': the question is empty; fill it in"),
        (squad(question=3), "question 'q1': the question is 3, not a string"),
        (squad(question="Who \ud800?"), "squad.json, question 'q1': the question has half of a character (\\ud800)"),
        (squad(passage="\ud801" + PASSAGE), "squad.json, question 'q1': the passage has half of a character (\\ud801)"),
        (squad(passage=PASSAGE + "\0"), "question 'q1': the passage holds a NUL"),
        (squad(passage=3), "question 'q1': the passage is 3, not a string"),
        (squad(passage="\n"), "question 'q1': the passage is empty"),
        (squad(answers=[{"text": "n", "answer_start": True}]), 'the answer "n" at true is not a text at a number'),
        (squad(answers=[{"text": "n", "answer_start": 1.0}]), 'the answer "n" at 1.0 is not a text at a number'),
        (squad(answers=[{"text": 3, "answer_start": 1}]), "the answer 3 at 1 is not a text at a number"),
        (
            squad(answers=[{"text": "Memling", "answer_start": 11 - len(PASSAGE)}]),
            f"'Memling' does not stand at character {11 - len(PASSAGE)} of its passage; correct answer_start",
        ),
        (squad(answers=[{"text": "Memling", "answer_start": 12}]), "'Memling' does not stand at character 12"),
        (squad(answers=[{"text": "", "answer_start": 0}]), "'' does not stand at character 0"),
        ("", "is empty"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named_with_the_reason(tmp_path, record, said):
    with pytest.raises(FileError) as caught:
        read_questions(written(tmp_path, record))
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(start=st.integers(0, len(PASSAGE) - 2), length=st.integers(1, 20), window=st.integers(14, 70))
def test_targets_are_the_tokens_of_the_answer_and_windows_cover_the_passage(kind, start, length, window):
    tokenizer = TOKENIZERS[kind]
    answer = PASSAGE[start : start + length].strip()
    start = PASSAGE.index(answer, start) if answer else 0
    answer = answer or "In"
    how = SpanFinding(tokenizer, window=window)
    rows = how.windows(Question("who", PASSAGE, ((answer, start),)))
    question, passage = tokenizer.encode("who"), tokenizer.encode(PASSAGE)
    assert all(len(row.source) <= window for row in rows)
    seen: set[int] = set()
    for row in rows:
        inside = row.source[row.first : row.first + len(row.offsets)]
        assert row.source == [tokenizer.bos_id, *question, tokenizer.eos_id, *inside, tokenizer.eos_id]
        assert row.segments == [0] * row.first + [1] * (len(inside) + 1)
        at = tokenizer.offsets(PASSAGE).index(row.offsets[0])
        assert inside == passage[at : at + len(inside)]
        seen |= set(range(at, at + len(inside)))
        if row.target != [0, 0]:
            begin, end = (row.offsets[place - row.first] for place in row.target)
            assert begin[0] <= start < begin[1]
            assert end[0] < start + len(answer) <= end[1]
    assert seen == set(range(len(passage)))
    if len(rows) == 1:
        assert rows[0].target != [0, 0]


def test_windows_overlap_by_a_third():
    rows = SpanFinding(TOKENIZERS["bytes"], window=26).windows(Question("a", "x" * 60))
    (size,) = {len(row.offsets) for row in rows[:-1]}
    firsts = [row.offsets[0][0] for row in rows]
    assert size == 22
    assert firsts == [0, 15, 30, 45][: len(rows)]


def test_a_window_without_room_for_a_passage_is_refused():
    with pytest.raises(ConfigError, match="a window of 8 tokens has no room for a passage beside a question of 7"):
        SpanFinding(TOKENIZERS["bytes"], window=8).windows(Question("zzzzzzz", "yes"))


# Figures


@pytest.mark.parametrize(
    ("answer", "references", "same", "f1"),
    [
        ("The old hospital", ["old hospital."], True, 1.0),
        ("hospital", ["the old hospital"], False, 2 / 3),
        ("a river", ["an old hospital", "River!"], True, 1.0),
        ("river river", ["river bank"], False, 0.5),
        ("", ["the"], True, 1.0),
        ("Theatre", ["atre"], False, 0.0),
        ("bank", [], False, 0.0),
    ],
)
def test_answers_are_compared_as_their_definition_says(answer, references, same, f1):
    assert same_answer(answer, references) is same
    assert overlap(answer, references) == pytest.approx(f1)


def test_case_punctuation_articles_and_blanks_do_not_count():
    assert words_of("  The U.S.  Navy's an-chor, a  ship ") == ["us", "navys", "anchor", "ship"]

"""Tables of a user's own: which column is what is found, said, or refused with what would do."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Pair
from regard.data.labels import LABELLED, labels_of, read_labelled
from regard.data.questions import ASKED, Question, read_questions
from regard.data.sources import PAIR, read_documents, read_pairs
from regard.data.tables import Layout, look, read_columns
from regard.errors import ConfigError, FileError, RegardError

TEXTS = ["a fine film", "dull, very dull", 'the "best" of all', "it is", "no; not at all", "so good", "why?"]
LABELS = ["good", "bad", "good", "bad", "bad", "good", "bad"]
REVIEWS = [Pair(text, label) for text, label in zip(TEXTS, LABELS, strict=True)]


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def as_csv(rows: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def rows(header: list[str] | None, order: str = "tl") -> list[list[str]]:
    pick = {"t": lambda pair: pair.source, "l": lambda pair: pair.target, "i": lambda pair: "7"}
    return [*([header] if header else []), *([pick[one](pair) for one in order] for pair in REVIEWS)]


def as_tsv(values: list[list[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in values)


# What is found


FOUND = {
    "csv by name": ("a.csv", as_csv(rows(["id", "Review", "Sentiment"], "itl")), "column 'Review' is the text"),
    "csv, the other way": ("a.csv", as_csv(rows(["class", "text"], "lt")), "column 'text' is the text, column 'class'"),
    "semicolons": ("a.csv", as_csv(rows(["text", "label"]), ";"), "column 'text' is the text"),
    "unknown names": ("a.csv", as_csv(rows(["was", "gesagt"], "lt")), "column 'gesagt' is the text, column 'was' the"),
    "csv without a header": ("a.csv", as_csv(rows(None)), "column 1 is the text, column 2 the label"),
    "the label first, no header": ("a.csv", as_csv(rows(None, "lt")), "column 2 is the text, column 1 the label"),
    "tsv": ("a.tsv", as_tsv(rows(None)), ""),
    "tsv with the label first": ("a.tsv", as_tsv(rows(None, "lt")), "column 2 is the text, column 1 the label"),
    "tsv with a header": ("a.tsv", as_tsv(rows(["sentence", "label"])), "column 'sentence' is the text"),
    "tsv by another name": ("a.txt", as_tsv(rows(None, "lt")), "column 2 is the text"),
    "jsonl": ("a", "".join(f"{json.dumps({'label': b, 'text': a})}\n" for a, b in REVIEWS), ""),
    "jsonl of other keys": (
        "a.jsonl",
        "".join(f"{json.dumps({'category': b, 'content': a, 'n': 1})}\n" for a, b in REVIEWS),
        "column 'content' is the text, column 'category' the label",
    ),
}


@pytest.mark.parametrize("kind", FOUND)
def test_every_layout_gives_the_same_texts_and_labels_and_says_what_was_chosen(kind, tmp_path):
    name, content, said = FOUND[kind]
    path = written(tmp_path, name, content)
    assert read_labelled(path) == REVIEWS
    layout = look(path, LABELLED)
    assert said in layout.said
    assert bool(said) == bool(layout.said)
    assert look(path, LABELLED, layout.format, layout.columns).columns == layout.columns, "found once, it stays"
    assert read_labelled(path, layout.format, layout.columns) == REVIEWS


def test_columns_that_are_named_are_taken_and_what_is_left_open_is_found(tmp_path):
    path = written(tmp_path, "a.csv", as_csv([["text", "english", "french"], ["x", "go", "va"], ["y", "one", "un"]]))
    given = {"source": "english", "target": "french"}
    assert read_pairs(path, columns=given) == [Pair("go", "va"), Pair("one", "un")]
    assert read_pairs(path, columns={"source": "2", "target": "3"})[0] == Pair("english", "french"), "no header"
    assert read_labelled(path, columns={"label": "french"}) == [Pair("x", "va"), Pair("y", "un")]
    assert read_documents(path) == ["x", "y"]
    three = written(tmp_path, "a.tsv", "Go.\tVa !\tCC-BY\nRun!\tCours !\tCC-BY\n")
    assert read_pairs(three, columns={"source": "1", "target": "2"}) == [Pair("Go.", "Va !"), Pair("Run!", "Cours !")]


def test_two_columns_of_any_name_are_source_and_target(tmp_path):
    path = written(tmp_path, "a.csv", "english,french\ngo,va\none,un\n")
    assert read_pairs(path) == [Pair("go", "va"), Pair("one", "un")]
    assert look(path, PAIR).said.endswith("column 'english' is the source, column 'french' the target")


def test_answers_are_found_in_their_passage_or_stand_where_they_say(tmp_path):
    asked = [Question("what?", "it is fine, so fine.", (("fine", 6),)), Question("who?", "she is.", (("she", 0),))]
    plain = [{"question": one.question, "context": one.context, "answer": one.answers[0][0]} for one in asked]
    lines = "".join(json.dumps(one) + "\n" for one in plain)
    assert read_questions(written(tmp_path, "a.jsonl", lines)) == asked
    table = as_csv([list(plain[0]), *(list(one.values()) for one in plain)])
    assert read_questions(written(tmp_path, "a.csv", table)) == asked
    record = plain[0] | {"answer": {"text": ["fine"], "answer_start": [15]}}
    (found,) = read_questions(written(tmp_path, "b.jsonl", json.dumps(record).replace('"answer"', '"answers"') + "\n"))
    assert found.answers == (("fine", 15),)
    assert look(tmp_path / "a.jsonl", ASKED).columns == {}


fields = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=9).filter(str.strip)


@given(st.lists(st.tuples(fields, st.text("a,;|\"\n '\t", min_size=1).map(lambda text: f"x{text}")), min_size=1))
def test_what_pythons_csv_writes_comes_back_whatever_is_in_a_field(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "random.csv"
    path.write_bytes(as_csv([["source", "target"], *map(list, pairs)]).encode())
    layout = Layout("csv", {"source": "source", "target": "target"})
    assert [texts for _, texts in read_columns(path, PAIR, layout)] == pairs


def test_a_row_over_several_lines_counts_by_the_line_it_begins_at(tmp_path):
    path = written(tmp_path, "a.csv", 'text,label\n"two\nlines",a\n\n"three\nmore\nlines",\n')
    with pytest.raises(FileError, match="line 5: the label is empty; fill it in"):
        read_labelled(path)


# What is refused


BAD = {
    "no column": (
        "a.csv",
        "id,body,stars\n1,x,y\n",
        {},
        "has the columns 'id', 'body', 'stars', and which are text and",
    ),
    "named wrongly": (
        "a.csv",
        "id,body\n1,x\n",
        {"text": "boddy", "label": "id"},
        "has no column 'boddy' but 2: 'id',",
    ),
    "a number beyond": ("a.csv", "x,y\nz,w\n", {"text": "1", "label": "3"}, "has no column 3 but 2"),
    "two may be it": ("a.csv", "review,sentence,label\na,b,c\n", {}, "'review' and 'sentence' may both be the text"),
    "two of one name": ("a.csv", "text,label,text\na,b,c\n", {}, "has two columns of the name 'text'"),
    "other width": ("a.csv", "text,label\na,b\nc,d,e\n", {}, "line 3 has 3 fields, not 2"),
    "an open quote": ("a.csv", 'text,label\na,b\n"c,d\ne,f\n', {}, "line 3 is not CSV (unexpected end of data)"),
    "a quote inside": ("a.csv", 'text,label\n"a"b,c\n', {}, "line 2 is not CSV ("),
    "an empty cell": ("a.csv", "text,label\na,b\n ,b\n", {}, "line 3: the text is empty"),
    "three tabs": ("a.tsv", "a\tb\tc\n", {}, "line 1 has 2 tabs, not one; write text, one tab, label on each line"),
    "a header alone": ("a.csv", "text,label\n", {}, "has a header and no rows"),
    "nothing": ("a.csv", "", {}, "is empty; give a file with some text"),
    "no table": ("a.txt", "good film\nbad film\n", {"text": "a", "label": "b"}, "columns have no meaning for"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_unclear_or_broken_is_refused_with_its_line_and_a_remedy(kind, tmp_path):
    name, content, columns, said = BAD[kind]
    path = written(tmp_path, name, content)
    with pytest.raises(RegardError) as caught:
        read_labelled(path, columns=columns)
    assert said in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_field_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.tables.LONGEST_FIELD", 50)
    before = csv.field_size_limit()
    path = written(tmp_path, "a.csv", 'text,label\na,b\n"' + "c,d\n" * 30 + '",e\n')
    with pytest.raises(
        FileError, match=r"line 3 is not CSV \(field larger than field limit \(50\)\); close its quotes"
    ):
        read_labelled(path)
    assert csv.field_size_limit() == before


def test_an_answer_that_its_passage_does_not_hold_is_named(tmp_path):
    path = written(tmp_path, "a.csv", "question,context,answer\nwho?,I am.,he\n")
    with pytest.raises(FileError, match="line 2: the answer 'he' does not stand in its context; give the answer as"):
        read_questions(path)


def test_labels_that_are_the_texts_are_noticed():
    with pytest.raises(ConfigError, match="the 30 training examples have 30 different labels, such as '0'; say which"):
        labels_of([Pair("a", str(number)) for number in range(30)])

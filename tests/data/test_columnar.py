"""Parquet and Arrow: the same examples as in lines of JSON, and one sentence on files that are damaged."""

import json
import sys

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq

from regard.data import columnar
from regard.data.conversations import read_conversations
from regard.data.labels import read_labelled
from regard.data.questions import read_questions
from regard.data.sources import read_documents, read_pairs
from regard.data.tables import look
from regard.errors import ConfigError, FileError


def write(path, rows, kind):
    table = pa.Table.from_pylist(rows)
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=3)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=2)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    return path


WORDS = ["one", "zwei", "drei é", "four", "five\nlines", "six", "seven"]
CASES = {
    "pairs": ([{"n": n, "target": word[::-1], "source": word} for n, word in enumerate(WORDS)], read_pairs),
    "documents": ([{"id": n, "text": word} for n, word in enumerate(WORDS)], read_documents),
    "labels": ([{"review": word, "label": n % 3} for n, word in enumerate(WORDS)], read_labelled),
    "questions": (
        [{"question": f"{word}?", "context": f"is {word}", "answer": word} for word in WORDS],
        read_questions,
    ),
    "SQuAD's answers": (
        [
            {"question": f"{word}?", "context": f"is {word}", "answers": {"text": [word], "answer_start": [3]}}
            for word in WORDS
        ],
        read_questions,
    ),
    "chats": (
        [
            {"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word[::-1]}]}
            for word in WORDS
        ],
        read_conversations,
    ),
}


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("name", CASES)
def test_columns_hold_what_lines_hold(tmp_path, name, kind, monkeypatch):
    monkeypatch.setattr(columnar, "ROWS", 2)
    rows, read = CASES[name]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ending = "parquet" if kind == "parquet" else "arrow"
    found = read(write(tmp_path / f"rows.{ending}", rows, kind))
    assert found == read(lines)
    assert len(found) == len(rows)
    assert read(write(tmp_path / "rows", rows, kind)) == found  # its first bytes say what it is


def test_columns_are_found_by_name_or_named(tmp_path):
    rows = [{"a": "x", "b": "y", "c": "z"}] * 3
    path = write(tmp_path / "rows.parquet", rows, "parquet")
    with pytest.raises(FileError, match="which are source and target is not clear"):
        read_pairs(path)
    assert read_pairs(path, "auto", {"source": "c", "target": "a"}) == [("z", "x")] * 3
    with pytest.raises(FileError, match="has no column 'd' but"):
        read_pairs(path, "parquet", {"source": "d", "target": "a"})
    named = write(tmp_path / "named.parquet", [{"input": "x", "output": "y"}], "parquet")
    assert look(named, ("source", "target")).said.endswith("column 'input' is the source, column 'output' the target")


def test_damaged_files_are_named_in_one_sentence(tmp_path):
    rows = [{"text": word} for word in WORDS]
    for kind in ("parquet", "arrow"):
        whole = write(tmp_path / f"a.{kind}", rows, kind).read_bytes()
        for size in (len(whole) // 2, len(whole) - 5, 9):
            (tmp_path / f"b.{kind}").write_bytes(whole[:size])
            with pytest.raises(FileError, match=f"is a damaged {kind.title()} file") as refusal:
                read_documents(tmp_path / f"b.{kind}")
            assert "\n" not in str(refusal.value)
        (tmp_path / f"c.{kind}").write_text("no such thing")
        with pytest.raises(FileError, match=f"is no {kind.title()} file"):
            read_documents(tmp_path / f"c.{kind}")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": None}, "row 2: the text is null"),
        ({"text": ""}, "row 2: the text is empty"),
        ({"text": "a\0b"}, "holds a NUL"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, said):
    path = write(tmp_path / "a.parquet", [{"text": "good"}, row], "parquet")
    with pytest.raises(FileError, match=said):
        read_documents(path)


def test_no_rows_and_numbers_are_no_texts(tmp_path):
    empty = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), empty)
    with pytest.raises(FileError, match="has no rows"):
        read_documents(empty)
    with pytest.raises(FileError, match="row 1: the text is 3, not a string"):
        read_documents(write(tmp_path / "b.parquet", [{"text": 3}], "parquet"))


def test_without_pyarrow_it_is_said_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", [{"text": "good"}], "parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"takes pyarrow to read; install it: pip install 'regard\[data\]'"):
        read_documents(path)

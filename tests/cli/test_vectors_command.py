"""`regard vectors`: train, ask, export; and one sentence for whatever cannot be done."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from regard.embedding.vectors import Vectors
from regard.embedding.vectors_file import read_vectors, write_vectors

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@pytest.fixture
def text() -> Path:
    path = Path("corpus.txt")
    lines = [" ".join(DAYS[(start + step) % 7] for step in range(9)) for start in range(200)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def file() -> Path:
    matrix = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [0.5, 0.5, 0.1]], dtype=np.float32)
    write_vectors(Vectors(("man", "woman", "king", "queen", "person"), matrix), Path("small.txt"))
    return Path("small.txt")


@pytest.mark.parametrize("name", ["v.txt", "v.bin.gz"])
@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
def test_vectors_are_trained_into_the_file_that_was_asked_for(call, text, kind, name):
    pytest.importorskip("numba")
    found = call("vectors", "train", text, "--out", name, "--kind", kind, "--width", 11, "--epochs", 2, "--threads", 1)
    assert found.code == 0, found.err
    assert "epoch 2 of 2  100 %  loss" in found.err
    assert found.out == f"{name} holds 7 vectors; ask them with: regard vectors neighbours {name} WORD\n"
    vectors = read_vectors(Path(name))
    assert set(vectors.words) == set(DAYS)
    assert vectors.width == 11


def test_the_same_seed_gives_the_same_file_on_one_thread_and_on_two(call, text):
    pytest.importorskip("numba")
    for threads in (1, 2):
        options = ("--width", 7, "--epochs", 2, "--seed", 3, "--json", "--loss", "hierarchical-softmax")
        found = call("vectors", "train", text, "--out", f"{threads}.bin", "--threads", threads, *options)
        record = json.loads(found.out)
        assert (record["vectors"], record["words"], record["width"]) == (f"{threads}.bin", 7, 7)
        assert len(record["losses"]) == 2
    assert Path("1.bin").read_bytes() == Path("2.bin").read_bytes()


def test_neighbours_and_analogies_are_those_of_the_vectors(call, file):
    vectors = read_vectors(file)
    lines = call("vectors", "neighbours", file, "king", "--count", 3).out.splitlines()
    assert [line.split()[1] for line in lines] == [one.word for one in vectors.neighbours("king", 3)]
    found = json.loads(call("vectors", "analogy", file, "man", "king", "woman", "--json").out)
    assert found["first"] == "man"
    assert [one["word"] for one in found["neighbours"]] == ["queen", "person"]


def test_export_changes_the_format_and_not_a_number(call, file):
    before = read_vectors(file)
    for name in ("one.bin", "two.txt.gz", "three.bin.gz"):
        assert call("vectors", "export", file, name).out == f"{name} holds 5 vectors of width 3\n"
        after = read_vectors(Path(name))
        assert after.words == before.words
        assert after.matrix.tobytes() == before.matrix.tobytes()


TRAIN = ("vectors", "train", "bad.txt", "--out", "out.txt")
BAD = {
    "an empty corpus": (b"", TRAIN, "bad.txt is empty; give a file with some text in it"),
    "a corpus of one word": (b"word " * 99, TRAIN, "1 of 1 words occur 5 times or more and two are needed"),
    "no word above min-count": (b"a b c d e", TRAIN, "0 of 5 words occur 5 times or more"),
    "no words on one line": (b"a\nb\n" * 9, TRAIN, "no line of the corpus has two words"),
    "a binary file as corpus": (b"\x7fELF\0\1" * 9, TRAIN, "bad.txt, line 1 holds a NUL, which no text has"),
    "Latin-1 as corpus": (b"caf\xe9 " * 9, TRAIN, "bad.txt, line 1 is not UTF-8"),
    "an impossible width": (b"a b " * 9, (*TRAIN, "--width", "0"), "width = 0 cannot be used"),
    "an option without effect": (
        b"a b " * 9,
        (*TRAIN, "--loss", "hierarchical-softmax", "--negatives", "3"),
        "negatives have no effect with loss 'hierarchical-softmax'",
    ),
    "no thread": (b"a b " * 9, (*TRAIN, "--threads", "0"), "0 threads cannot train"),
    "fewer than no threads": (b"a b " * 9, (*TRAIN, "--threads", "-3"), "-3 threads cannot train"),
    "threads of a GPU": (
        b"a b " * 9,
        (*TRAIN, "--device", "cuda", "--threads", "2"),
        "threads has no effect on device",
    ),
    "no such device": (b"a b " * 9, (*TRAIN, "--device", "abacus"), "device 'abacus' cannot be used here"),
    "a folder to write to": (b"a b " * 9, (*TRAIN[:-1], "."), ". is a folder; give the name of a file"),
    "no file of vectors": (b"", ("vectors", "neighbours", "none.txt", "a"), "none.txt does not exist"),
    "text as vectors": (b"once upon a time", ("vectors", "neighbours", "bad.txt", "a"), "does not begin with a line"),
    "vectors cut": (
        b"3 2\n" + b"a " + struct.pack("<2f", 1, 2) + b"b " + b"\0",
        ("vectors", "neighbours", "bad.txt", "a"),
        "bad.txt ends, or is damaged, inside word number 2",
    ),
    "an unknown word": (
        b"2 2\nking 1 2\nqueen 3 4\n",
        ("vectors", "analogy", "bad.txt", "king", "qeen", "king"),
        "the word 'qeen' has no vector among the 2 here; the nearest spellings that have one: queen",
    ),
    "export of a damaged file": (b"9 9\n", ("vectors", "export", "bad.txt", "out.txt"), "has 9 words and has 0"),
    "no neighbours": (b"1 1\na 1\n", ("vectors", "neighbours", "bad.txt", "a", "--count", "0"), "0 neighbours"),
}


CASES = [
    pytest.param(*case, as_json, id=f"{name}, {'json' if as_json else 'plain'}")
    for name, case in BAD.items()
    for as_json in (False, True)
    if not (as_json and case[1][1] == "export")  # which has nothing for a program to read
]


@pytest.mark.parametrize(("content", "arguments", "said", "as_json"), CASES)
def test_what_cannot_be_done_is_one_sentence_and_writes_nothing(call, content, arguments, said, as_json):
    Path("bad.txt").write_bytes(content)
    found = call(*arguments, *(["--json"] if as_json else []))
    assert found.code == 1
    assert found.out == ""
    last = found.err.splitlines()[-1]
    assert said in (json.loads(last)["error"] + "; " + json.loads(last)["remedy"] if as_json else last)
    assert "Traceback" not in found.err
    assert [path.name for path in Path().iterdir()] == ["bad.txt"]


def test_an_export_is_one_object_where_a_program_reads_it(call, file):
    found = call("vectors", "export", file, "small.bin", "--json")
    assert json.loads(found.out) == {"vectors": "small.bin", "words": 5, "width": 3}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("corpus.txt", ("--out", "corpus.txt/v.txt"), "corpus.txt is a file, not a folder"),
        ("corpus.txt", ("--out", "v.txt", "--device", "nowhere"), "device 'nowhere' cannot be used here"),
        ("corpus.txt", ("--out", "v.txt", "--device", "meta"), "device 'meta' cannot be used here"),
        ("corpus.txt", ("--out", "v.txt", "--threads", "0"), "0 threads cannot train"),
        ("pipe", ("--out", "v.txt"), "pipe is a pipe, and the text is read twice; write it to a file first"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_text_is_read(call, text, monkeypatch, name, options, said):
    os.mkfifo("pipe")
    monkeypatch.setattr("regard.text.counting.read_texts", lambda *_: pytest.fail("the text was read"))
    found = call("vectors", "train", name, *options)
    assert (found.code, found.out) == (1, "")
    assert said in found.err


def test_a_word_that_is_alone_has_no_neighbours_and_that_is_said(call):
    Path("one.txt").write_text("1 2\nalone 1 2\n", encoding="utf-8")
    found = call("vectors", "neighbours", "one.txt", "alone")
    assert (found.code, found.out, found.err) == (0, "", "no other word has a vector\n")

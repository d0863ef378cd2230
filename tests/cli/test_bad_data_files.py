"""Bad data files through `regard train` and `regard evaluate`: they train, or one sentence says what is wrong."""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from regard import files

PAIRS = "a\tA\nbb\tBB\nccc\tCCC\n"
RECIPE = """
[data]
train = {train}
valid = "valid.tsv"
test = "valid.tsv"
[tokenizer]
size = 270
[model]
layers = 1
width = 12
heads = 2
feedforward_width = 7
[training]
steps = 2
batch_tokens = 64
warmup = 1
[decoding]
max_new_tokens = 3
"""


@dataclass(frozen=True)
class Data:
    """Files to train on, and what is said of them; nothing where they are good."""

    files: dict[str, bytes]
    said: str = ""
    changes: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)


def lines(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(count))


GOOD = {
    "byte-order mark and CRLF": Data({"a.tsv": b"\xef\xbb\xbf" + PAIRS.replace("\n", "\r\n").encode()}),
    "CR alone": Data({"a.tsv": PAIRS.replace("\n", "\r").encode()}),
    "UTF-16": Data({"a.tsv": PAIRS.encode("utf-16")}),
    "gzip by another name": Data({"a.tsv": gzip.compress(PAIRS.encode())}),
    "gzip of JSON lines": Data({"a.jsonl.gz": gzip.compress(b'{"source": "a", "target": "A"}\n' * 3)}),
    "two files, one packed": Data({"a.en": b"a\nb\n", "a.de.gz": gzip.compress(b"A\nB")}),
    "one pair": Data({"a.tsv": b"a\tA"}),
    "duplicates": Data({"a.tsv": b"a\tA\n" * 100}),
    "JSON by another name": Data(
        {"a.txt": b'{"source": "a", "target": "A"}'},
        changes=("data.format=jsonl", "data.valid=a.txt", "data.test=a.txt"),
    ),
}
BAD = {
    "empty": Data({"a.tsv": b""}, "a.tsv is empty; give a file with some text in it"),
    "blank lines": Data({"a.tsv": b"\n\n\r\n"}, "a.tsv is empty"),
    "no tab": Data({"a.tsv": b"a\tA\nb B\n"}, "a.tsv, line 2 has 0 tabs, not one; write source, one tab, target"),
    "text alone": Data(
        {"a.txt": b"a b\nc d\n"},
        "a.txt, line 1 has 0 tabs, not one; write source, one tab, target on each line, or give two files",
    ),
    "three columns": Data({"a.tsv": b"a\tA\tx\n"}, "a.tsv, line 1 has 2 tabs, not one"),
    "a side is empty": Data({"a.tsv": b"a\tA\n\tB\n"}, "a.tsv, line 2: the source is empty; fill it in"),
    "Latin-1": Data({"a.tsv": b"caf\xe9\tA\n"}, "a.tsv, line 1 is not UTF-8 (byte 0xe9); save the file as UTF-8"),
    "UTF-16 without a mark": Data({"a.tsv": PAIRS.encode("utf-16-le")}, "a.tsv, line 1 holds a NUL"),
    "NUL": Data({"a.tsv": b"a\tA\nb\0\tB\n"}, "a.tsv, line 2 holds a NUL, which no text has"),
    "one side shorter": Data({"a.en": lines(5), "a.de": lines(3)}, "a.en has 5 lines and a.de has 3; make line N"),
    "one side longer by an empty line": Data(
        {"a.en": b"a\nb\n", "a.de": b"A\nB\n\n"}, "a.en has 2 lines and a.de has 3"
    ),
    "one side missing": Data({"a.en": b"a\n"}, "a.de does not exist; check the path", names=["a.en", "a.de"]),
    "gzip cut": Data({"a.tsv.gz": gzip.compress(lines(99))[:-9]}, "a.tsv.gz is a damaged gzip file (Compressed file"),
    "a bomb": Data({"a.tsv.gz": gzip.compress(b"x" * 2**22)}, "a.tsv.gz unpacks to more than 100 times its size"),
    "zip": Data({"a.zip": b"PK\x03\x04rest"}, "a.zip is packed with zip; unpack it, or pack it once with gzip"),
    "keys of others": Data({"a.jsonl": b'{"en": "a", "de": "A"}'}, 'line 1 has no "source" but "en", "de"; write one'),
    "not JSON": Data({"a.jsonl": PAIRS.encode()}, "a.jsonl, line 1 is not JSON (Expecting value at character 1)"),
    "a lone surrogate": Data(
        {"a.jsonl": b'{"source": "\\ud800", "target": "A"}'}, "the source has half of a character (\\ud800); write both"
    ),
    "a line of 1 MB": Data(
        {"a.tsv": b"a\tA\n" + b"x" * 2**20 + b"\tB\n"},
        "tokens and a batch holds 64: it begins 'xxxx",
    ),
    "documents": Data({"a.txt": b"a\n\nb\n"}, "[data] format 'text' has documents", ("data.format=text",)),
    "one file called two": Data({"a.tsv": PAIRS.encode()}, "format 'parallel' takes two", ("data.format=parallel",)),
    "two files called one": Data({"a": b"a\n", "b": b"b\n"}, "format 'tsv' takes one file", ("data.format=tsv",)),
    "a format of others": Data({"a.xls": b"a,A\n"}, "[data] format = 'xls' cannot be used", ("data.format=xls",)),
    "a number for a file": Data({"a.tsv": b""}, "[data] train = 5 cannot be used; give a file", ("data.train=5",)),
    "a folder for a file": Data({"a.tsv": b""}, ". is a folder, not a file", ("data.train=.",)),
}


@pytest.fixture(autouse=True)
def _small_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", 2**20)


def prepare(data: Data) -> tuple[str, ...]:
    for name, content in data.files.items():
        Path(name).write_bytes(content)
    Path("valid.tsv").write_text(PAIRS)
    names = data.names or list(data.files)
    Path("mine.toml").write_text(RECIPE.format(train=json.dumps(names if len(names) > 1 else names[0])))
    changes = [part for change in data.changes for part in ("--set", change)]
    return ("train", "mine.toml", *changes, "--out", "out")


@pytest.mark.parametrize("kind", GOOD)
def test_data_that_look_bad_are_trained_on(kind, call):
    answer = call(*prepare(GOOD[kind]))
    assert answer.code == 0, answer.err
    assert call("run", "out", "a").code == 0


@pytest.mark.parametrize("kind", BAD)
def test_data_that_are_bad_are_named_in_one_sentence_and_nothing_is_written(kind, call):
    answer = call(*prepare(BAD[kind]))
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1, answer.err
    assert BAD[kind].said in answer.err
    problem, _, remedy = answer.err.partition("; ")
    assert problem.startswith("regard: ")
    assert remedy.strip()
    assert not Path("out").exists()


def test_a_model_is_evaluated_without_its_training_data(call):
    assert call(*prepare(GOOD["one pair"])).code == 0
    Path("a.tsv").unlink()
    answer = call("evaluate", "out", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["examples"] == 3


def test_data_to_evaluate_on_may_be_json_lines(call):
    assert call(*prepare(GOOD["one pair"])).code == 0
    Path("more.jsonl").write_text('{"source": "a", "target": "A"}\n' * 5)
    answer = call("evaluate", "out", "more.jsonl", "--json")
    assert json.loads(answer.out)["examples"] == 5

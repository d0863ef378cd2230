"""Bad data: each kind is read as a person would expect, or refused by one sentence with file, line and remedy."""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from errno import EACCES
from pathlib import Path

import pytest

from regard import files
from regard.data.corpus import Pair
from regard.data.sources import read_documents, read_pairs
from regard.errors import FileError

TSV, JSON, TEXT = "pairs.tsv", "pairs.jsonl", "text.txt"
GOOD = b"a\tb\n"
OBJECT = b'{"source": "a", "target": "b"}\n'


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pairs.tsv", content)
    return packed.getvalue()


@dataclass(frozen=True)
class Handled:
    """Data that look bad and are read all the same."""

    content: bytes
    read: list[Pair] | list[str]
    name: str = TSV


@dataclass(frozen=True)
class Refused:
    """Data that are refused: a part of what must be said, after the file's name."""

    content: bytes
    said: str
    name: str = TSV


AB = [Pair("a", "b")]
HANDLED = {
    "byte-order mark": Handled(b"\xef\xbb\xbfa\tb\n", AB),
    "CRLF": Handled(b"a\tb\r\nc\td\r\n", [*AB, Pair("c", "d")]),
    "CRLF cut after CR": Handled(b"a\tb\r\nc\td\r", [*AB, Pair("c", "d")]),
    "CR alone, as on old Macs": Handled(b"a\tb\rc\td\r", [*AB, Pair("c", "d")]),
    "CR inside a line": Handled(b"a\rx\tb\nc\td\n", [Pair("a\rx", "b"), Pair("c", "d")]),
    "no line end at the end": Handled(b"a\tb", AB),
    "UTF-16 with a mark": Handled("a\tb\n".encode("utf-16"), AB),
    "UTF-16, big end first": Handled(b"\xfe\xff" + "a\té\n".encode("utf-16-be"), [Pair("a", "é")]),
    "Unicode's other line ends": Handled("a\u2028\x85\x0b\tb\n".encode(), [Pair("a\u2028\x85\x0b", "b")]),
    "emoji and right-to-left": Handled("\U0001f600\tשלום\n".encode(), [Pair("\U0001f600", "שלום")]),
    "gzip without the name": Handled(gzip.compress(GOOD), AB),
    "the name of gzip without the packing": Handled(GOOD, AB, "pairs.tsv.gz"),
    "gzip of two parts": Handled(gzip.compress(GOOD) + gzip.compress(b"c\td\n"), [*AB, Pair("c", "d")]),
    "a line of 1 MB": Handled(b"x" * 2**20 + b"\tb\n", [Pair("x" * 2**20, "b")]),
    "duplicates": Handled(GOOD * 3, AB * 3),
    "JSON escapes of a whole pair": Handled(
        b'{"source": "\\ud83d\\ude00", "target": "b"}', [Pair("\U0001f600", "b")], JSON
    ),
    "more keys": Handled(b'{"id": 3, "source": "a", "target": "b", "x": null}', AB, JSON),
    "blank lines in text": Handled(b"\n\na\n\n\n b\nc\n\n", ["a", " b\nc"], TEXT),
}

REFUSED = {
    "nothing": Refused(b"", " is empty; give a file with some text in it"),
    "nothing, packed": Refused(gzip.compress(b""), " is empty"),
    "a byte-order mark and no more": Refused(b"\xef\xbb\xbf", " is empty"),
    "blank lines": Refused(b"\n \r\n\n", " is empty"),
    "blank text": Refused(b"\n \n", " is empty", TEXT),
    "no tab": Refused(GOOD + b"no tab\n", ", line 2 has 0 tabs, not one; write source, one tab, target"),
    "three columns": Refused(
        GOOD + b"a\tb\tc\n", ", line 2 has 2 tabs, not one; write source, one tab, target on each"
    ),
    "a blank line": Refused(GOOD + b"\n" + GOOD, ", line 2 has 0 tabs"),
    "a blank line at the end": Refused(GOOD + b"\n", ", line 2 has 0 tabs"),
    "no source": Refused(GOOD + b"\tb\n", ", line 2: the source is empty; fill it in, or remove the line"),
    "a blank target": Refused("a\t\u3000\n".encode(), ", line 1: the target is empty"),
    "Latin-1": Refused(GOOD + b"caf\xe9\tb\n", ", line 2 is not UTF-8 (byte 0xe9); save the file as UTF-8"),
    "a surrogate in bytes": Refused(GOOD + b"\xed\xa0\x80\tb\n", ", line 2 is not UTF-8 (byte 0xed)"),
    "a character cut in two": Refused("a\té".encode()[:-1], ", line 1 is not UTF-8 (byte 0xc3)"),
    "UTF-16 without a mark": Refused("a\tb\n".encode("utf-16-le"), ", line 1 holds a NUL, which no text has; give"),
    "UTF-16 cut": Refused("a\tb\nc\td".encode("utf-16")[:-1], ", line 2 is not UTF-16 (truncated data); save"),
    "half a pair in UTF-16": Refused(b"\xff\xfea\0\t\0\x00\xd8\n\0", ", line 1 is not UTF-16"),
    "NUL": Refused(GOOD + b"a\0\tb\n", ", line 2 holds a NUL"),
    "NUL in UTF-16": Refused("a\tb\na\0\tb".encode("utf-16"), ", line 2 holds a NUL"),
    "gzip cut": Refused(gzip.compress(GOOD * 99)[:-9], " is a damaged gzip file (Compressed file ended before"),
    "gzip damaged": Refused(gzip.compress(GOOD)[:14] + b"!!!" + gzip.compress(GOOD)[17:], " is a damaged gzip file ("),
    "gzip with another sum": Refused(gzip.compress(GOOD)[:-8] + b"\0" * 8, " is a damaged gzip file (CRC check failed"),
    "gzip with rubbish after it": Refused(gzip.compress(GOOD) + b"rubbish", " is a damaged gzip file ("),
    "gzip, twice": Refused(gzip.compress(gzip.compress(GOOD)), " is packed with gzip, twice; unpack it"),
    "zip": Refused(zipped(GOOD), " is packed with zip; unpack it, or pack it once with gzip"),
    "a bomb": Refused(gzip.compress(bytes(2**20)), " unpacks to more than 100 times its size; unpack it yourself"),
    "not JSON": Refused(OBJECT + b"a\tb\n", ", line 2 is not JSON (Expecting value at character 1); write", JSON),
    "JSON cut": Refused(OBJECT[:-3], ", line 1 is not JSON (Unterminated string", JSON),
    "a blank line in JSON": Refused(OBJECT + b"\n", ", line 2 is empty; write one object on each line", JSON),
    "one JSON list": Refused(b"[" + OBJECT.strip() + b"]", ", line 1 is JSON but not an object; write one", JSON),
    "other keys": Refused(
        b'{"en": "a", "de": "b"}', ', line 1 has no "source" but "en", "de"; write one object on each line', JSON
    ),
    "one key": Refused(OBJECT + b'{"source": "a"}', ', line 2 has no "target" but "source"', JSON),
    "no keys": Refused(b"{}", ', line 1 has no "source" but no keys', JSON),
    "a key twice": Refused(b'{"source": "a", "source": "b", "target": "c"}', ", line 1 cannot be read (a key", JSON),
    "a number for a text": Refused(b'{"source": 5, "target": "b"}', ": the source is 5, not a string; put", JSON),
    "null for a text": Refused(OBJECT + b'{"source": "a", "target": null}', "line 2: the target is null, not", JSON),
    "an empty text": Refused(b'{"source": "a", "target": ""}', ", line 1: the target is empty", JSON),
    "a lone surrogate": Refused(
        b'{"source": "a\\ud800", "target": "b"}', ", line 1: the source has half of a character (\\ud800); write", JSON
    ),
    "an escaped NUL": Refused(b'{"source": "\\u0000a", "target": "b"}', "line 1: the source holds a NUL", JSON),
    "nested without end": Refused(b"[" * 100_000, ", line 1 cannot be read (", JSON),
    "a number without end": Refused(b"9" * 10_000, ", line 1 cannot be read (", JSON),
}


@pytest.fixture(autouse=True)
def _small_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", 2**15)


def read(path: Path) -> list[Pair] | list[str]:
    return read_documents(path) if path.name == TEXT else read_pairs(path)


@pytest.mark.parametrize("kind", HANDLED)
def test_what_looks_bad_and_can_be_read_is_read(kind, tmp_path):
    path = tmp_path / HANDLED[kind].name
    path.write_bytes(HANDLED[kind].content)
    assert read(path) == HANDLED[kind].read


def sentence(path: Path | tuple[Path, Path], read: Callable[..., object] = read_pairs) -> str:
    with pytest.raises(FileError) as caught:
        read(path)
    assert caught.value.problem
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused_by_one_sentence_that_names_file_and_line(kind, tmp_path):
    path = tmp_path / REFUSED[kind].name
    path.write_bytes(REFUSED[kind].content)
    said = sentence(path, read)
    assert said.startswith(str(path))
    assert REFUSED[kind].said in said


def test_twenty_kinds_and_more_are_in_the_tables():
    assert len(REFUSED) >= 20
    assert len(HANDLED) >= 10


# Paths


def test_a_path_that_is_no_file_is_named_with_what_it_is(tmp_path):
    assert f"{tmp_path} is a folder, not a file" in sentence(tmp_path)
    assert "none.tsv does not exist; check the path" in sentence(tmp_path / "none.tsv")
    assert "/dev/zero is a device, not a file" in sentence(Path("/dev/zero"))
    assert "cannot be read (File name too long)" in sentence(tmp_path / ("x" * 300))
    assert "cannot be the name of a file" in sentence(Path("a\0b"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "loop cannot be read (Too many levels of symbolic links)" in sentence(tmp_path / "loop")
    (tmp_path / "file").write_bytes(GOOD)
    assert "cannot be read (Not a directory)" in sentence(tmp_path / "file" / "a.tsv")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def closed(path: Path, mode: str) -> None:
        raise PermissionError(EACCES, os.strerror(EACCES))

    path = tmp_path / TSV
    path.write_bytes(GOOD)
    monkeypatch.setattr(files, "open", closed, raising=False)
    assert "cannot be read (Permission denied); check the path and its permissions" in sentence(path)


# Two files


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (b"a\nb\nc\n", b"A\nB\n", "one has 3 lines and {folder}/two has 2; make line N"),
        (b"a\nb\n", b"A\nB\n\n", "one has 2 lines and {folder}/two has 3"),
        (b"a\nb\n", b"A\n\n", "two, line 2: the target is empty"),
        (b"a\nb\n", b"", "two is empty"),
        (b"a\rb\r", b"A\nB\nC\n", "one has 2 lines and {folder}/two has 3"),
        (b"a\nb\n", gzip.compress(b"A\nB\n", mtime=0)[:-5], "two is a damaged gzip file"),
        (b"a\nb\n", b"A\n\xe9\n", "two, line 2 is not UTF-8"),
    ],
)
def test_the_side_that_does_not_fit_is_named(tmp_path, source, target, said):
    paths = tmp_path / "one", tmp_path / "two"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    assert said.format(folder=tmp_path) in sentence(paths)


def test_one_packed_side_and_one_plain_side_are_a_pair(tmp_path):
    paths = tmp_path / "one", tmp_path / "two"
    paths[0].write_bytes(gzip.compress(b"a\r\nb\r\n"))
    paths[1].write_bytes(b"A\nB")
    assert read_pairs(paths) == [Pair("a", "A"), Pair("b", "B")]


# Documents


def test_a_document_without_text_is_named_with_its_keys(tmp_path):
    path = tmp_path / JSON
    path.write_bytes(json.dumps({"text": "a"}).encode() + b"\n" + OBJECT)
    assert 'line 2 has no "text" but "source", "target"; write one object on each line, such as {"text"' in sentence(
        path, read_documents
    )


# Bombs


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """64 MB in 64 kB: no more than the limit is ever unpacked."""
    path = tmp_path / TSV
    with gzip.open(path, "wb", compresslevel=9) as stream:
        for _ in range(64):
            stream.write(b"x" * 2**20)
    monkeypatch.setattr(files, "MOST_TIMES", 3)
    unpacked = []
    original = files.Unpacked.readinto
    monkeypatch.setattr(
        files.Unpacked, "readinto", lambda self, buffer: unpacked.append(original(self, buffer)) or unpacked[-1]
    )
    assert "unpacks to more than 3 times its size" in sentence(path)
    assert sum(unpacked) <= 2**15 + 3 * path.stat().st_size


def test_what_unpacks_to_just_the_limit_is_read(tmp_path, monkeypatch):
    path = tmp_path / TSV
    content = GOOD * 9973
    path.write_bytes(gzip.compress(content))
    monkeypatch.setattr(files, "MOST_TIMES", 0)
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", len(content))
    assert len(read_pairs(path)) == 9973
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", len(content) - 1)
    assert "unpacks to more than" in sentence(path)

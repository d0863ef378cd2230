"""What is written in a file, in any format and packing, is what is read."""

import gzip
import json
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Corpus, Pair
from regard.data.sources import PairList, read_documents, read_pairs
from regard.errors import ConfigError, FileError, InputError

PAIRS = [Pair("a rose", "une rose"), Pair(" two  spaces ", "deux"), Pair("line\u2028separator", "é\x0b\x85")]
sides = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"])).filter(
    lambda text: text.strip() and not text.startswith("\ufeff")
)


def tsv(folder: Path, content: bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content)
    return path


def parallel(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    paths = folder / "text.en", folder / "text.fr"
    paths[0].write_bytes(source)
    paths[1].write_bytes(target)
    return paths


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_what_was_written_is_read_whatever_the_line_ends_and_mark(
    tmp_path: Path, mark: bytes, end: str, last: bool
) -> None:
    def joined(lines: list[str]) -> bytes:
        return mark + (end.join(lines) + end * last).encode()

    one = tsv(tmp_path, joined(["\t".join(pair) for pair in PAIRS]))
    two = parallel(tmp_path, joined([pair.source for pair in PAIRS]), joined([pair.target for pair in PAIRS]))
    assert read_pairs(one) == read_pairs(one, "tsv") == PAIRS
    assert read_pairs(two) == read_pairs(two, "parallel") == PAIRS


def packed(path: Path) -> Path:
    """The same bytes in gzip, under a name that does not say so."""
    path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("pack", [packed, lambda path: path], ids=["gzip", "plain"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_every_format_gives_the_same_pairs_in_every_encoding_and_packing(tmp_path, encoding, pack, end, last):
    def file(name: str, lines: list[str]) -> Path:
        path = tmp_path / name
        path.write_bytes((end.join(lines) + end * last).encode(encoding))
        return pack(path)

    sources, targets = zip(*PAIRS, strict=True)
    objects = [json.dumps({"id": 7, "source": one, "target": two}, ensure_ascii=False) for one, two in PAIRS]
    assert read_pairs(file("pairs.tsv", ["\t".join(pair) for pair in PAIRS])) == PAIRS
    assert read_pairs((file("a", list(sources)), file("b", list(targets)))) == PAIRS
    assert read_pairs(file("pairs.jsonl", objects)) == read_pairs(file("pairs", objects), "jsonl") == PAIRS
    assert read_documents(file("text", [*sources[:2], "", *sources[2:]])) == ["a rose\n two  spaces ", sources[2]]


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("one\ntwo", ["one\ntwo"]),
        ("one\n\ntwo\n", ["one", "two"]),
        ("\n\none\n \t\n\n  two\nthree\n\n", ["one", "  two\nthree"]),
    ],
)
def test_blank_lines_separate_documents(tmp_path, text, documents):
    assert read_documents(tsv(tmp_path, text.encode())) == documents


def test_documents_of_json_lines_keep_their_blank_lines(tmp_path):
    documents = ["one\n\ntwo", " \u00e9\U0001f600 "]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    assert read_documents(path) == documents


def test_a_name_says_json_whatever_its_case_and_packing(tmp_path):
    for name in ("a.jsonl", "a.JSONL", "a.ndjson", "a.json.gz", "a.jsonl.GZ"):
        path = tmp_path / name
        path.write_text('{"source": "a", "target": "b"}')
        assert read_pairs(path) == [Pair("a", "b")]


def test_what_looks_alike_stays_apart(tmp_path):
    forms = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    assert [pair.source for pair in read_pairs(tsv(tmp_path, f"{forms[0]}\tx\n{forms[1]}\tx\n".encode()))] == forms


def test_duplicates_are_kept_in_their_places(tmp_path):
    assert read_pairs(tsv(tmp_path, b"a\tb\nc\td\na\tb\n")) == [Pair("a", "b"), Pair("c", "d"), Pair("a", "b")]


def test_reading_takes_a_small_multiple_of_the_size_of_a_file(tmp_path):
    path = tsv(tmp_path, b"a line of some length, as they are\tand its translation, which is as long\n" * 20_000)
    size = path.stat().st_size
    read_pairs(path)
    tracemalloc.start()
    kept = read_pairs(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kept) == 20_000
    assert peak < 6 * size


MULTI30K = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multi30k"


@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"{MULTI30K} is not there")
@pytest.mark.parametrize("kind", ["", "lc.norm.tok."])
@pytest.mark.parametrize(("split", "count"), [("train", 29_000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_a_published_corpus_reads_as_it_is(split, count, kind):
    paths = MULTI30K / f"{split}.{kind}en.gz", MULTI30K / f"{split}.{kind}de.gz"
    languages = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    pairs = read_pairs(paths)
    assert len(pairs) == count
    assert ["".join(f"{text}\n" for text in side) for side in zip(*pairs, strict=True)] == languages


@given(st.lists(st.builds(Pair, sides, sides), min_size=1))
def test_any_pairs_survive_a_tsv_file(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> None:
    content = "".join(f"{source}\t{target}\n" for source, target in pairs)
    assert read_pairs(tsv(tmp_path_factory.getbasetemp(), content.encode())) == pairs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"a\tb\nno tab\n", "line 2 has 0 tabs"),
        (b"a\tb\nc\td\te\n", "line 2 has 2 tabs"),
        (b"a\tb\n\n", "line 2 has 0 tabs"),
        (b"a\tb\n\tb\n", "line 2: the source is empty"),
        (b"a\tb\na\t  \r\n", "line 2: the target is empty"),
        (b"a\tb\nc\t\xe9\n", "line 2 is not UTF-8 .byte 0xe9"),
    ],
)
def test_a_line_that_is_no_pair_is_named_with_the_file(tmp_path: Path, content: bytes, said: str) -> None:
    path = tsv(tmp_path, content)
    with pytest.raises(FileError, match=said) as caught:
        read_pairs(path)
    assert str(path) in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (b"a\nb\nc\n", b"A\nB\n", "text.en has 3 lines and .*text.fr has 2"),
        (b"a\nb\n", b"A\n \n", "text.fr, line 2: the target is empty"),
        (b"\nb\n", b"A\nB\n", "text.en, line 1: the source is empty"),
    ],
)
def test_parallel_files_that_do_not_match_are_refused(tmp_path: Path, source: bytes, target: bytes, said: str) -> None:
    with pytest.raises(FileError, match=said):
        read_pairs(parallel(tmp_path, source, target))


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.tsv does not exist"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(FileError, match="is a folder"):
        read_pairs(tmp_path)


def test_a_format_that_is_unknown_or_does_not_fit_the_paths_is_refused(tmp_path: Path) -> None:
    path = tsv(tmp_path, b"a\tb\n")
    for read in (read_pairs, read_documents):
        with pytest.raises(ConfigError, match="'jsonlines' is unknown; did you mean 'jsonl'"):
            read(path, "jsonlines")
    with pytest.raises(ConfigError, match="takes two files"):
        read_pairs(path, "parallel")
    for format in ("tsv", "jsonl"):
        with pytest.raises(ConfigError, match=f"'{format}' takes one file"):
            read_pairs((path, path), format)
    with pytest.raises(ConfigError, match="'text' has documents and no pairs"):
        read_pairs(path, "text")
    for format in ("tsv", "parallel"):
        with pytest.raises(ConfigError, match=f"'{format}' has pairs and no documents"):
            read_documents(path, format)


def test_a_pair_list_is_a_corpus_that_holds_what_it_was_given() -> None:
    given_pairs: Corpus = PairList(PAIRS, valid=PAIRS[:1])
    assert [given_pairs.size(split) for split in ("train", "valid", "test")] == [3, 1, 0]
    assert [given_pairs.example("train", index) for index in range(3)] == PAIRS
    given_pairs.check("anything")
    for split, index in (("train", 3), ("train", -1), ("test", 0)):
        with pytest.raises(InputError, match=f"example {index} does not exist"):
            given_pairs.example(split, index)

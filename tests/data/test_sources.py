from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Corpus, Pair
from regard.data.sources import PairList, read_pairs
from regard.errors import ConfigError, FileError, InputError

PAIRS = [Pair("a rose", "une rose"), Pair(" two  spaces ", "deux"), Pair("line\u2028separator", "é\x0b\x85")]
sides = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"])).filter(
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
        ("a\tb\n".encode("utf-16"), "line 1 is not UTF-8"),
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
    with pytest.raises(ConfigError, match="'jsonl' is unknown; known: auto, parallel, tsv"):
        read_pairs(path, "jsonl")
    with pytest.raises(ConfigError, match="takes two files"):
        read_pairs(path, "parallel")
    with pytest.raises(ConfigError, match="takes one file"):
        read_pairs((path, path), "tsv")


def test_a_pair_list_is_a_corpus_that_holds_what_it_was_given() -> None:
    given_pairs: Corpus = PairList(PAIRS, valid=PAIRS[:1])
    assert [given_pairs.size(split) for split in ("train", "valid", "test")] == [3, 1, 0]
    assert [given_pairs.example("train", index) for index in range(3)] == PAIRS
    given_pairs.check("anything")
    for split, index in (("train", 3), ("train", -1), ("test", 0)):
        with pytest.raises(InputError, match=f"example {index} does not exist"):
            given_pairs.example(split, index)

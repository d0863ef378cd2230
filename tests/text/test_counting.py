"""Streamed word counts equal a plain Counter while they fit, and fall short of it by no more than they say."""

import bz2
import gzip
import lzma
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import files
from regard.errors import ConfigError, FileError, InputError
from regard.text.counting import LONGEST_WORD, count_words, cut_text, read_texts, valid_text

TEXTS = st.lists(st.text(st.sampled_from("ab \n\té字"), max_size=40), max_size=30)


def plain(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())


@given(TEXTS, st.integers(3, 50))
def test_counts_equal_a_plain_counter_where_all_words_fit(texts, block):
    found = count_words(texts, str.split, block=block)
    expected = plain(texts)
    if max(map(len, expected), default=0) < block:  # a longer word is cut where its block ends
        assert found.counts == expected
        assert found.total == expected.total()
    assert (found.pruned, found.lost) == (0, 0)


@given(TEXTS)
def test_words_come_by_count_and_equal_counts_by_text(texts):
    found = count_words(texts, str.split)
    assert list(found.counts.items()) == sorted(plain(texts).items(), key=lambda entry: (-entry[1], entry[0]))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 60).map(lambda power: int(1.15**power)), min_size=50, max_size=700),
    st.integers(2, 40),
    st.integers(10, 90),
)
def test_a_count_falls_short_by_no_more_than_was_said(numbers, most, block):
    texts = [f"w{number} " for number in numbers]
    found = count_words(texts, str.split, most=most, block=block)
    expected = plain(texts)
    assert found.total == expected.total()
    assert len(found.counts) <= most
    for word, count in expected.items():
        kept = found.counts.get(word, 0)
        assert count - found.lost <= kept <= count
    assert (found.lost > 0) == (found.pruned > 0)
    if len(expected) > most:
        assert found.pruned >= len(expected) - len(found.counts)
    assert set(found.counts) <= set(expected)


def test_the_smallest_threshold_that_halves_the_table_is_taken():
    # Four words of count 1, two of 2, one of 3, one of 5; the bound is seven, so at most three may stay.
    text = "a b c d e e f f g g g h h h h h"
    found = count_words([text], str.split, most=7)
    assert found.counts == {"h": 5, "g": 3}
    assert (found.pruned, found.lost, found.total) == (6, 2, 16)


def test_a_pruned_word_that_returns_begins_anew():
    texts = ["a b c ", "a a a d "]
    found = count_words(texts, str.split, most=2, block=6)
    # the first block drops a, b and c at count 1; then a stands at 3 and d at 1: they fit
    assert found.counts == {"a": 3, "d": 1}
    assert (found.pruned, found.lost) == (3, 1)


@given(TEXTS, st.randoms())
def test_the_order_in_which_a_table_is_filled_decides_nothing(texts, random):
    words = [word for text in texts for word in text.split()]
    shuffled = random.sample(words, len(words))
    one, other = (count_words([" ".join(order)], str.split, most=3) for order in (words, shuffled))
    assert one == other


@given(st.text(st.sampled_from("abcé \n"), max_size=300), st.integers(1, 30))
def test_cut_pieces_join_to_the_text_and_keep_words_that_fit(text, size):
    pieces = list(cut_text(text, size))
    assert "".join(pieces) == text
    assert all(len(piece) <= size for piece in pieces)
    if max(map(len, text.split()), default=0) < size:
        assert [word for piece in pieces for word in piece.split()] == text.split()


def test_gpt2_pattern_splits_the_pieces_as_it_splits_the_text():
    from tokenizers.pre_tokenizers import ByteLevel

    splitter = ByteLevel(add_prefix_space=False)

    def words(text: str) -> list[str]:
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    text = "def f(x):\n\n    return  x\t+ 1  \r\n\r\nHe's  said: 'no…'   \n  \n end\n" * 3
    for size in range(20, 60):
        assert [word for piece in cut_text(text, size) for word in words(piece)] == words(text)


def test_a_word_too_long_becomes_words_of_the_longest_length():
    found = count_words(["x" * (2 * LONGEST_WORD + 3) + " y"], str.split)
    assert found.counts == {"x" * LONGEST_WORD: 2, "xxx": 1, "y": 1}
    assert found.total == 4


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), st.integers(1, 9))
def test_a_file_gives_its_text_back_in_pieces(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_bytes(text.encode())
    if not text.removeprefix("\ufeff").strip():
        with pytest.raises(FileError, match="is empty"):
            list(read_texts([path], block))
    else:
        assert "".join(read_texts([path], block + 3)) == text.removeprefix("\ufeff")


def test_a_bomb_is_refused_while_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"word " * 2**20, compresslevel=9))
    assert sum(map(len, read_texts([path]))) == 5 * 2**20
    monkeypatch.setattr(files, "ALWAYS_UNPACKED", 2**16)
    monkeypatch.setattr(files, "MOST_TIMES", 7)
    given: list[int] = []
    with pytest.raises(FileError, match="unpacks to more than 7 times its size"):
        given.extend(map(len, read_texts([path], 2**10)))
    assert 0 < sum(given) <= 2**16 + 7 * path.stat().st_size


@given(st.text(st.sampled_from("ab\n é"), min_size=1, max_size=30), st.integers(1, 9))
def test_a_file_has_the_words_of_its_text_wherever_its_blocks_end(tmp_path_factory, text, block):
    path = tmp_path_factory.mktemp("texts") / "a.txt"
    path.write_bytes(text.encode())
    if text.strip():
        assert count_words(read_texts([path], block), str.split).counts == plain([text])


def test_a_text_that_begins_like_a_packed_file_is_a_text(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("BZh is what bzip2 writes first, PK what zip does")
    assert "".join(read_texts([path])) == path.read_text()


def test_a_mistake_of_the_reader_is_not_taken_for_one_of_the_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("some words")
    with pytest.raises(ValueError, match="mine"), files.opened(path):
        raise ValueError("mine")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gzip"])
def test_every_encoding_with_a_mark_and_gzip_read_alike(tmp_path, encoding):
    text = "één twee 字\r\nthree 🙂 four\n" * 50
    path = tmp_path / "words"
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    assert "".join(read_texts([path], 64)) == text
    assert count_words(read_texts([path], 64), str.split).counts == plain([text])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"one\ntwo\nthr\xffee\n", r"line 3 is not UTF-8 \(byte 0xff\); save the file as UTF-8"),
        (b"one\ntwo \xc3", r"line 2 is not UTF-8 \(byte 0xc3\)"),
        (b"one\n\0two", r"line 2 holds a NUL, which no text has; give a text file"),
        (b" \n ", r"is empty; give a file with some text"),
        (b"", r"is empty"),
        (gzip.compress(b"some words" * 99, mtime=0)[:-9], r"damaged gzip file"),
        (gzip.compress(gzip.compress(b"some words", mtime=0), mtime=0), r"is packed with gzip, twice; unpack it"),
        (bz2.compress(b"some words"), r"is packed with bzip2; unpack it"),
        (lzma.compress(b"some words"), r"is packed with xz; unpack it"),
    ],
)
def test_what_is_no_text_is_refused_in_one_sentence(tmp_path, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FileError, match=said):
        list(read_texts([path], 5))


def test_paths_that_are_no_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="does not exist; check the path"):
        list(read_texts([tmp_path / "nowhere"]))
    with pytest.raises(FileError, match="is a folder, not a file"):
        list(read_texts([tmp_path]))
    (tmp_path / "a").write_text("a")
    with pytest.raises(FileError, match="cannot be read"):
        list(read_texts([tmp_path / "a" / "b"]))


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InputError, match=r"character 2 \(U\+D800\) is half of a surrogate pair"):
        count_words(["good", "é \ud800"], str.split)
    assert valid_text("🙂é") == "🙂é"


def test_a_table_that_cannot_be_halved_is_refused():
    with pytest.raises(ConfigError, match="a table of 1 words"):
        count_words([], str.split, most=1)


def test_memory_follows_the_bound_and_not_the_corpus(tmp_path):
    path = tmp_path / "endless"
    with path.open("w") as stream:
        for first in range(0, 400_000, 1000):  # new words all the time, and no end of a line
            stream.write("".join(f"w{number} common " for number in range(first, first + 1000)))
    tracemalloc.start()
    found = count_words(read_texts([path], 2**14), str.split, most=1000, block=2**14)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.counts["common"] >= 400_000 - found.lost
    assert found.pruned > 390_000
    assert peak < path.stat().st_size // 4

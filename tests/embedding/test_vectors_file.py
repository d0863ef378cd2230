"""Files of vectors: both formats there and back, gensim's files and Regard's read by the other, and damaged ones."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.embedding.vectors import Vectors
from regard.embedding.vectors_file import read_vectors, write_vectors
from regard.errors import FileError, InputError

NAMES = ["v.txt", "v.bin", "v.txt.gz", "v.bin.gz", "v.vec", "v"]
WORDS = ("the", "naïve", "犬", "a\u00a0b", "3.5", "-1", "x")


@pytest.fixture
def vectors() -> Vectors:
    matrix = np.random.default_rng(5).normal(size=(7, 3)).astype(np.float32)
    matrix[2] = [np.float32(1e-45), np.finfo(np.float32).max, -0.0]
    return Vectors(WORDS, matrix)


def same(first: Vectors, second: Vectors) -> bool:
    return first.words == second.words and first.matrix.tobytes() == second.matrix.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_bit_for_bit(vectors, name, tmp_path):
    write_vectors(vectors, tmp_path / name)
    assert same(read_vectors(tmp_path / name), vectors)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \n\r"), min_size=1),
            st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
        ),
        min_size=1,
        unique_by=lambda pair: pair[0],
    ),
    st.sampled_from(NAMES[:2]),
)
def test_every_word_and_every_number_comes_back(tmp_path_factory, pairs, name):
    path = tmp_path_factory.mktemp("vectors") / name
    vectors = Vectors(tuple(word for word, _ in pairs), np.array([row for _, row in pairs], dtype=np.float32))
    write_vectors(vectors, path)
    assert same(read_vectors(path), vectors)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_regards_files_and_regard_gensims(vectors, binary, tmp_path):
    gensim = pytest.importorskip("gensim.models.keyedvectors")
    own, expected = tmp_path / ("regard.bin" if binary else "regard.txt"), tmp_path / "gensim"
    write_vectors(vectors, own)
    peer = gensim.KeyedVectors.load_word2vec_format(str(own), binary=binary)
    assert peer.index_to_key == list(WORDS)
    assert peer.vectors.tobytes() == vectors.matrix.tobytes()
    peer.save_word2vec_format(str(expected), binary=binary, sort_attr="none")
    assert same(read_vectors(expected), vectors)


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["gensim", "word2vec"])
def test_a_binary_file_may_end_its_rows_or_not(end, tmp_path):
    path = tmp_path / "v"
    rows = [b"ab " + struct.pack("<2f", 1.5, -2.0) + end, b"c " + struct.pack("<2f", 0.0, 4.0) + end]
    path.write_bytes(b"2 2\n" + b"".join(rows))
    found = read_vectors(path)
    assert found.words == ("ab", "c")
    assert found.matrix.tolist() == [[1.5, -2.0], [0.0, 4.0]]


def test_a_text_file_may_have_spaces_at_the_ends_of_lines_and_windows_ends(tmp_path):
    path = tmp_path / "v"
    path.write_bytes(b"2 2\r\na 1 2 \r\nb 3 4\r\n")
    assert read_vectors(path).matrix.tolist() == [[1, 2], [3, 4]]


def test_a_vector_longer_than_what_is_looked_at_first_is_read(tmp_path):
    vectors = Vectors(("a", "b"), np.random.default_rng(1).normal(size=(2, 4099)).astype(np.float32))
    for name in NAMES[:2]:
        write_vectors(vectors, tmp_path / name)
        assert same(read_vectors(tmp_path / name), vectors)


BINARY = b"3 2\n" + b"".join(word + b" " + struct.pack("<2f", 1, 2) for word in (b"a", b"b", b"c"))
BAD = {
    "empty": (b"", "does not begin with a line `COUNT WIDTH`"),
    "an image": (b"\x89PNG\r\n\x1a\n\0\0\0", "does not begin with a line `COUNT WIDTH`"),
    "no header": (b"the 0.1 0.2\nof 0.3 0.4\n", "does not begin with a line `COUNT WIDTH`"),
    "a negative count": (b"-3 2\na 1 2\n", "does not begin with a line `COUNT WIDTH`"),
    "no words": (b"0 2\n", "says that it has 0 words of width 2"),
    "a gigantic count": (b"999999999999 2\na 1 2\n", "says that it has 999,999,999,999 words and has 1"),
    "a gigantic width": (b"1 999999999999\na 1 2\n", "of width 999999999999, from 1 to 65536"),
    "fewer words than said": (b"3 2\na 1 2\nb 1 2\n", "says that it has 3 words and has 2"),
    "more words than said": (b"1 2\na 1 2\nb 1 2\nc 1 2\n", "says that it has 1 words and has more than 1"),
    "a line cut": (b"2 3\na 1 2 3\nb 1 2", "line 3 has 2 numbers, not 3"),
    "a wrong width": (b"2 3\na 1 2\nb 1 2\n", "line 2 has 2 numbers, not 3"),
    "a letter": (b"2 2\na 1 2\nb 1 z\n", "line 3 is not a word and its numbers"),
    "nan": (b"2 2\na 1 2\nb 1 nan\n", "the vector of 'b' has numbers that are not finite"),
    "too large": (b"2 2\na 1 2\nb 1 1e39\n", "the vector of 'b' has numbers that are not finite"),
    "twice": (b"2 2\na 1 2\na 1 3\n", "has the word 'a' twice, as number 1 and 2"),
    "no word": (b"2 2\na 1 2\n 1 3\n", "word number 2 is empty"),
    "not UTF-8": (b"2 2\na 1 2\n\xff 1 3\n", "word number 2 is not UTF-8"),
    "binary, cut in a vector": (BINARY[:-3], "ends, or is damaged, inside word number 3"),
    "binary, cut in a word": (BINARY[: len(BINARY) - 9], "ends, or is damaged, inside word number 3"),
    "binary, cut between words": (BINARY[: len(BINARY) - 10], "says that it has 3 words and has 2"),
    "binary, a gigantic count": (b"99999999999 " + BINARY[2:], "says that it has 99,999,999,999 words and has 3"),
    "binary, too narrow": (b"3 1" + BINARY[3:], "v"),
    "gzip, cut": (gzip.compress(b"2 2\na 1 2\nb 3 4\n")[:-4], "damaged gzip"),
}


@pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD.keys())
def test_a_damaged_file_is_refused_in_a_sentence(content, said, tmp_path):
    path = tmp_path / "v"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_vectors(path)
    assert said in caught.value.problem
    assert str(path) in caught.value.problem


def test_every_cut_of_a_file_is_refused(vectors, tmp_path):
    for name in NAMES[:2]:
        path = tmp_path / name
        write_vectors(vectors, path)
        whole = path.read_bytes().rstrip(b"\n")
        for size in range(len(whole) - (0 if name == "v.bin" else 20)):
            path.write_bytes(whole[:size])
            with pytest.raises(FileError):
                read_vectors(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        read_vectors(tmp_path / "none")


@pytest.mark.parametrize("word", ["", "a b", "a\nb", "a\r"])
def test_a_word_that_a_file_cannot_hold_is_refused(word, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_vectors(Vectors((word,), np.zeros((1, 2), dtype=np.float32)), tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_number_with_an_underscore_is_no_number(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("2 2\na_b 1 2\nb 1_0 2\n")
    with pytest.raises(FileError, match="line 3 is not a word and its numbers"):
        read_vectors(path)

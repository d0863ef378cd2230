"""A corpus as ids: the words that occur often enough, in order of frequency, lines kept apart."""

from collections import Counter

import numpy as np
import pytest

from regard.embedding.word2vec import corpus as word2vec_corpus
from regard.embedding.word2vec.corpus import LINE_END, encode_corpus
from regard.errors import ConfigError, FileError, InputError
from regard.text.counting import read_texts

TEXT = "b a c a\n\n a b\td\na e b\u3000b a"


def lines_of(corpus):
    ids = np.concatenate(corpus.chunks)
    lines, line = [], []
    for one in ids.tolist():
        if one == LINE_END:
            lines.append(line)
            line = []
        else:
            line.append(corpus.words[one])
    return [line for line in lines if line]


def test_what_is_too_long_to_be_counted_is_no_word():
    long = "k" * 1500
    corpus = encode_corpus(lambda: [f"a b {long} c\n"] * 7, 1)
    assert sorted(corpus.words) == ["a", "b", "c"]
    assert corpus.counts.tolist() == [7, 7, 7]


def test_ids_go_from_the_most_frequent_word_to_the_least():
    corpus = encode_corpus(lambda: [TEXT], 1)
    counts = Counter(TEXT.split())
    assert list(corpus.words) == sorted(counts, key=lambda word: (-counts[word], word))
    assert corpus.counts.tolist() == [counts[word] for word in corpus.words]
    assert corpus.size == len(TEXT.split())


@pytest.mark.parametrize("min_count", [1, 2, 4])
def test_the_lines_come_back_without_rare_words(min_count):
    corpus = encode_corpus(lambda: [TEXT], min_count)
    counts = Counter(TEXT.split())
    kept = [[word for word in line.split() if counts[word] >= min_count] for line in TEXT.split("\n")]
    assert lines_of(corpus) == [line for line in kept if line]


def test_chunks_are_the_same_text_however_it_is_handed_over(monkeypatch):
    whole = lines_of(encode_corpus(lambda: [TEXT], 1))
    monkeypatch.setattr(word2vec_corpus, "LEAST", 3)
    apart = encode_corpus(lambda: TEXT.split("\n"), 1)
    assert len(apart.chunks) > 1
    assert lines_of(apart) == whole


def test_a_file_of_many_pieces_loses_no_word(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(" ".join(f"w{n % 97}" for n in range(5000)))
    corpus = encode_corpus(lambda: read_texts([path, path], block=512), 1)
    assert corpus.size == 10_000


@pytest.mark.parametrize("texts", [[], [""], [" \n\t\n"]])
def test_an_empty_corpus_is_refused(texts):
    with pytest.raises(InputError, match="the corpus has no words"):
        encode_corpus(lambda: texts)


def test_one_word_is_too_few():
    with pytest.raises(InputError, match="1 of 1 words occur 5 times or more and two are needed"):
        encode_corpus(lambda: ["word " * 1000])


def test_a_corpus_of_rare_words_is_refused_with_the_most_frequent():
    with pytest.raises(
        InputError, match=r"0 of 3 words occur 5 times or more .* 'b', occurs 3 times.*; lower min_count"
    ):
        encode_corpus(lambda: ["a b b c b"])


def test_counts_that_may_be_wrong_are_not_used():
    with pytest.raises(ConfigError, match="use a min_count of 2 or more"):
        encode_corpus(lambda: [" ".join(f"{n}" for n in range(2**18))], 1, most=10)


def test_a_binary_file_is_no_text(tmp_path):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)) * 9)
    with pytest.raises(FileError, match=r"noise\.bin, line \d is not UTF-8|noise\.bin, line 1 holds a NUL"):
        encode_corpus(lambda: read_texts([path]))


def test_the_last_word_of_a_file_without_a_last_newline_is_whole(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("hello world again again")
    assert set(encode_corpus(lambda: read_texts([path]), 1).words) == {"hello", "world", "again"}

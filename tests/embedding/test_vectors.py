"""Queries of word vectors, compared with brute force and with gensim."""

import numpy as np
import pytest

from regard.embedding.vectors import Vectors
from regard.errors import InputError

WORDS = ("the", "king", "queen", "Berlin", "kitten", "kitchen", "naïve", "of", "zebra", "colour", "color")


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(WORDS, np.random.default_rng(3).normal(size=(11, 7)).astype(np.float32))


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def test_similarity_is_the_cosine(vectors):
    for first in WORDS:
        for second in WORDS:
            expected = cosine(vectors[first].astype(np.float64), vectors[second].astype(np.float64))
            assert vectors.similarity(first, second) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("word", WORDS)
def test_neighbours_are_all_other_words_by_falling_cosine(vectors, word):
    found = vectors.neighbours(word, 50)
    expected = sorted((cosine(vectors[word], vectors[other]), other) for other in WORDS if other != word)[::-1]
    assert [one.word for one in found] == [other for _, other in expected]
    assert [one.similarity for one in found] == pytest.approx([value for value, _ in expected], abs=1e-6)


def test_neighbours_and_analogies_are_gensims(vectors):
    gensim = pytest.importorskip("gensim.models.keyedvectors")
    peer = gensim.KeyedVectors(7)
    peer.add_vectors(list(WORDS), vectors.matrix)
    for first, second, third in zip(WORDS, WORDS[3:] + WORDS[:3], WORDS[5:] + WORDS[:5], strict=True):
        wanted = peer.most_similar(positive=[second, third], negative=[first], topn=5)
        own = vectors.analogy(first, second, third, 5)
        assert [one.word for one in own] == [word for word, _ in wanted]
        assert [one.similarity for one in own] == pytest.approx([value for _, value in wanted], abs=1e-5)
        assert [one.word for one in vectors.neighbours(first, 4)] == [
            word for word, _ in peer.most_similar(first, topn=4)
        ]


def test_an_analogy_finds_the_parallel_and_never_a_word_of_the_question():
    axes = np.eye(5, dtype=np.float32)
    table = {
        "man": axes[0],
        "woman": axes[1],
        "king": axes[0] + axes[2],
        "queen": axes[1] + axes[2],
        "apple": axes[3],
        "pear": axes[3] + axes[4],
    }
    vectors = Vectors(tuple(table), np.stack(list(table.values())))
    found = vectors.analogy("man", "king", "woman", 10)
    assert found[0].word == "queen"
    assert {one.word for one in found} == {"queen", "apple", "pear"}


def test_of_equal_cosines_the_first_word_comes_first():
    vectors = Vectors(("a", "b", "c", "d"), np.array([[1, 0], [0, 2], [0, 3], [0, 1]], dtype=np.float32))
    assert [one.word for one in vectors.neighbours("a")] == ["b", "c", "d"]


def test_a_vector_of_zeros_is_like_nothing():
    vectors = Vectors(("a", "b"), np.array([[0, 0], [0, 2]], dtype=np.float32))
    assert vectors.similarity("a", "b") == 0.0


@pytest.mark.parametrize(
    ("word", "near"),
    [("kittn", "kitten"), ("KING", "king"), ("berlin", "Berlin"), ("colur", "colour"), ("naive", "naïve")],
)
def test_an_unknown_word_gets_the_nearest_spellings(vectors, word, near):
    assert vectors.spellings(word)[0] == near
    for ask in (vectors.neighbours, vectors.row, lambda text: vectors.analogy("the", text, "of")):
        with pytest.raises(
            InputError, match=f"{word!r} has no vector among the 11 here; the nearest spellings .*{near}"
        ):
            ask(word)


def test_a_word_like_no_other_is_said_to_be_so(vectors):
    with pytest.raises(InputError, match="no spelling is near it"):
        vectors.neighbours("犬")


def test_a_word_has_one_vector():
    with pytest.raises(InputError, match="'a' has 2 vectors"):
        Vectors(("a", "b", "a"), np.zeros((3, 2), dtype=np.float32))
    with pytest.raises(InputError, match="2 words have 3 vectors"):
        Vectors(("a", "b"), np.zeros((3, 2), dtype=np.float32))


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_neighbour_is_refused(vectors, count):
    with pytest.raises(InputError, match=f"{count} neighbours"):
        vectors.neighbours("king", count)


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e20, 3e37])
def test_the_scale_of_vectors_changes_no_cosine(scale):
    matrix = np.array([[1, 2, 3], [3, -1, 5], [-7, 2, 1]])
    plain, scaled = (Vectors(("a", "b", "c"), (matrix * by).astype(np.float32)) for by in (1, scale))
    rough = 1e-3 if scale < 1e-38 else 1e-6  # small numbers have few digits
    assert scaled.similarity("a", "b") == pytest.approx(plain.similarity("a", "b"), abs=rough)
    assert scaled.similarity("a", "c") == pytest.approx(plain.similarity("a", "c"), abs=rough)

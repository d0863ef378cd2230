"""The comparison of word vectors: what counts as good, what is read from a dump, and that both sides do the same."""

import gzip

import numpy as np
import pytest
from typer.testing import CliRunner

from regard.bench import vectors as bench
from regard.bench.wikipedia import plain_words
from regard.cli.app import app
from regard.embedding.vectors import Vectors
from regard.embedding.word2vec.corpus import encode_corpus
from regard.embedding.word2vec.model import Word2VecPlan
from regard.errors import InputError
from regard.text.counting import read_texts

DUMP = """<mediawiki xmlns="x">
  <page><title>River</title>
    <text xml:space="preserve">A '''river''' isn't a [[lake|big lake]]; see [[water]] &amp; {{cite {{inner}} a}} rain.
== Names ==
From [http://x.org the source] on. [[fr:Rivière]] [[Image:a.png|b]] &lt;ref&gt;no&lt;/ref&gt; Yes, 42 times.</text>
  </page>
  <page><text>#REDIRECT [[River]]</text></page>
  <page><text>one two</text></page>
</mediawiki>"""


def test_a_dump_becomes_lower_case_words_without_markup():
    assert list(plain_words(DUMP.split("\n"))) == [
        "a river isnt a big lake see water rain",
        "from the source on yes times",
        "one two",
    ]


def test_rank_correlation_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    draws = np.random.default_rng(1)
    for _ in range(5):
        first, second = draws.integers(0, 9, size=(2, 23)).astype(float)
        assert bench.spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_the_share_of_analogies_is_that_of_asking_them_one_by_one():
    words = tuple(f"w{row}" for row in range(13))
    vectors = Vectors(words, np.random.default_rng(2).normal(size=(13, 2)).astype(np.float32))
    asked = [[words[index] for index in np.random.default_rng(seed).permutation(13)[:4]] for seed in range(300)]
    right = sum(vectors.analogy(*question[:3], 1)[0].word == question[3] for question in asked)
    assert right > 5
    assert bench.right_analogies(vectors, [*asked, ["w1", "w2", "w3", "unknown"]]) == right / 300


def test_both_sides_train_the_same_words(tmp_path):
    pytest.importorskip("gensim")
    pytest.importorskip("numba")
    path = tmp_path / "text"
    path.write_text("\n".join(" ".join(f"w{(line * step) % 17}" for step in range(9)) for line in range(80)))
    plan = Word2VecPlan(width=7, epochs=2, min_count=5, seed=1)
    own = bench.regard(encode_corpus(lambda: read_texts([path]), plan.min_count), plan)
    peer = bench.gensim(path, plan)
    assert set(own[0].words) == set(peer[0].words)
    assert own[0].width == peer[0].width == 7
    assert own[1] == peer[1]


def test_without_the_files_of_questions_there_is_no_quality(tmp_path):
    vectors = Vectors(("a", "b"), np.eye(2, dtype=np.float32))
    assert bench.quality(vectors, None) == (None, None)
    assert bench.quality(vectors, tmp_path) == (None, None)


def test_quality_is_read_from_the_files(tmp_path):
    (tmp_path / bench.JUDGED).write_text("# pairs\na\tb\t1.0\na\tC\t9.0\nb\tc\t5.0\na\tzebra\t3\n")
    (tmp_path / bench.ANALOGIES).write_bytes(gzip.compress(b": kind\nA B C D\n"))
    matrix = np.array([[1, 0, 0], [0, 1, 0], [1, 0.3, 0], [0.1, 1, 0.1]], dtype=np.float32)
    assert bench.quality(Vectors(("a", "b", "c", "d"), matrix), tmp_path) == (pytest.approx(1.0), 1.0)


def test_a_text_is_needed():
    with pytest.raises(InputError, match="give a file as its data"):
        next(bench.rows(None))


def test_other_subjects_take_no_text():
    done = CliRunner().invoke(app, ["bench", "train", "--data", "x"])
    assert isinstance(done.exception, InputError)

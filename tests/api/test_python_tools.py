"""`regard.tokenizer` and `regard.vectors`: what the command line does, as functions."""

import gzip

import numpy as np
import pytest

import regard
from regard.errors import FileError, InputError

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    lines = [" ".join(DAYS[(start + step) % 7] for step in range(9)) for start in range(200)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_tokenizer_is_learnt_from_files_and_comes_back(corpus, tmp_path):
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    learnt = regard.tokenizer.train([str(corpus), packed], 290)
    twice = [corpus.read_text(encoding="utf-8")] * 2
    assert learnt == regard.Tokenizer.train(twice, 290)
    learnt.save(tmp_path / "made.json")
    again = regard.tokenizer.load(str(tmp_path / "made.json"))
    assert again == learnt
    assert again.decode(again.encode("Friday, sunday")) == "Friday, sunday"
    words = regard.tokenizer.train(corpus, 40, "bpe_words", progress=False)
    assert words.kind == "bpe_words"


def test_vectors_are_learnt_from_files_and_come_back(corpus, tmp_path):
    pytest.importorskip("numba")
    plan = regard.vectors.Word2VecPlan(width=7, epochs=2, seed=3, min_count=1)
    learnt = regard.vectors.train(str(corpus), plan, threads=1)
    assert (sorted(learnt.words), learnt.width) == (sorted(DAYS), 7)
    regard.vectors.save(learnt, tmp_path / "v.bin")
    again = regard.vectors.load(tmp_path / "v.bin")
    np.testing.assert_array_equal(again.matrix, learnt.matrix)
    cosines = {day: again.similarity("friday", day) for day in DAYS if day != "friday"}
    assert again.neighbours("friday", 1)[0].word == max(cosines, key=cosines.__getitem__)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: regard.tokenizer.train("no.txt", 300), FileError, "no.txt does not exist"),
        (lambda: regard.tokenizer.train([], 300), InputError, "no file is named; give one"),
        (lambda: regard.tokenizer.train("no.txt", 300, "wordpeice"), InputError, "did you mean 'wordpiece'"),
        (lambda: regard.tokenizer.load("no"), FileError, "no does not exist"),
        (lambda: regard.vectors.train("no.txt"), FileError, "no.txt does not exist"),
        (lambda: regard.vectors.train("no.txt", threads=0), InputError, "0 threads cannot train"),
        (lambda: regard.vectors.load("no.txt"), FileError, "no.txt does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(call, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words) as refusal:
        call()
    assert "--" not in str(refusal.value)

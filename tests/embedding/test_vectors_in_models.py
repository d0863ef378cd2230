"""Word vectors as the beginning of a model's token embedding."""

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.embedding.pretrained import begin_with
from regard.embedding.tokens import TokenEmbedding
from regard.embedding.vectors import Vectors
from regard.embedding.vectors_file import write_vectors
from regard.errors import ConfigError, FileError
from regard.tasks.recipe import Recipe
from regard.text.tokenizer import Tokenizer

TINY = [
    "training.steps=2",
    "training.batch_tokens=64",
    "model.width=8",
    "model.heads=2",
    "model.layers=1",
    "tokenizer.sample=50",
]


def tokenizer() -> Tokenizer:
    return Tokenizer.train(["river bank river bank money bank"] * 3, 300)


def vectors(*words: str, width: int = 8) -> Vectors:
    return Vectors(words, np.random.default_rng(1).normal(size=(len(words), width), scale=5.0).astype(np.float32))


def test_tokens_that_are_words_begin_with_their_vectors_and_no_other_changes():
    text, embedding = tokenizer(), TokenEmbedding(tokenizer().size, 8)
    before = embedding.weight.detach().clone()
    given = vectors("bank", "river", "ocean")
    known = begin_with(embedding, text, given)
    pieces = text.pieces(range(text.size))
    rows = [row for row, piece in enumerate(pieces) if piece.strip() in given]
    assert known == len(rows)
    assert {pieces[row] for row in rows} >= {" bank", " river"}
    others = [row for row in range(text.size) if row not in rows]
    assert torch.equal(embedding.weight[others], before[others])
    matrix = np.stack([given[pieces[row].strip()] for row in rows])
    scale = embedding.weight[rows].detach().numpy() / matrix
    np.testing.assert_allclose(scale, scale[0, 0], rtol=1e-5)  # one scale for all: cosines and proportions stay
    assert float(embedding.weight[rows].detach().square().mean()) == pytest.approx(1 / 8, rel=1e-5)


def test_a_width_that_does_not_fit_is_refused_with_both():
    with pytest.raises(ConfigError, match=r'a width of 5 and the model has 8; use `changes={"model.width": 5}`'):
        begin_with(TokenEmbedding(300, 8), tokenizer(), vectors("bank", width=5))


def test_vectors_of_no_token_are_refused():
    with pytest.raises(ConfigError, match=r"none of the .* tokens is a word among the 1 that have vectors"):
        begin_with(TokenEmbedding(tokenizer().size, 8), tokenizer(), vectors("Fluss"))


class Heard:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, report: object) -> None:
        pass

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def test_a_recipe_names_the_file_and_its_folder_remembers_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_vectors(vectors("a", "b", "c"), Path("words.txt"))
    heard = Heard()
    model = regard.train("dates", "run", changes=[*TINY, "model.vectors=words.txt"], listener=heard)
    assert any("begin with the vectors of" in sentence for sentence in heard.sentences)
    assert model.recipe.model.vectors == str(tmp_path / "words.txt")
    Path("words.txt").unlink()
    assert regard.load("run").recipe.model.vectors == str(tmp_path / "words.txt")


def test_a_recipe_whose_vectors_are_missing_or_too_wide_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_vectors(vectors("a", width=5), Path("wide.txt"))
    for name, kind, said in (("none.txt", FileError, "does not exist"), ("wide.txt", ConfigError, "a width of 5")):
        with pytest.raises(kind, match=said):
            regard.train("dates", "run", changes=[*TINY, f"model.vectors={name}"])
        assert not Path("run").exists()


def test_a_recipe_without_vectors_says_nothing_of_them():
    assert "vectors" not in Recipe.model_validate({"data": "dates"}).toml()

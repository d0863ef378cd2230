"""Sentence vectors: their formula, text by text and together, and what they are not for."""

import pytest
import torch

import regard
from regard.data.batching import Inputs, Padded
from regard.decoding.strategies import Greedy
from regard.errors import ConfigError, InputError
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.recipe import Recipe
from regard.tasks.sentence_embedding import SentenceEmbedding, SentenceEmbeddingTable
from regard.text.wordpiece import WordPieceTokenizer

TEXTS = ["the rose by the river bank", "low lower", "a bank of monitors and a lower bank"]


def model(pooling: str) -> regard.Model:
    """An encoder that nobody trained, as a loaded one is held: without a recipe."""
    tokenizer = WordPieceTokenizer.train(TEXTS * 3, 80)
    shape = {"architecture": "encoder", "head": "none", "width": 12, "heads": 2, "layers": 2}
    module = regard.Transformer(regard.TransformerConfig(vocabulary=tokenizer.size, **shape)).eval()
    return regard.Model(module, tokenizer, SentenceEmbedding(SentenceEmbeddingTable(pooling=pooling)), DecodingTable())


@pytest.mark.parametrize("pooling", ["mean", "first"])
@torch.no_grad()
def test_a_vector_is_the_mean_or_the_first_of_the_tokens_and_has_length_one(pooling):
    held = model(pooling)
    token = held.tokenizer
    for text, found in zip(TEXTS, held.run(TEXTS), strict=True):
        row = [token.bos_id, *token.encode(text), token.eos_id]
        hidden = held.module.hidden(Inputs(Padded.of([row])))[0].double()
        wanted = hidden.sum(0) / len(row) if pooling == "mean" else hidden[0]
        wanted = wanted / wanted.square().sum().sqrt()
        assert found == pytest.approx(wanted.tolist(), abs=1e-5)
        assert held.run(text) == pytest.approx(found, abs=1e-5)


def test_people_are_shown_the_first_numbers_and_programs_all():
    (answer,) = model("mean").answers(TEXTS[:1])
    assert answer.text.endswith("… (12 numbers)")
    assert answer.record == {"vector": answer.value}
    assert len(answer.value) == 12


def test_it_can_be_looked_at():
    seen = model("mean").look(TEXTS[0])
    assert seen.layers == ["encoder.0.self", "encoder.1.self"]
    rows = len(model("mean").tokenizer.encode(TEXTS[0])) + 2
    assert seen.weights("encoder.1.self").shape == (2, rows, rows)


def test_what_it_is_not_for_is_refused_in_one_sentence():
    held = model("mean")
    with pytest.raises(InputError, match="a strategy has no effect on task 'sentence_embedding'"):
        held.run("a", strategy=Greedy())
    with pytest.raises(ConfigError, match="it has no data, no objective and no figure; use `run` or `look`"):
        held.task.open(Recipe())
    with pytest.raises(ConfigError, match="it has no data, no objective and no figure"):
        held.evaluate([])
    with pytest.raises(ConfigError, match="no objective and no figure"):
        held.evaluate(["x"])
    with pytest.raises(ConfigError, match=r"\[task\] key 'pooling' has no effect on 'language_modelling'"):
        Recipe.model_validate({"task": {"name": "language_modelling", "pooling": "first"}})

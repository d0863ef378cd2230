"""`model.logits` and `model.score`: what is read, and closed forms. Against transformers: tests/interop."""

import math

import pytest
import torch

import regard
from regard.errors import InputError
from small_models import KINDS, LETTERS, small_model


def flat(task: str) -> regard.Model:
    """A model that finds everything equally likely: its weights are all zero."""
    model = small_model(task)
    for parameter in model.module.parameters():
        torch.nn.init.zeros_(parameter)
    return model


def test_a_model_that_knows_nothing_gives_every_token_one_chance_in_all():
    model = flat("language_modelling")
    found = model.score("the cat")
    assert found.tokens == tuple("the cat")
    assert found.log_probabilities == pytest.approx([-math.log(model.tokenizer.size)] * 7)
    assert found.perplexity == pytest.approx(model.tokenizer.size)


def test_the_end_of_a_target_counts():
    model = flat("translation")
    found = model.score("mars", "cat")
    assert found.tokens == ("c", "a", "t", "<eos>")
    assert found.total == pytest.approx(-4 * math.log(model.tokenizer.size))
    assert repr(found).startswith(f"Score(total={found.total:.3f}, {{'c': {found.total / 4:.3f}, 'a': ")


@torch.no_grad()
def test_a_score_is_the_chain_of_what_the_network_says_of_every_beginning():
    model, text = small_model("language_modelling"), "a cat"
    ids = [model.tokenizer.bos_id, *model.tokenizer.encode(text)]
    one_by_one = [
        float(model.module(regard.Inputs(regard.Padded.of([ids[:end]])))[0, -1].double().softmax(-1)[ids[end]].log())
        for end in range(1, len(ids))
    ]
    assert model.score(text).log_probabilities == pytest.approx(one_by_one, abs=1e-5)


def test_a_score_of_what_was_written_is_the_score_it_was_written_with():
    model = small_model("translation")
    [found] = model.hypotheses(["3 mars"], max_new_tokens=1)
    likeliest = model.logits("3 mars")[0].double().log_softmax(-1).max()
    assert found.score == pytest.approx(float(likeliest), abs=1e-5)


@pytest.mark.parametrize("task", KINDS)
def test_logits_have_the_axes_of_the_head(task):
    model = small_model(task)
    size, tokens = model.tokenizer.size, len("the cat")
    if task == "sentence_embedding":
        with pytest.raises(InputError, match="gives vectors and no logits"):
            model.logits("the cat")
        return
    expected = {
        "translation": (1, size),
        "language_modelling": (1 + tokens, size),
        "classification": (3,),
        "masked": (tokens + 2, size),
    }[task]
    assert tuple(model.logits("the cat").shape) == expected


def test_the_logits_of_a_classifier_are_those_its_probabilities_come_from():
    model = small_model("classification")
    shares = dict(zip(model.module.config.labels, model.logits(LETTERS).double().softmax(-1).tolist(), strict=True))
    assert model.run(LETTERS) == pytest.approx(shares, abs=1e-6)


@pytest.mark.parametrize(
    ("task", "given", "words"),
    [
        ("translation", ("mars",), "give both: score(source, target)"),
        ("language_modelling", ("a cat", "sat"), "give the whole text as one"),
        ("classification", ("a cat",), "writes none; use `logits`"),
        ("language_modelling", ("",), "the text is empty"),
    ],
)
def test_what_has_no_score_is_said(task, given, words):
    with pytest.raises(InputError) as refusal:
        small_model(task).score(*given)
    assert words in str(refusal.value)

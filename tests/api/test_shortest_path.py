"""What is done once is done once: the way from a text to its answer has no detours."""

import pytest

import regard
from regard.data import dates
from regard.data.corpus import Pair
from regard.data.sentinels import SENTINELS
from regard.decoding.engine import generate_ranked
from regard.tasks import generation
from regard.tasks.text_to_text import objective
from small_models import small_model

TEXTS = ["the cat", "sat on a mat", "a cat"] * 50


@pytest.fixture
def model():
    return small_model("translation")


@pytest.mark.parametrize("ask", ["run", "stream", "hypotheses", "n_best"])
def test_a_text_is_checked_once(model, ask, monkeypatch):
    checked = []
    monkeypatch.setattr(type(model.task), "check", lambda self, model, text: checked.append(text))
    if ask == "stream":
        list(model.run(TEXTS[0], stream=True))
        assert checked == TEXTS[:1]
        return
    calls = {"run": model.run, "hypotheses": model.hypotheses, "n_best": lambda texts: model.n_best(texts, 2)}
    calls[ask](TEXTS[:3])
    assert checked == TEXTS[:3]


@pytest.mark.parametrize("measured", [False, True])
def test_texts_are_grouped_once(model, measured, monkeypatch):
    groups = []

    def heard(stepper, inputs, *rest):
        groups.append(len(inputs.tokens.ids))
        return generate_ranked(stepper, inputs, *rest)

    monkeypatch.setattr(generation, "generate_ranked", heard)
    told = []
    if measured:
        model.task.answered(model, TEXTS, lambda done, total: told.append((done, total)))
        assert told == [(64, 150), (128, 150), (150, 150)]
    else:
        model.run(TEXTS)
    assert groups == [64, 64, 22]


def test_how_to_decode_is_settled_once_for_a_call(model, monkeypatch):
    asked = []
    chosen = type(model.decoding).chosen
    monkeypatch.setattr(type(model.decoding), "chosen", lambda self: (asked.append(self), chosen(self))[1])
    model.run(TEXTS)
    assert len(asked) == 1


def test_texts_of_a_tokenizer_without_sentinels_are_not_searched_for_gaps(model, monkeypatch):
    monkeypatch.setattr("regard.data.sentinels.GAP", None)  # nothing can be searched with it
    assert model.tokenizer.special_ids.keys().isdisjoint(SENTINELS)
    objective(model.module.config, model.tokenizer).encode([Pair("the cat", "a mat")])
    model.run("the cat")


def test_run_divides_no_days_of_a_corpus(tmp_path, monkeypatch):
    changes = {"training": {"steps": 1, "batch_tokens": 200}, "model": {"width": 8, "heads": 2, "encoder_layers": 1}}
    options = {"first_year": 1990, "last_year": 2019}
    regard.train("dates", tmp_path / "run", changes={**changes, "data": {"options": options}, "tokenizer.sample": 50})
    loaded = regard.load(tmp_path / "run")
    monkeypatch.setattr(dates, "split_days", lambda *given: pytest.fail("the corpus was divided"))
    loaded.run("de: 3 mars 2001")
    with pytest.raises(regard.InputError, match="outside 1990 to 2019"):
        loaded.run("de: 3 mars 2021")

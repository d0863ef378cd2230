"""A window that slides: what is written equals reading the last tokens anew, alone or beside others."""

from functools import cache

import pytest
import torch
from small_steppers import sharpened

from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.beam import search_all
from regard.decoding.engine import generate, stream
from regard.decoding.hypothesis import Stop
from regard.decoding.sliding import Sliding
from regard.decoding.stepper import Stepper
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from small_models import small_model

VOCABULARY, LIMIT, KEPT, NEW = 23, 7, 3, 19
PROMPTS = [[5], [3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8], [9, 7, 9, 3, 2, 3, 8, 4, 6]]
STOP = Stop(VOCABULARY, NEW)  # no token has that id: nothing ends before the limit


@cache
def model(positions: str) -> Transformer:
    torch.manual_seed(11)
    shape = {"architecture": "decoder", "width": 12, "heads": 2, "layers": 2, "max_positions": LIMIT}
    config = TransformerConfig(vocabulary=VOCABULARY, positions=positions, dropout=0.0, **shape)
    return sharpened(Transformer(config), 3.0, "embedding", "attention")


def after(positions: str, prompt: list[int], written: tuple[int, ...]) -> torch.Tensor:
    """The next token's log-probabilities by one pass over the last tokens, without any state."""
    held = prompt if len(prompt) <= LIMIT else prompt[-KEPT:]
    for token in written:
        held = [*held, token]
        if len(held) > LIMIT:
            held = held[-KEPT:]
    with torch.no_grad():
        return model(positions)(Inputs(Padded.of([held])))[0, -1].log_softmax(-1)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_what_is_written_equals_reading_the_last_tokens_anew(positions):
    stepper = Sliding(model(positions), LIMIT)
    found = generate(stepper, Inputs(Padded.of(PROMPTS, side="left")), Greedy(), STOP)
    for prompt, one in zip(PROMPTS, found, strict=True):
        wanted: tuple[int, ...] = ()
        while len(wanted) < NEW:
            wanted = (*wanted, int(after(positions, prompt, wanted).argmax()))
        assert one.ids == wanted
        assert one.score == pytest.approx(
            sum(float(after(positions, prompt, wanted[:n])[wanted[n]]) for n in range(NEW))
        )
    assert any(len(prompt) + NEW > 2 * LIMIT for prompt in PROMPTS)


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=3)])
def test_what_stands_beside_a_row_changes_nothing_and_a_stream_is_the_same(strategy):
    stepper = Sliding(model("rotary"), LIMIT)
    together = generate(stepper, Inputs(Padded.of(PROMPTS, side="right")), strategy, STOP)
    alone = Inputs(Padded.of(PROMPTS[:1]))
    assert generate(stepper, alone, strategy, STOP)[0].ids == together[0].ids
    assert tuple(stream(stepper, alone, strategy, STOP)) == together[0].ids


def test_beams_change_places_and_their_windows_with_them():
    ranked = search_all(Sliding(model("rotary"), LIMIT), Inputs(Padded.of(PROMPTS, side="left")), Beam(3), STOP)
    for prompt, beams in zip(PROMPTS, ranked, strict=True):
        for one in beams:
            total = sum(float(after("rotary", prompt, one.ids[:n])[one.ids[n]]) for n in range(NEW))
            assert one.score == pytest.approx(total / NEW, rel=1e-9)


def test_several_tokens_at_once_are_as_many_steps():
    stepper = Sliding(model("rotary"), LIMIT)
    assert isinstance(stepper, Stepper)
    ids = torch.tensor([[2, 7, 1, 8, 2, 8, 1, 8], [6, 1, 8, 0, 3, 3, 9, 8]])
    state = stepper.start(Inputs(Padded.of([[4, 4], [1, 2, 3]], side="left")))
    together, _ = stepper.extend(ids, state)
    for column in range(ids.shape[1]):
        logits, state = stepper.step(ids[:, column], state)
        assert torch.equal(together[:, column], logits)


def test_a_window_that_need_not_slide_is_decoded_by_the_engine(monkeypatch):
    inputs, stop = Inputs(Padded.of([[5], [3, 1, 4]], side="left")), Stop(VOCABULARY, LIMIT - 3)
    for strategy in (Greedy(), Sample(seed=3), Beam(2)):
        plain = generate(Sliding(model("rotary"), LIMIT), inputs, strategy, stop)
        with monkeypatch.context() as anywhere:
            anywhere.setattr(paths, "DEVICES", {"cpu"})
            found = generate(Sliding(model("rotary"), LIMIT), inputs, strategy, stop)
            sliding = generate(Sliding(model("rotary"), LIMIT), inputs, strategy, STOP)
        assert [one.ids for one in found] == [one.ids for one in plain]
        assert {one.path for one in found} == {"in place"}
        assert {one.path for one in (*plain, *sliding)} == {"plain"}


def test_a_language_model_answers_by_the_engine(monkeypatch):
    """From texts: a model whose positions are learnt has a window, which need not slide for a short answer."""
    asked = small_model("language_modelling", positions="learned", max_positions=32)
    plain = asked.hypotheses(["the cat", "a"])
    monkeypatch.setattr(paths, "DEVICES", {"cpu"})
    found = asked.hypotheses(["the cat", "a"])
    assert [one.ids for one in found] == [one.ids for one in plain]
    assert {one.path for one in found} == {"in place"}

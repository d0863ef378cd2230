"""Weights that are no numbers are refused with a sentence wherever a model is asked or looked at, never drawn."""

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import watch_module
from regard.inspection.contextual import word_in_sentences
from small_models import small_model

ASKED = {
    "language_modelling": "the cat sat",
    "translation": "the cat",
    "masked": "the <mask> sat",
    "classification": "the cat",
}


def broken(task: str, where: str, **shape: object):
    """One weight of the last layer is none, so that whatever comes before is still as it was."""
    torch.manual_seed(7)
    model = small_model(task, **shape)
    [*_, last] = [parameter for name, parameter in model.module.named_parameters() if f".{where}" in name]
    with torch.no_grad():
        last.view(-1)[0] = torch.nan
    return model


@pytest.mark.parametrize("task", ASKED)
def test_an_answer_made_of_no_numbers_is_refused(task):
    with pytest.raises(InputError, match="hold NaN"):
        broken(task, "feedforward").run(ASKED[task])


@pytest.mark.parametrize("task", ["language_modelling", "masked", "classification"])
@pytest.mark.parametrize("asked", ["head_effects", "logit_lens", "decisions"])
def test_what_decides_nothing_has_no_effects(task, asked):
    with pytest.raises(InputError, match="hold NaN"):
        getattr(broken(task, "feedforward"), asked)(ASKED[task])


@pytest.mark.parametrize("mechanism", ["exact", "linformer", "linear"])
def test_attention_weights_that_are_no_numbers_are_not_drawn(mechanism):
    module = broken("masked", "key", attention=mechanism).module
    with watch_module(module) as seen, torch.no_grad():
        module(Inputs(Padded.of([[3, 4, 5, 6, 7]])))
    assert seen.weights("encoder.0.self").isfinite().all()
    with pytest.raises(InputError, match="the attention weights hold NaN"):
        seen.weights("encoder.1.self")


def test_a_word_whose_vector_is_no_number_has_no_meaning():
    model = broken("masked", "feedforward")
    with pytest.raises(InputError, match="hold NaN"):
        word_in_sentences(model.module, model.tokenizer, ["the cat sat", "a cat"], "cat")

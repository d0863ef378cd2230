"""The four steps shown are the ones that were taken: their output is what the attention layer gave."""

from functools import partial

import pytest
import torch

from regard.attention.multihead import Attend
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam
from regard.errors import InputError
from regard.inspection.capture import Recording, layer_name, record_into, watch_module
from regard.inspection.four_steps import four_steps
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close


def model_of(**options) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(vocabulary=13, width=12, heads=2, feedforward_width=8, **options)).eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_value_heads": 1},
        {"similarity": "additive"},
        {"similarity": "general", "positions": "t5"},
        {"similarity": "cosine", "positions": "alibi"},
        {"positions": "rotary", "norm_placement": "pre"},
    ],
    ids=str,
)
def test_the_output_of_the_steps_is_the_output_of_the_layer(options):
    model = model_of(**options)
    given: dict[str, torch.Tensor] = {}
    handles = []
    for name, part in model.named_modules():
        if isinstance(part, Attend):
            keep = partial(given.__setitem__, layer_name(name))
            handles.append(part.register_forward_hook(lambda _, __, out, keep=keep: keep(out)))
    inputs = Inputs(Padded.of([[1, 2, 3, 4, 5]]), Padded.of([[3, 4, 5]]))
    with record_into(Recording(values=True), model) as seen, torch.no_grad():
        model(inputs)
    for handle in handles:
        handle.remove()
    for layer, out in given.items():
        for head in range(2):
            for row in range(out.shape[2]):
                steps = four_steps(seen, layer, head, row)
                assert_close(steps.output, out[0, head, row])
                scores = (steps.raw * steps.scale + steps.bias).masked_fill(~steps.allowed, -torch.inf)
                assert_close(scores.softmax(dim=0), steps.weights)
                assert steps.dotted == (options.get("similarity") != "additive")
                if steps.dotted:
                    assert_close(steps.key @ steps.query, steps.raw)


def test_the_steps_of_a_beam_are_those_of_its_own_row():
    model = model_of(architecture="decoder").double()
    with record_into(Recording(values=True), model) as seen:
        [found] = generate(model, Inputs(Padded.of([[1, 2, 3]])), Beam(3), Stop(eos_id=12, max_new_tokens=4))
    whole = model_of(architecture="decoder").double()
    with record_into(Recording(values=True), whole) as again, torch.no_grad():
        whole(Inputs(Padded.of([[1, 2, 3, *found.ids[:-1]]])))
    for row in range(3 + len(found.ids) - 1):
        one, other = (four_steps(run, "decoder.1.self", 1, row) for run in (seen, again))
        torch.testing.assert_close(one.output, other.output)


def test_without_values_the_steps_cannot_be_shown():
    model = model_of(architecture="encoder")
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([[1, 2, 3]])))
    with pytest.raises(InputError, match="the values were not kept; watch with `values=True`"):
        four_steps(seen, "encoder.0.self", 0, 0)

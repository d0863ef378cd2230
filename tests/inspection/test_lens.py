"""A layer's stream through the head is that of a model that ends there; a patched vector does what it does by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into
from regard.inspection.decisions import Decisions
from regard.inspection.flow import attention_flow, gradient_times_attention, rollout
from regard.inspection.intervention import StreamPatch, attention_places, intervene
from regard.inspection.lens import logit_lens, patching
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS
from regard.models.transformer import Transformer
from rounding import assert_close

SOURCE, OTHER, TARGET = [3, 4, 5, 9, 2], [3, 8, 5, 9, 2], [1, 2, 3, 4, 5, 6]
INPUTS = Inputs(Padded.of([TARGET]), Padded.of([SOURCE]))


def model_of(layers: int = 3, **options) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=13, width=12, heads=2, layers=layers, feedforward_width=8, **options)
    model = Transformer(config).double().eval()
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    return model


def last_two(model: Transformer, inputs: Inputs = INPUTS) -> Decisions:
    decided = Decisions(inputs, (0, 0), str, lambda logits: logits[:, -2:])
    return replace(decided, chosen=tuple(decided.ask(model)[0].argmax(dim=-1).tolist()))


@pytest.mark.parametrize("options", [{"norm_placement": "pre"}, {"architecture": "decoder"}], ids=str)
def test_each_layer_of_the_lens_is_a_model_that_ends_there(options):
    model = model_of(**options)
    decided = last_two(model)
    lens = logit_lens(model, decided)
    assert lens.layers == ("embedding", "decoder.0", "decoder.1", "decoder.2")
    for ends, cells in enumerate(lens.cells):
        shorter = model_of(**options)
        shorter.decoder.layers = nn.ModuleList(list(shorter.decoder.layers)[:ends])
        [likely] = decided.ask(shorter)
        for at, cell in enumerate(cells):
            assert cell.log_probability == pytest.approx(float(likely[at, decided.chosen[at]]), abs=1e-10)
            assert cell.likeliest[0].name == str(int(likely[at].argmax()))
            assert cell.rank == 1 + int((likely[at] > likely[at, decided.chosen[at]]).sum())
    assert [cell.rank for cell in lens.cells[-1]] == [1, 1]


def test_the_lens_of_a_classifier_goes_through_its_pooler():
    model = model_of(architecture="encoder", head="labels", labels=("a", "b", "c"))
    decided = Decisions(INPUTS, (1,), "abc".__getitem__, lambda logits: logits[:, None])
    lens = logit_lens(model, decided)
    shorter = model_of(architecture="encoder", head="labels", labels=("a", "b", "c"))
    shorter.encoder.layers = nn.ModuleList(list(shorter.encoder.layers)[:1])
    [likely] = decided.ask(shorter)
    assert lens.cells[1][0].log_probability == pytest.approx(float(likely[0, 1]), abs=1e-10)


def test_patching_is_every_vector_by_hand():
    model = model_of()
    decided, read = last_two(model), Inputs(INPUTS.tokens, Padded.of([OTHER]))
    found = patching(model, decided, read)
    chosen, other = int(found.chosen), int(found.other)

    def difference(inputs: Inputs) -> float:
        logits = decided.decisions(model(inputs))[0, found.decision]
        return float(logits[chosen] - logits[other])

    with torch.no_grad():
        assert (found.difference, found.other_difference) == pytest.approx((difference(INPUTS), difference(read)))
        assert found.difference > 0 >= found.other_difference
        streams = {}
        for name in ("encoder.1", "decoder.2"):
            stack, index = name.split(".")
            layer = getattr(model, stack).layers[int(index)]
            handle = layer.register_forward_hook(
                lambda _, __, out, name=name: streams.update({name: out[0] if isinstance(out, tuple) else out})
            )
            model(INPUTS)
            handle.remove()
        encoder, decoder = found.stacks
        assert (encoder.tokens, encoder.other_tokens) == (tuple(SOURCE), tuple(OTHER))
        for stack, name, token in ((encoder, "encoder.1", 2), (decoder, "decoder.2", 5), (decoder, "decoder.2", 0)):
            with intervene(model, [StreamPatch(name, token, streams[name][0, token])]):
                patched = difference(read)
            share = (patched - found.other_difference) / (found.difference - found.other_difference)
            assert stack.recovered[stack.layers.index(name), token] == pytest.approx(share, abs=1e-9)
        assert encoder.recovered.shape == (3, 5)
        assert decoder.recovered.shape == (3, 6)


def test_texts_that_cannot_be_compared_are_refused():
    model = model_of()
    with pytest.raises(InputError, match="5 and 4 tokens have no places in common"):
        patching(model, last_two(model), Inputs(INPUTS.tokens, Padded.of([OTHER[:4]])))
    with pytest.raises(InputError, match="the same answer"):
        patching(model, last_two(model), INPUTS)
    recurrent = NETWORKS["luong"].config(vocabulary=13, width=6).build().double()
    with pytest.raises(InputError, match="no stream of token vectors"):
        logit_lens(recurrent, last_two(recurrent))


def test_rollout_is_the_product_of_the_layers_means_with_the_stream():
    model = model_of()
    with record_into(Recording(), model) as seen, torch.no_grad():
        model(INPUTS)
    means = [seen.weights(f"encoder.{at}.self").mean(dim=0) / 2 + torch.eye(5).double() / 2 for at in range(3)]
    assert_close(rollout(seen, "encoder.2.self"), means[2] @ means[1] @ means[0], 1e-12)
    assert_close(rollout(seen, "encoder.0.self"), means[0], 1e-12)
    across = seen.weights("decoder.1.cross").mean(dim=0) @ means[2] @ means[1] @ means[0]
    assert_close(rollout(seen, "decoder.1.cross"), across, 1e-12)
    assert_close(across.sum(dim=-1), torch.ones(6).double(), 1e-12)


@pytest.mark.parametrize("options", [{}, {"architecture": "decoder", "key_value_heads": 1}], ids=str)
def test_gradient_times_attention_is_the_slope_that_a_small_change_has(options):
    model = model_of(**options)
    decided, layer, head, row, key, small = last_two(model), "decoder.1.self", 1, 4, 2, 1e-5
    slopes = gradient_times_attention(model, decided, [layer])[layer]
    with record_into(Recording(values=True), model) as seen:
        decided.ask(model)
    weight = float(seen.weights(layer, head)[row, key])
    values = seen.trace(layer).joined("new_values")[0]
    value = values[head * len(values) // 2, key]
    attend = attention_places(model)[layer].attend

    def total(change: float) -> float:
        def more(_, __, out):
            out = out.clone()
            out[0, head, row] += change * value
            return out

        handle = attend.register_forward_hook(more)
        found = float(decided.of_chosen(decided.ask(model)).sum())
        handle.remove()
        return found

    slope = (total(small) - total(-small)) / (2 * small)
    assert float(slopes[head, row, key]) == pytest.approx(weight * slope, rel=1e-5)


def test_the_three_maps_of_a_layer_stand_beside_each_other():
    model = model_of()
    found = attention_flow(model, last_two(model), "decoder.2.cross")
    assert found.raw.shape == found.rollout.shape == found.gradient.shape == (6, 5)
    with pytest.raises(InputError, match="was not seen"):
        attention_flow(model, last_two(model), "decoder.9.cross")
    mixed = model_of(architecture="decoder", attention="gated_linear")
    with pytest.raises(InputError, match="softmax over keys"):
        attention_flow(mixed, last_two(mixed), "decoder.1.self")

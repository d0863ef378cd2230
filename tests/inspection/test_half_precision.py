"""What is shown of a run in bfloat16 is near to that of the same weights in float64, and adds up by itself."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.inspection.four_steps import four_steps
from regard.inspection.heads import measure_heads
from small_models import small_model

TEXT, OTHER = "the cat sat", "the mat sat"
CLOSE = 0.05
"""bfloat16 has eight bits: a few of its roundings, one upon another."""


@pytest.fixture(scope="module", params=["language_modelling", "translation"])
def pair(request):
    """A model in bfloat16, and its very weights in float64."""
    torch.manual_seed(11)
    model = small_model(request.param)
    for parameter in model.module.parameters():
        parameter.data.mul_(1.2)
    model.module.bfloat16()
    return model, replace(model, module=copy.deepcopy(model.module).double())


@pytest.fixture(scope="module")
def answer(pair):
    """What both are asked about: else a rounding might choose another token."""
    return {"target": "a mat"} if pair[0].module.config.reads_source else {}


def looked(model, answer):
    return model.look(TEXT, **answer, values=True)


def test_weights_and_measures_are_those_of_the_same_weights_in_float64(pair, answer):
    seen, exact = (looked(model, answer) for model in pair)
    assert pair[0].module.dtype == torch.bfloat16
    for layer in exact.layers:
        found, expected = seen.weights(layer).double(), exact.weights(layer)
        torch.testing.assert_close(found, expected, atol=CLOSE, rtol=0)
        torch.testing.assert_close(found.sum(dim=-1), torch.ones_like(found[..., 0]), atol=1e-5, rtol=0)
    for one, other in zip(measure_heads(seen), measure_heads(exact), strict=True):
        assert one.sink == pytest.approx(other.sink, abs=CLOSE)
        assert (one.previous or 0) == pytest.approx(other.previous or 0, abs=CLOSE)


def test_the_four_steps_add_up_in_float32(pair, answer):
    seen = looked(pair[0], answer)
    for layer in seen.layers:
        found = four_steps(seen, layer, 1, 2)
        query, key, values = (one.double() for one in (found.query, found.key, found.values))
        torch.testing.assert_close(found.raw.double(), key @ query, atol=1e-5, rtol=1e-5)
        scores = (found.raw.double() * found.scale + found.bias).masked_fill(~found.allowed, -torch.inf)
        torch.testing.assert_close(found.weights.double(), scores.softmax(dim=0), atol=1e-6, rtol=0)
        torch.testing.assert_close(found.output.double(), found.weights.double() @ values, atol=1e-5, rtol=1e-5)


def test_effects_lens_and_flow_are_those_of_the_same_weights_in_float64(pair, answer):
    (model, exact), layer = pair, "decoder.1.self"
    decided = model.logit_lens(TEXT, **answer).decided
    likely = [
        [one.log_probability for one in cells]
        for found in (model.logit_lens(TEXT, **answer), exact.logit_lens(TEXT, **answer))
        if found.decided == decided
        for cells in found.cells
    ]
    np.testing.assert_allclose(*np.split(np.array(likely), 2), atol=4 * CLOSE)
    heads = [one.head_effects(TEXT, **answer).heads for one in pair]
    for mine, wider in zip(*heads, strict=True):
        assert mine.change == pytest.approx(wider.change, abs=4 * CLOSE)
    cut = [one.what_if(TEXT, [f"{layer}:1", f"{layer}:0:2:1"], **answer) for one in pair]
    assert cut[0].change == pytest.approx(cut[1].change, abs=4 * CLOSE)
    for mine, wider in zip(cut[0].decisions, cut[1].decisions, strict=True):
        assert (mine.before, mine.after) == pytest.approx((wider.before, wider.after), abs=4 * CLOSE)
    flows = [one.attention_flow(TEXT, layer, **answer) for one in pair]
    for name in ("raw", "rollout", "gradient"):
        mine, wider = (getattr(one, name) for one in flows)
        np.testing.assert_allclose(mine, wider, atol=CLOSE * max(1.0, float(np.abs(wider).max())))


def test_a_score_in_bfloat16_is_split_into_parts_that_add_up(pair, answer):
    found = pair[0].why(TEXT, "decoder.1.self", 1, 3, 2, **answer)
    exact = pair[1].why(TEXT, "decoder.1.self", 1, 3, 2, **answer)
    parts = sum(part for _, part in found.by_query())
    assert parts == pytest.approx(sum(part for _, part in found.by_key()), abs=1e-4)
    assert parts + found.rounding == pytest.approx(found.score, abs=1e-4)
    assert found.score == pytest.approx(exact.score, abs=4 * CLOSE)

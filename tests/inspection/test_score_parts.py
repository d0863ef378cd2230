"""The parts of a score add up to it, and a part is what the score loses where norms do not mix it with the others."""

import numpy as np
import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into
from regard.inspection.four_steps import four_steps
from regard.inspection.intervention import attention_places
from regard.inspection.score_parts import score_parts
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS
from regard.models.transformer import Transformer

INPUTS = Inputs(Padded.of([[1, 2, 3, 4, 5, 6, 7]]), Padded.of([[3, 4, 5, 9, 2]]))
KINDS = [
    {},
    {"norm_placement": "pre", "positions": "rotary", "key_value_heads": 1, "architecture": "decoder"},
    {"norm_placement": "sandwich", "norm": "rms", "positions": "t5", "similarity": "general"},
    {"norm": "rms_offset", "norm_placement": "pre", "similarity": "cosine", "positions": "alibi"},
    {"architecture": "encoder", "positions": "learned", "embedding_norm": True, "segments": 2},
    {"architecture": "decoder", "residual": False, "positions": "sinusoidal"},
    {
        "architecture": "decoder",
        "positions": "rotary",
        "norm_placement": "pre",
        "attention": [{"name": "gated_linear"}, {"query_key_norm": "rms", "biases": ["key"], "rotary": {"base": 50.0}}],
    },
]


def model_of(**options) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=13, width=12, heads=2, layers=2, feedforward_width=8, **options)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # drawn norms and biases, else half of it would be ones and zeros
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def score_of(model: Transformer, layer: str, head: int, query: int, key: int) -> float:
    with record_into(Recording(values=True), model) as seen, torch.no_grad():
        model(INPUTS)
    steps = four_steps(seen, layer, head, query)
    return float(steps.raw[key].double() * steps.scale)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16], ids=str)
def test_the_parts_add_up_to_the_score(options, precision):
    model = model_of(**options).to(precision)
    tolerance = 1e-9 if precision is torch.float64 else 0.05
    seen = 0
    for layer in attention_places(model):
        if "attention" in options and layer == "decoder.0.self":
            continue
        query, key = (3, 4) if layer.startswith("encoder") or layer.endswith("cross") else (5, 2)
        found = score_parts(model, INPUTS, layer, 1, query, key)
        assert found.score == score_of(model, layer, 1, query, key)
        size = float(np.abs(found.table).sum()) if precision is torch.bfloat16 else abs(found.score)
        assert abs(found.rounding) <= tolerance * size
        assert sum(value for _, value in found.by_query()) == pytest.approx(found.table.sum())
        assert sum(value for _, value in found.by_key()) == pytest.approx(found.table.sum())
        seen += len(found.query_parts)
    assert seen >= 4


def test_without_norms_a_part_is_what_the_score_has_more_with_it():
    model = model_of(norm="none", architecture="decoder", positions="learned").double()
    layer, head, query, key = "decoder.1.self", 0, 5, 2
    found = score_parts(model, INPUTS, layer, head, query, key)
    named = ["token", "position", "decoder.0.self:0", "decoder.0.self:1", "biases", "decoder.0 feed-forward"]
    assert sorted(found.query_parts) == sorted(named)
    assert found.query_parts == found.key_parts
    first = model.decoder.layers[0]

    def without(part: str) -> float:
        at = found.query_parts.index(part)
        kept = [index for index in range(len(named)) if index != at]
        return float(found.table[np.ix_(kept, kept)].sum())

    with torch.no_grad():
        down = first.feedforward.down
        down.weight.zero_(), down.bias.zero_()
        assert score_of(model, layer, head, query, key) == pytest.approx(without("decoder.0 feed-forward"), rel=1e-9)
        # with the feed-forward network gone, what comes from the head is only what it adds itself
        fewer = score_parts(model, INPUTS, layer, head, query, key)
        at = fewer.query_parts.index("decoder.0.self:1")
        kept = [index for index in range(len(named)) if index != at]
        first.self_attention.output.weight[:, 6:] = 0
        assert score_of(model, layer, head, query, key) == pytest.approx(
            fewer.table[np.ix_(kept, kept)].sum(), rel=1e-9
        )
        # without any layer before it and any bias, the token and its position are all there is
        first.self_attention.output.weight.zero_()
        for linear in (
            first.self_attention.output,
            *(getattr(model.decoder.layers[1].self_attention, n) for n in ("query", "key")),
        ):
            linear.bias.zero_()
        model.decoder_positions.absolute.weight.zero_()
        token = found.query_parts.index("token")
        assert score_of(model, layer, head, query, key) == pytest.approx(found.table[token, token], rel=1e-9)


def test_pairs_are_the_largest_of_the_table():
    found = score_parts(model_of().double(), INPUTS, "decoder.1.cross", 0, 3, 1)
    [(query, key, value), *_] = found.pairs(5)
    assert abs(value) == pytest.approx(np.abs(found.table).max())
    assert found.table[found.query_parts.index(query), found.key_parts.index(key)] == value
    assert all(name.startswith(("encoder", "token", "position", "biases")) for name in found.key_parts)


@pytest.mark.parametrize(
    ("options", "layer", "said"),
    [
        ({"similarity": "additive"}, "encoder.0.self", "no dot product"),
        ({"architecture": "decoder", "attention": "gated_linear"}, "decoder.0.self", "no scores of queries"),
        ({"residual": "reversible", "norm_placement": "pre"}, "encoder.0.self", "no stream of token vectors"),
        ({}, "encoder.9.self", "does not attend"),
    ],
)
def test_what_has_no_such_parts_says_so(options, layer, said):
    with pytest.raises(InputError, match=said):
        score_parts(model_of(**options), INPUTS, layer, 0, 1, 0)


def test_a_recurrent_decoder_and_a_place_that_is_not_there_are_refused():
    with pytest.raises(InputError, match="no stream of token vectors"):
        score_parts(NETWORKS["bahdanau"].config(vocabulary=13, width=6).build(), INPUTS, "decoder.0.cross", 0, 1, 0)
    for query, key in ((99, 0), (1, 99)):
        with pytest.raises(InputError, match=r"no (row|key|token) 99"):
            score_parts(model_of(), INPUTS, "encoder.0.self", 0, query, key)

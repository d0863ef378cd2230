"""Compiled, a model computes what it computes as written; it compiles whole; watching it sees what it would show.

Run in a process of its own, `REGARD_SHAPES=off pytest tests/compiled`: dynamo cannot read hooked functions.
"""

import os

import pytest
import torch
from torch import nn

from regard.attention.mask import Causal, Padding
from regard.attention.multihead import MultiHeadAttention
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Greedy
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

if os.environ.get("REGARD_SHAPES") != "off":
    raise RuntimeError("the shape hook is on; run `REGARD_SHAPES=off pytest tests/compiled`")

ARCHITECTURES = ("encoder", "decoder", "encoder_decoder")
VARIANTS = (
    ("encoder_decoder", {}),
    ("encoder_decoder", {"positions": "t5"}),
    ("encoder_decoder", {"similarity": "additive"}),
    ("decoder", {}),
    ("decoder", {"positions": "rotary", "heads": 6, "key_value_heads": 2, "norm": "rms", "norm_placement": "pre"}),
    ("decoder", {"positions": "learned", "similarity": "general"}),
    ("encoder", {}),
    ("encoder", {"positions": "alibi", "feedforward": "swiglu"}),
    ("encoder", {"positions": "none", "similarity": "cosine"}),
)


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> None:
    torch._dynamo.reset()


def make(architecture: str, **options) -> Transformer:
    torch.manual_seed(0)
    shape = {"width": 12, "heads": 2, "layers": 1} | options
    return Transformer(TransformerConfig(architecture=architecture, vocabulary=11, **shape)).eval()


def inputs_of(model: Transformer, lengths=(5, 3), sources=(7, 2), side: str = "right") -> Inputs:
    generator = torch.Generator().manual_seed(1)
    tokens, source = (
        [torch.randint(11, (length,), generator=generator).tolist() for length in group] for group in (lengths, sources)
    )
    crossing = model.config.architecture == "encoder_decoder"
    return Inputs(Padded.of(tokens, side=side), Padded.of(source) if crossing else None)


class Graphs:
    """A backend that counts the graphs it is given and runs them with autograd, as `aot_eager` does."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph, examples):
        self.count += 1
        return torch._dynamo.lookup_backend("aot_eager")(graph, examples)


def compiled(module) -> tuple[nn.Module, Graphs]:
    graphs = Graphs()
    return torch.compile(module, fullgraph=True, backend=graphs), graphs


@pytest.mark.parametrize(("architecture", "options"), VARIANTS, ids=str)
def test_a_compiled_model_gives_the_same_logits_from_one_graph(architecture, options):
    model = make(architecture, **options)
    fast, graphs = compiled(model)
    side = "left" if options else "right"
    with torch.no_grad():
        assert_close(fast(inputs_of(model, side=side)), model(inputs_of(model, side=side)))
    assert graphs.count == 1


def test_a_compiled_model_gives_the_same_gradients():
    model = make("encoder_decoder", positions="rotary")
    fast, _ = compiled(model)
    gradients = []
    for one in (model, fast):
        model.zero_grad()
        one(inputs_of(model)).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("architecture", ["decoder", "encoder"])
def test_other_lengths_run_too(architecture):
    model = make(architecture)
    fast, graphs = compiled(model)
    with torch.no_grad():
        for lengths in ((5, 3), (6, 4), (9, 2), (11, 8), (7, 4)):
            inputs = inputs_of(model, lengths)
            assert_close(fast(inputs), model(inputs))
    assert graphs.count <= 2  # the second length makes the graph dynamic, the others use it


def test_a_compiled_step_decodes_the_same_text():
    model = make("decoder", positions="rotary").double()

    class Fast:
        start, extend = model.start, model.extend
        step = staticmethod(torch.compile(model.step, fullgraph=True, backend="aot_eager"))

    inputs = inputs_of(model, (3, 1))
    slow, fast = (generate(stepper, inputs, Greedy(), Stop(-1, 5)) for stepper in (model, Fast()))
    assert [one.ids for one in fast] == [one.ids for one in slow]
    assert [one.score for one in fast] == pytest.approx([one.score for one in slow], abs=1e-9)


# Watched


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("before", ["not yet run", "already run"])
@pytest.mark.parametrize("watched", ["the model", "what compile returned"])
def test_a_compiled_model_is_watched_as_it_is(architecture, before, watched):
    model = make(architecture, positions="alibi")
    inputs = inputs_of(model)
    fast, graphs = compiled(model)
    with torch.no_grad():
        logits = model(inputs)
        with watch_module(model) as expected:
            model(inputs)
        if before == "already run":
            fast(inputs)
        compilations = graphs.count
        with watch_module(model if watched == "the model" else fast) as seen:
            assert_close(fast(inputs), logits)
            assert_close(fast(inputs), logits)
        assert seen.layers == expected.layers
        for layer in seen.layers:
            for batch in range(4):
                assert_close(seen.weights(layer, batch=batch), expected.weights(layer, batch=batch % 2))
        assert_close(fast(inputs), logits)
        assert len(seen.forwards) == 2  # nothing is recorded any more
        assert graphs.count == max(compilations, 1)  # and what was compiled before is used again


# The default backend


def test_attention_compiled_to_machine_code_equals_attention_as_written():
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3, key_value_heads=1)
    hidden = torch.randn(2, 5, 12)
    mask = Causal() & Padding(torch.tensor([3, 5]), side="left")
    fast = torch.compile(attention, fullgraph=True)
    assert_close(fast(hidden, mask=mask), attention(hidden, mask=mask))

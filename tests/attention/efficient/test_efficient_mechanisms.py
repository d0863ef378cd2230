"""Linformer, Nyström, Performer, linear and gated linear attention as mechanisms: maps, texts, refusals."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention.core import attend
from regard.attention.efficient.gated_deltanet import GatedDeltaNetShape
from regard.attention.efficient.gated_linear import GatedLinearShape
from regard.attention.efficient.linear import LinearShape
from regard.attention.efficient.linformer import LinformerShape
from regard.attention.efficient.nystrom import NystromShape
from regard.attention.efficient.performer import PerformerShape
from regard.attention.mask import Causal, Dense, Document, Padding
from regard.attention.mechanism import MECHANISMS, LayerContext
from regard.attention.slot import Site, Slot
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.inspection.laws import BY_NAME
from regard.models.config import TransformerConfig
from rounding import assert_close

WIDTH, HEADS, HEAD_WIDTH = 10, 2, 5
CAUSAL = {
    "linear": LinearShape(),
    "performer": PerformerShape(features=17),
    "gated by feature": GatedLinearShape(gate_rank=3, temperature=1.0),
    "gated by head": GatedLinearShape(gates="head"),
}
BOTH_WAYS = {
    "linear": LinearShape(),
    "performer": PerformerShape(features=17),
    "linformer": LinformerShape(projected=7, max_tokens=4096, sharing="none"),
    "nystrom": NystromShape(landmarks=6, convolution=3),
    "nystrom, exact": NystromShape(landmarks=6, inverse="exact", convolution=0),
}
CROSS = {name: BOTH_WAYS[name] for name in ("linear", "performer", "linformer")}
CASES = [(shape, True) for shape in CAUSAL.values()] + [(shape, False) for shape in BOTH_WAYS.values()]
NAMES = [f"{name}, causal" for name in CAUSAL] + list(BOTH_WAYS)
every_case = pytest.mark.parametrize(("shape", "causal"), CASES, ids=NAMES)


def slot(causal: bool = False, cross: bool = False, kv_heads: int = HEADS, **more) -> Slot:
    site = Site("decoder" if causal or cross else "encoder", 0, "cross" if cross else "self")
    return Slot(WIDTH, HEADS, kv_heads, HEAD_WIDTH, causal=causal, cross=cross, site=site, **more)


def context(causal: bool, *masks) -> LayerContext:
    mask = Causal() if causal else None
    for one in masks:
        mask = one if mask is None else mask & one
    return LayerContext(mask)


def alone(mechanism, inputs: torch.Tensor, causal: bool) -> torch.Tensor:
    return mechanism(inputs[None], None, context(causal))[0][0]


@every_case
@pytest.mark.parametrize("kv_heads", [1, HEADS])
def test_the_dense_map_times_the_values_is_what_the_heads_read(shape, causal, kv_heads):
    mechanism = shape.build(slot(causal, kv_heads=kv_heads)).double().eval()
    inputs, told = torch.randn(3, 29, WIDTH, dtype=torch.float64), context(causal, Padding(torch.tensor([29, 11, 1])))
    weights = mechanism.dense_map(inputs, told)
    values = mechanism.keys_values(inputs).values.repeat_interleave(HEADS // kv_heads, dim=1)
    assert weights.shape == (3, HEADS, 29, 29)
    assert_close(mechanism.finish(inputs, weights @ values), mechanism(inputs, None, told)[0], 1e-10)
    assert (weights[2, :, :, 1:] == 0).all()  # nothing is read of padding
    if causal:
        assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize("name", CAUSAL)
def test_the_causal_map_of_a_linear_mechanism_is_that_of_its_recurrence(name):
    mechanism = CAUSAL[name].build(slot(causal=True)).double().eval()
    inputs = torch.randn(1, 23, WIDTH, dtype=torch.float64)
    query, key = mechanism.queries(inputs), mechanism.keys_values(inputs).keys
    if name == "linear":
        weights = ((F.elu(query) + 1) @ (F.elu(key) + 1).mT).tril()
        weights = weights / weights.sum(dim=-1, keepdim=True)
    elif name == "performer":
        exponents = [one @ mechanism.projection.double().T / HEAD_WIDTH**0.25 for one in (query, key)]
        weights = torch.exp(exponents[0][:, :, :, None] + exponents[1][:, :, None]).sum(-1)
        weights = (weights * torch.exp(-key.square().sum(-1) / 2 / HEAD_WIDTH**0.5)[:, :, None]).tril()
        weights = weights / weights.sum(dim=-1, keepdim=True)
    else:
        through = mechanism.log_decay(inputs).double().cumsum(dim=2)
        between = torch.exp(through[:, :, :, None] - through[:, :, None])
        weights = (query[:, :, :, None] * between * key[:, :, None]).sum(-1).tril() / HEAD_WIDTH**0.5
    assert_close(mechanism.dense_map(inputs, context(causal=True)), weights, 1e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_packed_texts_are_read_as_if_each_stood_alone(name):
    mechanism = CAUSAL[name].build(slot(causal=True)).eval()
    inputs, ids = torch.randn(1, 31, WIDTH), torch.tensor([[0] * 9 + [1] * 1 + [2] * 21])
    together = mechanism(inputs, None, context(True, Document(ids)))[0][0]
    for document in range(3):
        at = ids[0] == document
        assert_close(together[at], alone(mechanism, inputs[0, at], causal=True))


@every_case
@pytest.mark.parametrize("tokens", [1, 2, 3, 65])
def test_any_length_is_read_and_learnt_from(shape, causal, tokens):
    mechanism = shape.build(slot(causal))
    inputs = torch.randn(2, tokens, WIDTH, requires_grad=True)
    out = mechanism(inputs, None, context(causal))[0]
    gradients = torch.autograd.grad(out.square().sum(), [inputs, *mechanism.parameters()])
    assert out.shape == inputs.shape
    assert all(one.isfinite().all() for one in (out, *gradients))
    assert gradients[-1].abs().max() > 0


@every_case
def test_no_tokens_are_refused(shape, causal, unchecked):
    with pytest.raises(InputError, match="was given 0 tokens"):
        shape.build(slot(causal))(torch.randn(2, 0, WIDTH), None, context(causal))


class Bytes(TorchDispatchMode):
    """Counts what every operation gives, forward and backward."""

    total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            self.total += one.numel() * one.element_size() if isinstance(one, torch.Tensor) else 0
        return out


def growth(read) -> float:
    """By which power of the length the numbers grow that are computed, from 256 to 1,024 tokens."""
    counted = []
    for tokens in (256, 1024):
        inputs = torch.randn(1, tokens, WIDTH, requires_grad=True)
        with Bytes() as seen:
            read(inputs).sum().backward()
        counted.append(seen.total)
    return float(torch.tensor(counted[1] / counted[0]).log() / torch.tensor(4.0).log())


@every_case
def test_what_is_computed_grows_with_the_length_alone(shape, causal):
    mechanism = shape.build(slot(causal))
    assert growth(lambda inputs: mechanism(inputs, None, context(causal))[0]) < 1.05


def test_and_that_measure_sees_a_square():
    def exact(inputs):
        heads = inputs.view(1, -1, HEADS, HEAD_WIDTH).transpose(1, 2)
        return attend(heads, heads, heads, kernel="reference")

    assert growth(exact) > 1.8


@pytest.mark.parametrize("name", CROSS)
def test_a_memory_is_read_as_a_text_of_its_own(name):
    mechanism = CROSS[name].build(slot(cross=True)).eval()
    inputs, memory = torch.randn(2, 5, WIDTH), torch.randn(2, 13, WIDTH)
    told = LayerContext(memory_mask=Padding(torch.tensor([13, 4]))).cross
    out, state = mechanism(inputs, mechanism.start(memory), told)
    assert_close(mechanism(inputs[1:], mechanism.start(memory[1:, :4]), LayerContext())[0], out[1:])
    assert_close(mechanism(inputs[:, 3:4], state, told)[0], out[:, 3:4])  # a step of decoding
    weights = mechanism.dense_map(inputs, told, memory)
    read = mechanism.finish(inputs, weights @ mechanism.keys_values(memory).values)
    assert_close(read, out)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_can_be_reordered_and_cannot_go_back(name):
    mechanism = CAUSAL[name].build(slot(causal=True)).eval()
    inputs = torch.randn(3, 7, WIDTH)
    state = mechanism(inputs, None, context(True))[1]
    more, rows = torch.randn(2, 1, WIDTH), torch.tensor([2, 0])
    out = mechanism(more, state.select(rows), LayerContext(past=7))[0]
    for row, at in enumerate(rows):
        whole = torch.cat((inputs[at], more[row]))
        assert_close(out[row], alone(mechanism, whole, causal=True)[-1:])
    with pytest.raises(InputError, match="cannot go back to the first 3"):
        state.trim(3)


def test_linformer_shares_its_projections_as_it_is_told():
    lengths = {
        sharing: {
            name: tuple(one.shape)
            for name, one in encoder(LinformerShape(sharing=sharing, projected=7, max_tokens=19)).named_parameters()
            if "_length" in name
        }
        for sharing in ("none", "headwise", "key_value", "layerwise")
    }
    first, second = (f"encoder.layers.{layer}.self_attention" for layer in (0, 1))
    names = [f"{layer}.{kind}_length" for layer in (first, second) for kind in ("key", "value")]
    assert lengths["none"] == dict.fromkeys(names, (HEADS, 19, 7))
    assert lengths["headwise"] == dict.fromkeys(names, (1, 19, 7))
    assert lengths["key_value"] == dict.fromkeys(names[::2], (1, 19, 7))
    assert lengths["layerwise"] == {f"{first}.key_length": (1, 19, 7)}


def encoder(shape, **more) -> torch.nn.Module:
    sizes = {"vocabulary": 13, "width": WIDTH, "heads": HEADS, "layers": 2, "dropout": 0.0}
    return TransformerConfig(architecture="encoder", attention=shape, **sizes, **more).build()


def test_a_projection_of_all_layers_is_learnt_saved_and_copied_as_one():
    model = encoder(LinformerShape(sharing="layerwise", projected=7, max_tokens=19))
    tokens = Inputs(Padded.of([[1, 2, 3, 4]]))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.encoder.layers[0].self_attention.key_length.mul_(3)
    layers = [one.encoder.layers[1].self_attention for one in (model, twin)]
    assert_close(layers[1].lengths[0], 3 * layers[0].lengths[0])
    assert BY_NAME["save_load"].measure(model) == 0
    model(tokens).sum().backward()
    assert model.encoder.layers[0].self_attention.key_length.grad.abs().max() > 0


def test_random_features_differ_from_layer_to_layer_and_are_the_same_in_every_model():
    models = [encoder(PerformerShape(features=11)) for _ in range(2)]
    features = [[layer.self_attention.projection for layer in one.encoder.layers] for one in models]
    assert torch.equal(features[0][0], features[1][0])
    assert not torch.equal(features[0][0], features[0][1])
    other = encoder(PerformerShape(features=11, seed=1)).encoder.layers[0].self_attention.projection
    assert not torch.equal(features[0][0], other)


def test_random_features_are_drawn_anew_after_so_many_batches_of_training_alone():
    model = encoder(PerformerShape(features=11, redraw=3))
    own, tokens = model.encoder.layers[0].self_attention, Inputs(Padded.of([[1, 2, 3, 4]]))
    first = own.projection
    model.eval()
    for _ in range(4):
        model(tokens)
    model.train()
    for _ in range(2):
        model(tokens)
    assert torch.equal(own.projection, first)
    model(tokens)
    assert torch.equal(own.projection, own.drawn(1))
    assert not torch.equal(own.projection, first)
    assert BY_NAME["save_load"].measure(model) == 0
    own.redraw(2)
    assert torch.equal(own.projection, own.drawn(2))


def test_a_resumed_training_draws_the_features_it_would_have_drawn():
    assert BY_NAME["resume"].measure(encoder(PerformerShape(features=11, redraw=2))) == 0


def test_a_longer_text_than_linformer_reads_is_known_before_and_refused():
    config = encoder(LinformerShape(max_tokens=19, projected=7)).config
    assert config.position_limit == 19
    assert encoder(LinformerShape(max_tokens=19), positions="learned", max_positions=7).config.position_limit == 7
    with pytest.raises(InputError, match="20 tokens are more than the 19 that this Linformer's projections"):
        config.build()(Inputs(Padded.of([[1] * 20])))


REFUSED = {
    "causal linformer": (LinformerShape(), {"causal": True}, "'linformer' cannot do causal attention"),
    "causal nystrom": (NystromShape(), {"causal": True}, "'nystrom' cannot do causal attention"),
    "nystrom across": (NystromShape(), {"cross": True}, "'nystrom' cannot do attention to a memory"),
    "gated linear across": (GatedLinearShape(), {"cross": True}, "'gated_linear' cannot do attention to a memory"),
    "gated linear both ways": (GatedLinearShape(), {}, "'gated_linear' cannot do attention in both directions"),
    "a bias": (PerformerShape(), {"score_bias": True}, "'performer' cannot do positions that add to the scores"),
    "a similarity": (LinearShape(), {"similarity": "cosine"}, "'linear' cannot do similarity 'cosine'"),
    "dropout": (NystromShape(), {"dropout": 0.1}, "'nystrom' cannot do dropout on weights"),
    "layers of a memory": (LinformerShape(sharing="layerwise"), {"cross": True}, "shares a projection between layers"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_mechanism_cannot_do_is_refused_when_it_is_built(case):
    shape, asked, sentence = case
    with pytest.raises(ConfigError, match=sentence):
        shape.build(slot(**asked))


def test_a_mask_that_nothing_can_honour_is_refused():
    inputs, table = torch.randn(1, 5, WIDTH), Dense(torch.eye(5, dtype=torch.bool))
    with pytest.raises(InputError, match="Performer makes no weights that Dense could mask"):
        PerformerShape().build(slot())(inputs, None, context(False, table))
    with pytest.raises(InputError, match="was built to see a whole text and got a causal mask; use exact attention"):
        NystromShape().build(slot())(inputs, None, context(True))
    with pytest.raises(InputError, match="a causal LinearAttention cannot do without a causal mask"):
        LinearShape().build(slot(causal=True))(inputs, None, context(False))


def test_options_without_a_meaning_are_refused():
    with pytest.raises(ConfigError, match="a convolution over 4 tokens has no middle; use 5"):
        NystromShape(convolution=4)
    with pytest.raises(ConfigError, match="gate_rank = 8 has no effect with one gate a head"):
        GatedLinearShape(gates="head", gate_rank=8)


EVERY = [
    (name, causal)
    for name, shape in MECHANISMS.items()
    for causal, can in ((False, shape.abilities.bidirectional), (True, shape.abilities.causal))
    if can
]


@pytest.mark.parametrize(("name", "causal"), EVERY)
def test_of_no_tokens_every_mechanism_says_so_and_of_one_it_reads_that(name, causal, unchecked):
    mechanism = MECHANISMS[name].model_validate({}).build(slot(causal))
    with pytest.raises(InputError, match="at least one"):
        mechanism(torch.randn(2, 0, WIDTH), None, context(causal))
    with pytest.raises(InputError, match="at least one"):
        mechanism(torch.randn(0, 7, WIDTH), None, context(causal))
    alone = torch.randn(2, 1, WIDTH)
    found, _ = mechanism(alone, None, context(causal))
    assert found.isfinite().all()
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("shape", [GatedLinearShape(), GatedLinearShape(gates="head"), GatedDeltaNetShape()])
def test_gates_of_a_model_in_float64_are_float64(shape):
    """Rounded to float32, what a text reads would depend on the other texts of its batch by 1e-7."""
    gates = shape.build(slot(True)).double().log_decay(torch.randn(2, 5, WIDTH, dtype=torch.float64))
    assert gates.dtype == torch.float64
    assert (gates != gates.float().double()).any()

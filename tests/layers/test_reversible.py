"""A reversible stack against the same function under ordinary autograd: gradients, memory, dropout, precision."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention.mechanism import MECHANISMS
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.inspection.capture import watch_module
from regard.layers.feedforward import FeedForward
from regard.layers.reversible import Reversible
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.transformer import Transformer
from rounding import assert_close

SIZES = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 3, "feedforward_width": 10, "norm_placement": "pre"}


class Ordinary(nn.Module):
    """The same two streams, with everything kept."""

    def forward(self, changes, stream):
        first = second = stream
        for change in changes:
            first, second = second, first + change(second)
        return (first + second) / 2


def built(**more) -> Transformer:
    torch.manual_seed(1)
    return Transformer(TransformerConfig(**SIZES | {"residual": "reversible"} | more)).train()


def ordinary(model: Transformer) -> Transformer:
    for stack in ("encoder", "decoder"):
        if hasattr(model, stack):
            getattr(model, stack).reversible = Ordinary()
    return model


def inputs(model: Transformer) -> Inputs:
    source = Padded.of([[3, 1, 4, 1], [5, 9]]) if model.config.reads_source else None
    return Inputs(Padded.of([[2, 7, 1, 8, 2, 8, 1], [3, 1, 4]]), source)


def learnt(model: nn.Module, precision: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The loss, the gradients, and the random number that comes after them."""
    torch.manual_seed(7)
    given = inputs(model)
    with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
        out = model(given)
    out = out if out.dtype == torch.float64 else out.float()
    towards = torch.cos(torch.arange(out.numel())).view(out.shape)
    (out * towards).sum().backward()
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return {"output": out.detach(), "next": torch.rand(1), **found}


def check(tolerance: float = 1e-5, precision: torch.dtype | None = None, **config) -> None:
    models = built(**config), ordinary(built(**config))
    found, exact = (learnt(one.double() if tolerance < 1e-6 else one, precision) for one in models)
    assert found.keys() == exact.keys()
    for name, one in found.items():
        assert_close(one, exact[name], tolerance, name)


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "encoder_decoder"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_ordinary_autograd_dropout_replayed(architecture, dropout):
    head = "masked" if architecture == "encoder" else "tokens"
    check(architecture=architecture, head=head, dropout=dropout, positions="t5")


PLACES = [(name, at) for name in MECHANISMS for at in range(len(MECHANISMS[name].samples))]


@pytest.mark.parametrize(("name", "at"), PLACES)
def test_any_mechanism_can_be_in_it(name, at):
    able, sample = MECHANISMS[name].abilities, {"name": name, **MECHANISMS[name].samples[at]}
    architecture = "decoder" if able.causal else "encoder"
    check(
        architecture=architecture,
        head="tokens" if able.causal else "masked",
        attention=sample,
        dropout=0.2,
        tolerance=1e-8,
    )


def test_features_that_are_drawn_anew_are_not_drawn_while_a_gradient_is_computed_again():
    attention = {"name": "performer", "features": 7, "redraw": 2}
    models = [built(architecture="decoder", attention=attention) for _ in range(2)]
    ordinary(models[1])
    for _ in range(3):
        found, exact = (learnt(model) for model in models)
        assert_close(found["output"], exact["output"])
    first, second = (model.decoder.layers[0].self_attention for model in models)
    assert int(first.batches) == int(second.batches) == 3
    assert torch.equal(first.projection, second.projection)


def test_under_autocast_what_is_computed_again_is_bfloat16_too():
    check(tolerance=1e-3, precision=torch.bfloat16, architecture="decoder", dropout=0.2)


def test_the_embedding_may_stand_still_and_a_graph_may_be_gone_through_twice():
    model = built(architecture="decoder", dropout=0.3)
    model.embedding.requires_grad_(False)
    torch.manual_seed(3)
    out = model(inputs(model)).square().sum()
    weights = [one for one in model.parameters() if one.requires_grad]
    first = torch.autograd.grad(out, weights, retain_graph=True)
    second = torch.autograd.grad(out, weights)
    for one, other in zip(first, second, strict=True):
        assert_close(one, other, 1e-6)


def test_in_half_precision_streams_stay_wide():
    model = built(architecture="decoder", layers=8).bfloat16().eval()
    exact = built(architecture="decoder", layers=8).eval()
    exact.load_state_dict(model.state_dict())
    given = inputs(model)
    towards = torch.cos(torch.arange(2 * 7 * 13)).view(2, 7, 13)
    for one in (model, exact):
        (one(given).float() * towards).sum().backward()
    found, wide = (torch.cat([one.grad.float().flatten() for one in each.parameters()]) for each in (model, exact))
    assert (found - wide).norm() < 0.05 * wide.norm()


class Held(TorchDispatchMode):
    """The most bytes of tensors that are there at once, those of a module's parameters and their gradients left out."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.now, self.most = 0, 0
        self.known = {part.untyped_storage()._cdata for one in module.parameters() for part in (one, one.grad)}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, torch.Tensor):
                self.see(one.untyped_storage())
        return out

    def see(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self.forget, key, size)

    def forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def most_held(layers: int, **more) -> int:
    """While a loss and its gradients are computed."""
    crosses = "encoder_layers" in more
    text, source = Padded.of([[1, 2] if crosses else [1, 2, 3, 4] * 128]), Padded.of([[1, 2, 3] * 170])
    sizes = {"width": 32, "layers": layers, "dropout": 0.1, **more}
    model = with_gradients(built(architecture="encoder_decoder" if crosses else "decoder", **sizes))
    gc.collect()
    with Held(model) as held:
        model(Inputs(text, source if crosses else None)).square().sum().backward()
    return held.most


def with_gradients(module: nn.Module) -> nn.Module:
    for one in module.parameters():
        one.grad = torch.zeros_like(one)
    return module


def test_memory_does_not_grow_with_depth():
    shallow, deep = most_held(6), most_held(24)
    assert deep < 1.1 * shallow
    ordinary_shallow, ordinary_deep = (most_held(layers, residual=True) for layers in (6, 24))
    assert ordinary_deep > 3 * ordinary_shallow  # the measure sees depth where there is any


def test_a_memory_that_is_attended_to_is_not_kept_for_each_layer():
    assert most_held(16, encoder_layers=1) < 1.1 * most_held(4, encoder_layers=1)


def test_a_feed_forward_network_in_pieces_computes_the_same_and_holds_less():
    for kind in ("relu", "swiglu"):
        torch.manual_seed(0)
        whole, pieces = FeedForward(kind, 6, 512, 0.0), FeedForward(kind, 6, 512, 0.0, chunks=8)
        pieces.load_state_dict(whole.state_dict())
        given = torch.randn(2, 203, 6, requires_grad=True)
        found, held = [], []
        for part in (whole, pieces):
            with Held(with_gradients(part)) as seen:
                out = part(given)
                gradients = torch.autograd.grad(out.square().sum(), [given, *part.parameters()])
            found.append([out, *gradients])
            held.append(seen.most)
        for one, other in zip(*found, strict=True):
            assert_close(one, other)
        assert held[1] < held[0] / 3
        with torch.no_grad():
            assert_close(pieces(given), found[0][0])


def test_pieces_and_reversible_layers_go_together():
    check(architecture="decoder", dropout=0.3, feedforward_chunks=3)
    most = {chunks: most_held(4, feedforward_width=1024, feedforward_chunks=chunks) for chunks in (1, 8)}
    assert most[8] < 0.4 * most[1]


def test_a_backward_pass_is_not_watched():
    model = built(architecture="decoder", dropout=0.0)
    with watch_module(model) as seen:
        model(inputs(model)).sum().backward()
    assert len(seen.forwards) == 1
    assert all(len(calls) == 1 for calls in seen.forwards[0].layers.values())


def test_what_cannot_be_reversible_is_refused():
    with pytest.raises(ConfigError, match=r"norm behind it .* cannot be; use model.norm_placement=pre"):
        TransformerConfig(residual="reversible", vocabulary=13)
    TransformerConfig(residual="reversible", norm="none", vocabulary=13)
    family = next(one for one in FAMILIES.values() if "gpt2" in one.sizes)
    with pytest.raises(ConfigError, match="residual = 'reversible' cannot be said of a gpt"):
        family.write(family.config("gpt2").model_copy(update={"residual": "reversible"}))


def test_it_is_not_computed_again_where_no_gradient_is_wanted(monkeypatch):
    monkeypatch.setattr("regard.layers.reversible._Sublayer.run", None)
    with torch.no_grad():
        built(architecture="decoder")(inputs(built(architecture="decoder")))


def test_a_sublayer_that_does_something_else_the_second_time_is_told():
    times = []

    def changing(stream):
        times.append(None)
        return stream.exp() if len(times) == 1 else 2 * stream

    stream = torch.randn(1, 3, 5, requires_grad=True)
    out = Reversible()([changing], stream)
    with pytest.raises(InputError, match="another computation"):
        out.sum().backward()

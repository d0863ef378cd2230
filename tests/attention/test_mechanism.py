"""The Mechanism contract and its first member: exact attention with its options, against formulas written out."""

import math
from functools import reduce
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.attention.cache import KeyValues
from regard.attention.exact import ExactShape
from regard.attention.mask import Causal, Dense, Document, Mask, Padding, Prefix, Window
from regard.attention.mask_algebra import And
from regard.attention.mask_parts import split
from regard.attention.mechanism import MECHANISMS, Abilities, LayerContext, Mechanism, MechanismShape, read_mechanism
from regard.attention.multihead import MultiHeadAttention
from regard.attention.rotary import Rotary, RotaryConfig
from regard.attention.slot import Site, Slot
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from rounding import assert_close

SLOT = Slot(width=10, heads=3, key_value_heads=3, head_width=4)
CAUSAL = Slot(width=10, heads=6, key_value_heads=2, head_width=4, causal=True)
CROSS = Slot(width=10, heads=3, key_value_heads=3, head_width=4, cross=True)
ROTARY = Slot(width=10, heads=3, key_value_heads=3, head_width=4, causal=True, rotary=True)


def built(slot: Slot = SLOT, **options) -> Mechanism:
    torch.manual_seed(1)
    return ExactShape(**options).build(slot).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def by_hand(
    module: Mechanism, inputs: Tensor, allowed: Tensor, scores=lambda dots, width: dots / math.sqrt(width), norm=None
) -> Tensor:
    """Head by head; `scores` of dot products, `norm` of queries and keys."""
    slot, heads = module.slot, []
    for head in range(slot.heads):
        shared = head * slot.key_value_heads // slot.heads
        query, key, value = (
            one(inputs).unflatten(2, (count, -1))[:, :, at]
            for one, count, at in (
                (module.query, slot.heads, head),
                (module.key, slot.key_value_heads, shared),
                (module.value, slot.key_value_heads, shared),
            )
        )
        if norm is not None:
            query, key = norm(query), norm(key)
        weights = scores(query @ key.mT, slot.head_width).masked_fill(~allowed, -math.inf).softmax(-1)
        heads.append(weights @ value)
    return module.output(torch.cat(heads, dim=-1))


# Exact attention


@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Padding(torch.tensor([5, 3]))])
def test_exact_attention_is_multi_head_attention(mask):
    module = built()
    plain = MultiHeadAttention(10, 3, head_width=4).double()
    plain.load_state_dict(module.state_dict())
    inputs, memory = drawn(2, 5, 10), drawn(2, 7, 10)
    assert torch.equal(module(inputs, None, LayerContext(mask))[0], plain(inputs, mask=mask))
    cross = built(CROSS)
    cross.load_state_dict(module.state_dict())
    found, state = cross(inputs, cross.start(memory), LayerContext(Padding(torch.tensor([7, 2]))))
    assert torch.equal(found, plain(inputs, memory, mask=Padding(torch.tensor([7, 2]))))
    assert state.tokens == 7


def test_a_window_is_of_a_token_and_those_before_it_and_lies_on_both_sides_in_an_encoder():
    inputs = drawn(2, 7, 10)
    for slot, mask in ((CAUSAL, Causal()), (SLOT, None)):
        module = built(slot, window=3)
        distance = torch.arange(7)[:, None] - torch.arange(7)
        allowed = (distance.abs() < 3) & ((distance >= 0) | (not slot.causal))
        assert_close(module(inputs, None, LayerContext(mask))[0], by_hand(module, inputs, allowed), 1e-12)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_queries_and_keys_are_normalised_head_by_head(kind):
    module = built(CAUSAL, query_key_norm=kind)

    def norm(heads: Tensor) -> Tensor:
        centred = heads - heads.mean(-1, keepdim=True) if kind == "layer" else heads
        return centred / (centred.square().mean(-1, keepdim=True) + (1e-5 if kind == "layer" else 1e-6)).sqrt()

    inputs = drawn(2, 5, 10)
    expected = by_hand(module, inputs, torch.ones(5, 5, dtype=torch.bool).tril(), norm=norm)
    assert_close(module(inputs, None, LayerContext(Causal()))[0], expected, 1e-12)
    with torch.no_grad():
        module.query_norm.weight.fill_(2.0)
    expected = by_hand(
        module, inputs, torch.ones(5, 5, dtype=torch.bool).tril(), lambda dots, width: 2 * dots / math.sqrt(width), norm
    )
    assert_close(module(inputs, None, LayerContext(Causal()))[0], expected, 1e-12)


def test_scores_are_capped_and_scaled_as_gemma_does():
    inputs, everything = 5 * drawn(2, 5, 10), torch.ones(5, 5, dtype=torch.bool)
    module = built(softcap=1.5, scale=0.3)
    expected = by_hand(module, inputs, everything, lambda dots, _: 1.5 * torch.tanh(0.3 * dots / 1.5))
    assert_close(module(inputs, None, LayerContext())[0], expected, 1e-12)
    module = built(scale=0.3)
    expected = by_hand(module, inputs, everything, lambda dots, _: 0.3 * dots)
    assert_close(module(inputs, None, LayerContext())[0], expected, 1e-12)


def test_biases_are_of_the_projections_that_are_named_and_values_have_a_width_of_their_own():
    module = built(biases=["query", "value"], value_width=7)
    with_bias = {name.removesuffix(".bias") for name, _ in module.named_parameters() if name.endswith("bias")}
    assert with_bias == {"query", "value"}
    assert module.value.out_features == module.output.in_features == 3 * 7
    inputs = drawn(2, 5, 10)
    expected = by_hand(module, inputs, torch.ones(5, 5, dtype=torch.bool))
    assert_close(module(inputs, None, LayerContext())[0], expected, 1e-12)


def test_a_layer_turns_its_heads_otherwise_or_not_at_all():
    inputs, places = drawn(2, 5, 10), torch.arange(5)[None]

    def read(base: float | None, **options) -> Tensor:
        rotate = None if base is None else Rotary(4, RotaryConfig(base=base))(places)
        return built(ROTARY, **options)(inputs, None, LayerContext(Causal(), rotate=rotate, places=places))[0]

    assert torch.equal(read(500.0, rotary={"base": 7.0}), read(7.0))
    assert torch.equal(read(500.0, turned=False), read(None))
    assert not torch.equal(read(500.0), read(7.0))
    assert not torch.equal(read(500.0), read(None))


@pytest.mark.parametrize("options", [{}, {"window": 3, "query_key_norm": "rms"}, {"softcap": 2.0, "value_width": 5}])
def test_pieces_give_what_the_whole_gives_and_the_map_what_was_read(options):
    module, inputs = built(CAUSAL, **options), drawn(2, 7, 10)
    whole, _ = module(inputs, None, LayerContext(Causal()))
    state, parts, past = module.start(), [], 0
    for piece in inputs.split([1, 3, 1, 2], dim=1):
        found, state = module(piece, state, LayerContext(Causal() if piece.shape[1] > 1 else None, past=past))
        parts.append(found)
        past += piece.shape[1]
    assert_close(torch.cat(parts, dim=1), whole, 1e-12)
    maps = module.dense_map(inputs, LayerContext(Causal()))
    values = module.keys_values(inputs).values.repeat_interleave(3, dim=1)
    assert_close(module.joined(maps @ values), whole, 1e-12)
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))
    assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]), 1e-12)


def test_a_text_without_tokens_is_refused():
    with pytest.raises(InputError, match=r"the queries are shaped \(2, 6, 0, 4\); give at least one"):
        built(CAUSAL)(drawn(2, 0, 10), None, LayerContext(Causal()))


@pytest.mark.parametrize(
    ("slot", "options", "said"),
    [
        (CROSS, {"window": 3}, "a window of 3 is around a token's own place"),
        (
            SLOT,
            {"rotary": {"base": 7.0}},
            "rotary .* has no effect where positions are not rotary; use model.positions=",
        ),
        (SLOT, {"turned": False}, "turned = False has no effect where positions are not rotary"),
        (ROTARY, {"turned": False, "rotary": {"base": 7.0}}, "has no effect on heads without rotary positions"),
    ],
)
def test_options_without_effect_are_refused(slot, options, said):
    with pytest.raises(ConfigError, match=said):
        ExactShape(**options).build(slot)


def test_a_scale_is_that_of_the_scaled_dot_product_alone():
    with pytest.raises(ConfigError, match=r"scale = 0\.3 has no effect on similarity 'cosine'"):
        TransformerConfig(vocabulary=13, similarity="cosine", attention={"name": "exact", "scale": 0.3})


# Layers and stacks


def test_layers_go_through_a_list_of_mechanisms_again_and_again():
    config = TransformerConfig(
        vocabulary=13,
        width=12,
        heads=2,
        layers=5,
        architecture="decoder",
        attention=[{"name": "exact", "window": 2}, {"window": 3}, "exact"],
    )
    again = TransformerConfig.model_validate_json(config.model_dump_json())
    assert again == config
    torch.manual_seed(0)
    model = again.build().eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([[3, 4, 5, 6, 7, 8, 9]])))
    for layer, seen_at_most in enumerate([2, 3, 7, 2, 3]):
        met = (seen.weights(f"decoder.{layer}.self") > 0).sum(-1)
        assert met.tolist() == [[min(row + 1, seen_at_most) for row in range(7)]] * 2


def test_layers_of_one_window_share_their_mask():
    inputs, context = drawn(2, 5, 10), LayerContext(Causal())
    masks = []
    for module in (built(CAUSAL, window=3), built(CAUSAL, window=3), built(CAUSAL, window=2)):
        handle = module.attend.register_forward_pre_hook(
            lambda _, args, options: masks.append(options["mask"]), with_kwargs=True
        )
        module(inputs, None, context)
        handle.remove()
    assert masks[0] is masks[1]
    assert masks[0] is not masks[2]


def test_a_stack_may_attend_otherwise_than_the_other():
    shape = {"vocabulary": 13, "width": 12, "heads": 2, "encoder_attention": {"window": 2}}
    config = TransformerConfig(**shape, cross_attention={"value_width": 5})
    kinds = [repr(config.mechanism(Site(stack, 0, kind))) for stack, kind in (("encoder", "self"), ("decoder", "self"))]
    assert kinds == ["exact(window=2)", "exact"]
    assert config.build().decoder.layers[1].cross_attention.value.out_features == 10
    with pytest.raises(ConfigError, match="lists 3 mechanisms for 2 layers of the encoder"):
        TransformerConfig(vocabulary=13, width=12, heads=2, attention=["exact"] * 3)


def test_what_other_libraries_cannot_say_of_attention_is_not_lost_on_the_way_to_them():
    llama = FAMILIES["llama"].config("llama-7b")
    windowed = TransformerConfig.model_validate(llama.model_dump() | {"attention": [{"window": 5}, "exact"]})
    with pytest.raises(ConfigError, match=r"attention = \(exact\(window=5\), exact\) cannot be said of a llama model"):
        FAMILIES["llama"].write(windowed)


# The contract


def test_the_name_alone_a_table_and_the_shape_mean_the_same():
    assert read_mechanism("exact") == read_mechanism({"name": "exact"}) == read_mechanism({}) == ExactShape()
    assert read_mechanism(ExactShape(window=3)).window == 3


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("exakt", "attention 'exakt' is unknown; did you mean 'exact'"),
        ({"name": "exact", "windw": 3}, "key 'windw' is unknown; did you mean 'window'"),
        (3, "3 names no attention"),
        ({"window": 0}, "window = 0 cannot be used"),
    ],
)
def test_what_names_no_mechanism_is_refused(value, said):
    with pytest.raises(ConfigError, match=said):
        TransformerConfig(vocabulary=13, attention=value)


class Nameless(MechanismShape):
    abilities = Abilities()

    def make(self, slot: Slot) -> Mechanism:
        return built()


class Vague(Nameless):
    name: Literal["vague"] = "vague"
    abilities = None


class Again(Nameless):
    name: Literal["exact"] = "exact"


class BothWays(Nameless):
    name: Literal["both_ways"] = "both_ways"


@pytest.mark.parametrize(
    ("shape", "said"),
    [(Nameless, "no name a recipe could say"), (Vague, "does not say what it can do"), (Again, "is there already")],
)
def test_what_cannot_be_registered_says_why(shape, said):
    before = dict(MECHANISMS)
    with pytest.raises(ConfigError, match=said):
        regard.register_mechanism(shape)
    assert before == MECHANISMS


@pytest.mark.parametrize(
    ("slot", "what"),
    [
        ({"causal": True}, "causal attention, which a decoder needs"),
        ({"cross": True}, "attention to a memory"),
        ({"score_bias": True}, "positions that add to the scores"),
        ({"similarity": "dot"}, "similarity 'dot'"),
        ({"dropout": 0.5}, "dropout on weights"),
    ],
)
def test_what_a_mechanism_cannot_is_refused_when_it_is_built_with_what_can(slot, what):
    wanted = Slot(width=10, heads=2, key_value_heads=2, head_width=5, **slot)
    with pytest.raises(ConfigError, match=rf"'both_ways' cannot do {what}.*; it can do bidirectional; use .*exact"):
        BothWays().build(wanted)


def test_a_state_that_cannot_go_back_says_so():
    class Forgetful(regard.AttentionState):
        def select(self, rows):
            return self

    with pytest.raises(InputError, match="Forgetful cannot go back to its first 3 tokens"):
        Forgetful().trim(3)
    with pytest.raises(InputError, match="attention to a memory was given NoneType; give what `start"):
        built(CROSS)(drawn(2, 3, 10), None, LayerContext())
    assert isinstance(built().start(drawn(2, 3, 10)), KeyValues)


# Masks taken apart

LENGTHS = torch.tensor([5, 2])
PARTS: dict[str, Mask] = {
    "causal": Causal(),
    "right": Padding(LENGTHS),
    "left": Padding(LENGTHS, "left"),
    "documents": Document(torch.tensor([[1, 1, 2, 2, 2], [1, 2, 2, 2, 0]])),
    "window": Window(2),
    "prefix": Causal() | Prefix(LENGTHS),
    "not": ~Window(1),
    "dense": Dense(torch.tensor([[True, False, True, True, False]] * 5)),
}


@given(st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=5), st.randoms())
def test_the_parts_of_a_mask_joined_are_the_mask(names, random):
    masks = [PARTS[name] for name in names]
    while len(masks) > 1:  # joined in any order, so that the tree leans any way
        at = random.randrange(len(masks) - 1)
        masks[at : at + 2] = [masks[at] & masks[at + 1]]
    parts = split(masks[0])
    assert parts.causal == ("causal" in names)
    assert (parts.padding is not None) == bool({"left", "right"} & set(names))
    assert (parts.documents is not None) == ("documents" in names)
    plain = {"causal", "left", "right", "documents"}
    assert (parts.rest is not None) == bool(
        set(names) - plain or sum(name in ("left", "right") for name in names) > 1 or names.count("documents") > 1
    )
    given = (Causal() if parts.causal else None, parts.padding, parts.documents, parts.rest)
    whole = [one for one in given if one is not None]
    shape, device = (2, 1, 5, 5), torch.device("cpu")
    again = reduce(And, whole).dense(shape, device).expand(shape)
    assert torch.equal(again, reduce(And, (PARTS[name] for name in names)).dense(shape, device).expand(shape))


def test_which_of_the_last_tokens_are_real():
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
    for side, expected in (("right", real), ("left", real.flip(1))):
        parts = split(Padding(LENGTHS, side) & Causal())
        for tokens in range(1, 6):
            assert torch.equal(parts.real(5, tokens, torch.device("cpu")), expected[:, 5 - tokens :])
    assert split(None).real(5, 2, torch.device("cpu")) is None
    assert split(Causal()).padding is None
    behind = LayerContext(Causal(), behind=Padding(LENGTHS)).parts()
    assert torch.equal(behind.real(5, 5, torch.device("cpu")), real)

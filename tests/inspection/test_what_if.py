"""Switching a head off and cutting an edge do what the same does that is done to weights and scores by hand."""

import pytest
import torch
from torch import Tensor

from regard.attention.core import weights
from regard.attention.multihead import Attend
from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into
from regard.inspection.decisions import Decisions, repeated
from regard.inspection.intervention import (
    EdgeKnockout,
    HeadAblation,
    StreamPatch,
    attention_places,
    change_of,
    intervene,
    mean_outputs,
)
from regard.inspection.what_if import edge_effects, head_effects, what_if
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS, Network
from regard.models.transformer import Transformer
from rounding import assert_close

SOURCE, TARGET = [3, 4, 5, 9, 2], [1, 2, 3, 4, 5, 6, 7]
INPUTS = Inputs(Padded.of([TARGET]), Padded.of([SOURCE]))
EXACT = [
    {},
    {"architecture": "decoder", "key_value_heads": 1, "positions": "rotary", "norm_placement": "pre"},
    {"architecture": "encoder", "positions": "t5", "head": "labels", "labels": ("a", "b", "c")},
]


def model_of(**options) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=13, width=12, heads=2, layers=2, feedforward_width=8, **options)
    return Transformer(config).double().eval()


@torch.no_grad()
def read(model: Network, inputs: Inputs = INPUTS) -> Tensor:
    return model(inputs)


def decisions_of(model: Network, chosen: tuple[int, ...] = (5, 6)) -> Decisions:
    return Decisions(INPUTS, chosen, str, lambda logits: logits[:, -len(chosen) :])


@pytest.mark.parametrize("options", [*EXACT, {"architecture": "decoder", "attention": "gated_linear"}], ids=str)
def test_a_head_switched_off_is_one_whose_rows_of_the_output_projection_are_zero(options):
    model, whole = model_of(**options), read(model_of(**options))
    for place in attention_places(model).values():
        for head in range(2):
            with intervene(model, [HeadAblation(place.layer, head)]):
                found = read(model)
            weight = place.output.weight
            part = weight.shape[1] // 2
            kept = weight.detach().clone()
            with torch.no_grad():
                weight[:, head * part : (head + 1) * part] = 0
                assert_close(found, read(model), 1e-12)
                weight.copy_(kept)
            assert not torch.allclose(found, whole)
    assert torch.equal(read(model), whole)  # nothing stays behind


def test_a_head_may_give_its_mean_in_place_of_its_output():
    model, layer = model_of(), "decoder.1.self"
    means = mean_outputs(model, INPUTS)[layer]
    seen: list[Tensor] = []
    output = model.decoder.layers[1].self_attention.output
    handle = output.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    read(model)
    handle.remove()
    assert_close(means.flatten(), seen[0][0].mean(dim=0), 1e-12)
    with torch.no_grad():
        expected = seen[0].clone()
        expected[..., 6:] = expected[..., 6:].mean(dim=1, keepdim=True)
        handle = output.register_forward_pre_hook(lambda _, args: (expected,))
        by_hand = read(model)
        handle.remove()
    with intervene(model, [HeadAblation(layer, 1, means[1])]):
        assert_close(read(model), by_hand, 1e-12)


def cut_by_hand(model: Network, edge: EdgeKnockout) -> Tensor:
    """The whole layer computed from its weights, one of which is taken out."""
    attend = attention_places(model)[edge.layer].attend

    def by_hand(module: Attend, args: tuple, options: dict, out: Tensor) -> Tensor:
        query, memory = args
        table = weights(query, memory.keys, similarity=module.similarity, mask=options["mask"], bias=options["bias"])
        heads = slice(None) if edge.head is None else edge.head
        table[:, heads, edge.query, edge.key] = 0
        if edge.renormalise:
            total = table.sum(dim=-1, keepdim=True)
            table = torch.where(total > 0, table / total, 0.0)
        many = query.shape[1] // memory.values.shape[1]
        return table @ memory.values.repeat_interleave(many, dim=1)

    handle = attend.register_forward_hook(by_hand, with_kwargs=True)
    found = read(model)
    handle.remove()
    return found


@pytest.mark.parametrize("options", EXACT, ids=str)
@pytest.mark.parametrize("renormalise", [True, False])
def test_an_edge_that_is_cut_is_a_weight_that_is_taken_out(options, renormalise):
    model = model_of(**options)
    for layer in attention_places(model):
        for head in (None, 1):
            edge = EdgeKnockout(layer, 4, 2, head, renormalise)
            with intervene(model, [edge]) as running, record_into(Recording(), model) as seen:
                found = read(model)
            assert_close(found, cut_by_hand(model, edge), 1e-11)
            assert running.applied[edge] == pytest.approx(
                float(seen.weights(layer, head, rows=[4])[..., 2].sum()), rel=1e-9
            )


def test_the_only_edge_of_a_row_that_is_cut_leaves_nothing():
    model = model_of(architecture="decoder")
    edge = EdgeKnockout("decoder.0.self", 0, 0)
    with intervene(model, [edge]):
        assert_close(read(model), cut_by_hand(model, edge), 1e-11)


def test_edges_of_one_row_are_cut_together():
    model = model_of(architecture="decoder")
    layer = "decoder.1.self"
    edges = [EdgeKnockout(layer, 6, key) for key in range(6)]
    with intervene(model, edges):
        found = read(model)
    itself = model.decoder.layers[1].self_attention
    seen: dict[str, Tensor] = {}
    handles = [
        itself.value.register_forward_hook(lambda _, __, out: seen.setdefault("value", out)),
        itself.output.register_forward_pre_hook(lambda _, args: seen.setdefault("read", args[0])),
    ]
    with intervene(model, edges):
        read(model)
    for handle in handles:
        handle.remove()
    assert_close(seen["read"][0, 6], seen["value"][0, 6], 1e-12)  # all that is left is the token itself
    assert not torch.allclose(found, read(model))


def test_decoding_step_by_step_is_cut_where_reading_at_once_is():
    model = model_of()
    changes = [
        HeadAblation("decoder.0.self", 1),
        EdgeKnockout("encoder.1.self", 0, 3, 0),
        EdgeKnockout("decoder.0.self", 4, 2),
        EdgeKnockout("decoder.1.cross", 5, 1, 1),
    ]
    with intervene(model, changes), torch.no_grad():
        whole = read(model)
        state = model.start(Inputs(Padded.of([TARGET[:3]]), INPUTS.source))
        for at in range(2, len(TARGET)):
            logits, state = model.step(torch.tensor([TARGET[at]]), state)
            assert_close(logits[0], whole[0, at], 1e-11)


@pytest.mark.parametrize("name", ["bahdanau", "luong"])
def test_of_a_recurrent_decoder_the_context_is_cut(name):
    torch.manual_seed(1)
    options = {"similarity": "additive"} if name == "bahdanau" else {}
    model = NETWORKS[name].config(vocabulary=13, width=6, **options).build().double().eval()
    [layer] = attention_places(model)
    whole = read(model)
    with intervene(model, [EdgeKnockout(layer, 4, 1)]):
        found = read(model)
    assert torch.equal(found[0, :4], whole[0, :4])
    assert not torch.allclose(found[0, 4], whole[0, 4])
    one = Inputs(INPUTS.tokens, Padded.of([[3]]))  # of a memory of one token nothing is left
    with intervene(model, [EdgeKnockout(layer, at, 0) for at in range(len(TARGET))]):
        cut = read(model, one)
    with intervene(model, [HeadAblation(layer, 0)]):
        assert_close(read(model, one), cut, 1e-12)


def test_what_is_told_before_and_after_are_the_logits_with_and_without():
    model, layer = model_of(), "encoder.0.self"
    decided = decisions_of(model)
    found = what_if(model, decided, [change_of(f"{layer}:1")])
    before = read(model)[0, -2:].log_softmax(dim=-1)
    with intervene(model, [HeadAblation(layer, 1)]):
        after = read(model)[0, -2:].log_softmax(dim=-1)
    for at, one in enumerate(found.decisions):
        chosen = decided.chosen[at]
        assert (one.before, one.after) == pytest.approx((float(before[at, chosen]), float(after[at, chosen])))
        assert one.likeliest_after[0].name == str(int(after[at].argmax()))
        assert one.likeliest_after[0].probability == pytest.approx(float(after[at].exp().max()))
    assert found.change == pytest.approx(float((after - before)[[0, 1], list(decided.chosen)].sum()))
    assert found.without == (f"{layer}:1",)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_the_effects_of_all_heads_are_those_of_each_alone(ablation):
    model = model_of()
    decided = decisions_of(model)
    effects = head_effects(model, decided, ablation)
    assert len(effects.heads) == 6 * 2
    for one in effects.heads:
        alone = what_if(model, decided, [HeadAblation(one.layer, one.head)], ablation)
        assert one.change == pytest.approx(alone.change, abs=1e-10)
        assert one.kept == all(decision.likeliest_after[0].name == decision.chosen for decision in alone.decisions)


def test_the_effects_of_all_edges_are_those_of_each_alone():
    model = model_of()
    decided = decisions_of(model)
    for layer, keys in (("encoder.1.self", 5), ("decoder.0.self", 4), ("decoder.1.cross", 5)):
        found = edge_effects(model, decided, layer, 3, head=1)
        assert [one.key for one in found.edges] == list(range(keys))
        assert sum(one.weight for one in found.edges) == pytest.approx(1)
        for one in found.edges:
            alone = what_if(model, decided, [EdgeKnockout(layer, 3, one.key, 1)])
            assert (one.change, one.weight) == pytest.approx((alone.change, alone.cut[0]), abs=1e-10)


def test_a_patched_vector_is_what_the_next_layer_reads():
    model = model_of(architecture="encoder")
    other = Inputs(Padded.of([[7, 6, 5, 4, 3, 2, 1]]))
    seen: list[Tensor] = []
    handle = model.encoder.layers[1].register_forward_hook(lambda _, __, out: seen.append(out))
    expected = read(model, other)
    handle.remove()
    with intervene(model, [StreamPatch("encoder.1", at, seen[0][0, at]) for at in range(7)]):
        assert_close(read(model), expected, 1e-12)  # all of the last layer's: the other text's logits
    copies = repeated(INPUTS, 3)
    with intervene(model, [StreamPatch("encoder.0", 2, seen[0][0, 2], sequence=1)]):
        found = read(model, copies)
    assert_close(found[0], found[2], 1e-12)
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("encoder.7.self:0", "'encoder.7.self' does not attend in heads"),
        ("encoder.0.self:2", "has 2 heads and no head 2"),
        ("decoder.0.self:0:2:5", "nothing at decoder.0.self:0:2:5"),
        ("decoder.0.self:0:99:5", "nothing at decoder.0.self:0:99:5"),
        ("encoder.0.self", "names no head and no edge"),
        ("encoder.0.self:-1", "names no head and no edge"),
        ("encoder.0.self:all", "names no head and no edge"),
        ("encoder.0.self:0:1", "names no head and no edge"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(change, said):
    model = model_of()
    with pytest.raises(InputError, match=said):
        what_if(model, decisions_of(model), [change_of(change)])


def test_what_has_no_edges_says_so():
    model = model_of(architecture="decoder", attention="gated_linear")
    with pytest.raises(InputError, match="not those of a softmax"):
        what_if(model, decisions_of(model), [change_of("decoder.0.self:0:2:1")])
    with pytest.raises(InputError, match="no attention to be changed"):
        attention_places(NETWORKS["seq2seq"].config(vocabulary=7, width=4).build())

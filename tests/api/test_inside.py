"""What a model is asked of its inside, task by task: the same as its own logits say when they are asked for."""

import json

import pytest
import torch

import regard
from regard.errors import InputError
from regard.views.effects import (
    draw_edge_effects,
    draw_head_effects,
    draw_what_if,
    edge_effects_record,
    edge_effects_text,
    head_effects_record,
    head_effects_text,
    what_if_record,
    what_if_text,
)
from regard.views.score_parts import draw_score_parts, score_parts_record, score_parts_text
from small_models import small_model

TEXT, HIDDEN = "the cat", "the c<mask>t"


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("translation", {}),
        ("translation", {"target": "mars"}),
        ("language_modelling", {}),
        ("language_modelling", {"max_new_tokens": 3}),
        ("classification", {}),
        ("masked", {}),
    ],
    ids=str,
)
def test_what_is_decided_has_the_probability_that_the_models_own_logits_give(task, options):
    model = small_model(task)
    text = HIDDEN if task == "masked" else TEXT
    layer = model.look(text).layers[0]
    found = model.what_if(text, f"{layer}:1", **options)
    decided = model.decisions(text, **options)
    likely = model.module(decided.inputs)[0].detach().double().log_softmax(dim=-1)
    if task == "masked":
        likely = likely[[decided.inputs.tokens.rows()[0].index(model.tokenizer.mask_id)]]
    likely = likely[None] if likely.dim() == 1 else likely[-len(found.decisions) :]
    chosen = list(decided.chosen)
    assert [one.before for one in found.decisions] == pytest.approx(likely[range(len(chosen)), chosen].tolist())
    if options.get("target"):
        assert found.answers is None
        score = model.score(text, "mars")
        assert [one.before for one in found.decisions] == pytest.approx(list(score.log_probabilities))
    else:
        assert torch.equal(likely.argmax(dim=-1), torch.tensor(chosen))
    with model.without(regard.HeadAblation(layer, 1)):
        answer = None if found.answers is None else model.answers([text], max_new_tokens=options.get("max_new_tokens"))
        after = decided.of_chosen(decided.ask(model.module))[0]
    assert [one.after for one in found.decisions] == pytest.approx(after.tolist())
    assert answer is None or found.answers == (found.answers[0], answer[0].text)


def test_what_was_found_is_told_drawn_and_recorded():
    model = small_model("translation")
    found = model.what_if(TEXT, ["encoder.0.self:1", "decoder.1.cross:all:2:3"], ablation="mean", renormalise=False)
    record = json.loads(json.dumps(what_if_record(found)))
    assert record["change"] == pytest.approx(sum(one["after"] - one["before"] for one in record["decisions"]))
    assert record["cut"][0] is None
    assert record["cut"][1] > 0
    for said in ("encoder.0.self:1", "decoder.1.cross:all:2:3", "the mean over the text", "stay as they are"):
        assert said in what_if_text(found)
    heads = model.head_effects(TEXT)
    assert len(head_effects_record(heads)["heads"]) == 6 * 3
    assert f"{heads.of('decoder.1.cross', 2).change:+.3f}" in head_effects_text(heads)
    edges = model.edge_effects(TEXT, "encoder.1.self", 2)
    names = model.look(TEXT).tokens("encoder.1.self").keys
    assert len(edge_effects_record(edges)["edges"]) == len(names)
    assert sum(one.weight for one in edges.edges) == pytest.approx(3, abs=1e-5)  # of three heads
    assert f"{edges.edges[1].change:+.4f}" in edge_effects_text(edges, names, names[2])
    why = model.why(TEXT, "encoder.1.self", 1, 2, 0)
    record = json.loads(json.dumps(score_parts_record(why)))
    assert sum(one["score"] for one in record["by_key"]) + record["rounding"] == pytest.approx(record["score"])
    assert f"q·k · scale = {why.score:.4f}" in score_parts_text(why, names[2], names[0])
    for figure in (
        draw_what_if(found),
        draw_head_effects(heads),
        draw_edge_effects(edges, names, names[2]),
        draw_score_parts(why, names[2], names[0]),
    ):
        assert figure.axes


@pytest.mark.parametrize(
    ("task", "text", "options", "said"),
    [
        ("sentence_embedding", TEXT, {}, "gives vectors and decides nothing"),
        ("masked", TEXT, {}, "the text hides nothing"),
        ("classification", TEXT, {"target": "x"}, "writes no text"),
        ("translation", TEXT, {"target": "x", "max_new_tokens": 2}, "nothing is generated"),
        ("translation", "", {}, "the text is empty"),
        ("language_modelling", TEXT, {"target": ""}, "the target has no tokens"),
    ],
)
def test_what_decides_nothing_says_so(task, text, options, said):
    with pytest.raises(InputError, match=said):
        small_model(task).what_if(text, "encoder.0.self:0", **options)


def test_nothing_is_not_a_change():
    with pytest.raises(InputError, match="nothing is switched off"):
        small_model("translation").what_if(TEXT, [])

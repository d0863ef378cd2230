"""`regard look` with something changed, and why: tables, figures and JSON that say what the model says when asked."""

import json

import pytest

import regard

TEXT, LIKE = "de: 3 mars 2011", "de: 4 mars 2011"


def numbers(call, *options):
    answer = call("look", *options, "--json", "--to", "x.svg", "--force")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_without_a_head_or_an_edge_the_answer_stands_before_and_after(call, model, tmp_path):
    options = (model, TEXT, "--without", "decoder.0.cross:1", "--without", "encoder.0.self:all:2:1")
    answer = call("look", *options, "--ablation", "mean", "--to", "w.svg")
    assert (answer.code, answer.err) == (0, "")
    assert "decoder.0.cross:1, encoder.0.self:all:2:1 (weight" in answer.out
    assert "the mean over the text" in answer.out
    assert "probability" in (tmp_path / "w.svg").read_text(encoding="utf-8")
    record = numbers(call, *options, "--ablation", "mean")
    found = regard.load(model).what_if(TEXT, [options[3], options[5]], ablation="mean")
    assert record["change"] == pytest.approx(found.change)
    assert [one["after"] for one in record["decisions"]] == pytest.approx([one.after for one in found.decisions])
    assert record["answers"] == dict(zip(("before", "after"), found.answers, strict=True))


def test_the_effects_of_heads_and_of_edges(call, model, tmp_path):
    heads = numbers(call, model, TEXT, "--effects", "--target", "3 March")["heads"]
    alone = numbers(call, model, TEXT, "--without", "decoder.1.cross:1", "--target", "3 March")
    [found] = [one for one in heads if (one["layer"], one["head"]) == ("decoder.1.cross", 1)]
    assert found["change"] == pytest.approx(alone["change"], abs=1e-4)
    edges = numbers(call, model, TEXT, "--effects", "--layer", "encoder.0.self", "--row", "1", "--head", "0")
    assert sum(one["weight"] for one in edges["edges"]) == pytest.approx(1, abs=1e-4)
    table = call("look", model, TEXT, "--effects", "--layer", "encoder.0.self", "--row", "1", "--to", "e.png").out
    assert "each edge cut alone" in table
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")


def test_why_lens_patch_and_flow(call, model):
    why = numbers(call, model, TEXT, "--why", "encoder.0.self:1:3:2")
    assert sum(one["score"] for one in why["by_query"]) + why["rounding"] == pytest.approx(why["score"])
    lens = numbers(call, model, TEXT, "--lens")
    assert lens["layers"] == ["embedding", "decoder.0", "decoder.1"]
    assert lens["cells"][-1][0]["rank"] == 1
    flow = numbers(call, model, TEXT, "--flow", "--layer", "decoder.0.cross")
    assert len(flow["raw"]) == len(flow["rows"])
    assert len(flow["raw"][0]) == len(flow["keys"])
    for options, said in (
        (("--why", "encoder.0.self:1:3:2"), "pairs of the largest parts"),
        (("--lens",), "not what the layer knows"),
        (("--flow", "--layer", "decoder.0.cross"), "rollout"),
        (("--effects",), "Without"),
    ):
        answer = call("look", model, TEXT, *options, "--to", "y.png", "--force")
        assert (answer.code, answer.err) == (0, "")
        assert said in answer.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--without", "encoder.9.self:0"), "does not attend in heads"),
        (("--without", "encoder.0.self"), "names no head and no edge"),
        (("--without", "encoder.0.self:0", "--ablation", "half"), "ablation 'half' is unknown"),
        (("--without", "encoder.0.self:0", "--no-renormalise"), "--no-renormalise has no effect"),
        (("--without", "encoder.0.self:0:1:2", "--ablation", "mean"), "--ablation has no effect"),
        (("--without", "encoder.0.self:0", "--lens"), "--lens has no effect with --without"),
        (("--effects", "--layer", "encoder.0.self"), "--layer has no effect on the effects of all heads"),
        (("--effects", "--row", "1"), "--row says no layer"),
        (("--why", "encoder.0.self:1"), "names no score"),
        (("--why", "encoder.0.self:1:99:0"), "no row 99"),
        (("--flow",), "--flow says no layer"),
        (("--patch", "de: 12 septembre 2011"), "have no places in common"),
        (("--ablation", "zero"), "--ablation has no effect with --attention"),
        (("--lens", "--to", "x.html"), "'.html' is not a known format"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call, model, options, said, tmp_path):
    answer = call("look", model, TEXT, *options)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []

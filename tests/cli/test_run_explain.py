"""`regard run --explain` shows what decoding did: in the terminal, as a page, as a picture, as JSON, all the same."""

import json
import math
import re
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

import regard
from regard.decoding.strategies import Beam, Greedy, Sample

DAY = "de: 3 mars 2001"


def test_a_beam_is_told_as_a_tree_whose_scores_add_up(call, model):
    record = json.loads(call("run", model, DAY, "--beams", "3", "--explain", "--json").out)
    branches = {one["number"]: one for one in record["branches"]}
    [found] = regard.load(model).hypotheses([DAY], Beam(3))
    best = record["finished"][0]
    assert best["score"] == pytest.approx(found.score)
    assert best["score"] == pytest.approx(math.fsum(best["log_probabilities"]) / len(best["log_probabilities"]))
    node, ids = best["branch"], []
    while node:
        one = branches[node]
        parent = branches[one["parent"]]["total"] if one["parent"] else 0.0
        assert one["total"] == pytest.approx(parent + one["log_probability"])
        ids.append(one["id"])
        node = one["parent"]
    assert tuple(ids[::-1]) == found.ids
    assert record["device"] == "cpu"


def test_the_terminal_says_who_won_and_why_others_did_not(call, model):
    out = call("run", model, DAY, "--beams", "3", "--explain").out
    best = regard.load(model).run(DAY, strategy=Beam(3))
    first = out.splitlines()[0]
    assert first.startswith(f"{DAY} → ")
    assert out.count("★ wins") >= 1
    assert "✕ pruned: rank" in out
    assert "Pruned at token" in out
    assert "\x1b" not in out
    assert len(best) > 0


def test_a_page_needs_nothing_and_a_picture_is_one(call, model):
    answer = call("run", model, DAY, "--beams", "3", "--explain", "--to", "beam.html")
    assert (answer.code, "beam.html shows how it came about" in answer.out) == (0, True)
    page = Path("beam.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "★ wins" in page
    numbers = json.loads(re.search(r'id="numbers">(.*?)</script>', page, re.DOTALL).group(1))
    assert numbers["finished"]
    assert call("run", model, DAY, "--beams", "3", "--explain", "--to", "beam.svg").code == 0
    picture = Xml.parse("beam.svg").getroot()
    texts = ["".join(one.itertext()) for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any("★ wins" in text for text in texts)
    assert any("The winner is" in text for text in texts)
    assert sum(text.startswith("✕") for text in texts) >= 2
    answer = call("run", model, DAY, "--beams", "3", "--explain", "--to", "beam.svg")
    assert (answer.code, "--force" in answer.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "strategy"),
    [((), Greedy()), (("--top-k", "4", "--temperature", "2", "--seed", "5"), Sample(2.0, top_k=4, seed=5))],
)
def test_every_step_has_its_candidates_before_and_after(call, model, options, strategy):
    record = json.loads(call("run", model, DAY, *options, "--explain", "--json").out)
    [found] = regard.load(model).hypotheses([DAY], strategy)
    assert tuple(step["chosen"] for step in record["steps"]) == found.ids
    assert record["score"] == pytest.approx(found.score)
    assert math.fsum(step["log_probability"] for step in record["steps"]) == pytest.approx(found.score, abs=1e-4)
    for step in record["steps"]:
        assert step["left"][-1] == (4 if options else 300)
        assert all(len(one["probabilities"]) == len(record["stages"]) for one in step["candidates"])
    shown = call("run", model, DAY, *options, "--explain").out
    assert shown.count("▶") == len(found.ids)
    call("run", model, DAY, *options, "--explain", "--to", "steps.html")
    assert Path("steps.html").read_text().count("← chosen") == len(found.ids)


def test_one_goes_on_from_an_alternative(call, model):
    record = json.loads(call("run", model, DAY, "--beams", "3", "--explain", "--json").out)
    loaded = regard.load(model)
    prefix = next(
        one["token"]
        for one in record["branches"]
        if one["step"] == 1 and one["fate"] == "pruned" and one["token"].isascii() and one["token"].isprintable()
    )
    again = json.loads(call("run", model, DAY, "--beams", "3", "--explain", "--json", "--from", prefix).out)
    assert all(one["text"].startswith(prefix) for one in again["finished"])
    assert again["prefix"] == prefix
    assert loaded.explain(DAY, strategy=Beam(3), prefix=prefix).output == again["finished"][0]["text"]


def test_what_a_terminal_or_a_page_would_obey_is_written_out(model):
    found = regard.load(model).explain(DAY, strategy=Beam(3), prefix="\x1b[31m<script>")
    page, text = found._repr_html_(), str(found)
    assert "\x1b" not in page + text
    assert "<script>" not in page
    assert "&lt;script" in page or "&amp;lt;script" in page


def test_a_model_that_writes_no_text_explains_none(call, model):
    answer = call("run", model, "", "--explain")
    assert (answer.code, "the text is empty" in answer.err) == (1, True)

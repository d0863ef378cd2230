"""`regard look`: pictures, pages and numbers of what a model attends to."""

import json
import math
from pathlib import Path

import pytest

TEXT = "de: 3 mars 2011"


def test_a_page_stands_alone_and_holds_every_layer(call, model, tmp_path):
    answer = call("look", model, TEXT, "--to", "page.html")
    assert (answer.code, answer.err) == (0, "")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(page) < 2_000_000
    for layer in ("encoder.0.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"):
        assert layer in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_the_four_steps_are_printed_and_drawn(call, model, tmp_path):
    answer = call(
        "look", model, TEXT, "--steps", "--layer", "decoder.0.cross", "--head", "1", "--row", "-1", "--to", "s.png"
    )
    assert (answer.code, answer.err) == (0, "")
    assert "q·k" in answer.out
    assert "s.png shows the four steps" in answer.out
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_the_four_steps_are_one_object_with_numbers_that_follow_from_each_other(call, model):
    answer = call("look", model, TEXT, "--steps", "--layer", "decoder.1.self", "--row", "2", "--json", "--to", "s.png")
    assert (answer.code, answer.err) == (0, "")
    record = json.loads(answer.out)
    assert (Path(record["file"]).name, len(record["output"])) == ("s.png", 8)
    seen = [key for key in record["keys"] if key["scaled"] is not None]
    assert len(seen) == 3
    for key in seen:
        assert key["scaled"] == pytest.approx(key["score"] * record["scale"])
        total = sum(math.exp(other["scaled"] - key["scaled"]) for other in seen)
        assert key["weight"] == pytest.approx(1 / total, rel=1e-4)
    assert all(key["weight"] == key["exp"] == 0 for key in record["keys"] if key["scaled"] is None)


def test_where_a_word_looks_is_one_object_that_has_what_the_table_has(call, model):
    record = json.loads(call("look", model, TEXT, "--word", "mars", "--json", "--to", "g.png").out)
    assert [look["itself"] for look in record["looks_at"]].count(True) == 1
    assert sum(look["mean"] for look in record["looks_at"]) == pytest.approx(1, abs=1e-5)
    table = call("look", model, TEXT, "--word", "mars", "--to", "g.png").out
    for look in record["looks_at"]:
        assert f"{look['mean']:.3f}" in table
        assert (
            look["itself"]
            or "<" in look["word"]
            or f"{look['most']:.3f} in {look['layer']}, head {look['head']}" in table
        )


def test_pieces_can_be_merged_into_words(call, model, tmp_path):
    for options in ([], ["--words"]):
        answer = call("look", model, TEXT, *options, "--to", f"{len(options)}.svg", "--layer", "encoder.0.self")
        assert (answer.code, answer.err) == (0, "")
    pieces, words = ((tmp_path / f"{count}.svg").read_text(encoding="utf-8") for count in (0, 1))
    assert ">de:<" not in pieces
    assert ">de:<" in words


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--row", "1"], "--row has no effect without --steps"),
        (["--json"], "--json has no effect on a picture alone"),
        (["--steps", "--words"], "--words has no effect with --steps"),
        (["--words", "--to", "x.html"], "words has no effect on a page"),
        (["--head", "0", "--to", "x.html"], "head has no effect on a page"),
        (["--steps", "--to", "x.html"], "'.html' is not a known format"),
        (["--steps", "--row", "99"], "no row 99"),
        (["--steps", "--head", "9"], "no head 9"),
    ],
)
def test_options_that_do_not_go_together_are_refused(call, model, options, problem, tmp_path):
    answer = call("look", model, TEXT, *options)
    assert answer.code == 1
    assert problem in answer.err
    assert "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []

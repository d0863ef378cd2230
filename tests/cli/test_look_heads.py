"""`regard look MODEL --heads`: every head by what it does, as a table, a figure and JSON."""

import json

import pytest

import regard

TEXT = "de: 3 mars 2011"


def test_every_head_is_in_the_table_the_figure_and_the_json(call, model, tmp_path):
    answer = call("look", model, TEXT, "--heads", "--to", "h.svg")
    assert (answer.code, answer.err) == (0, "")
    report = regard.load(model).heads([TEXT])
    assert len(report.heads) == 5 * 2
    for one in report.heads:
        [line] = [line for line in answer.out.splitlines() if line.startswith(f"{one.layer}, head {one.head}")]
        assert one.character in line
        assert f"{one.sink:.2f}" in line
    assert "entropy of its rows" in (tmp_path / "h.svg").read_text(encoding="utf-8")
    record = json.loads(call("look", model, TEXT, "--heads", "--json", "--to", "h.svg", "--force").out)
    assert [one["sink"] for one in record["heads"]] == pytest.approx([one.sink for one in report.heads])
    crossing = [one for one in record["heads"] if one["layer"].endswith("cross")]
    assert len(crossing) == 4
    assert all(one["distance"] is None for one in crossing)


def test_what_was_seen_is_measured_as_the_report_has_it(model):
    loaded = regard.load(model)
    for one in loaded.look(TEXT).heads():
        found = loaded.heads([TEXT]).of(one.layer, one.head)
        assert (one.sink, one.entropy, one.previous) == (found.sink, found.entropy, found.previous)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((TEXT, "--heads", "--head", "1"), "--head has no effect with --heads"),
        ((TEXT, "--heads", "--target", "x"), "--target has no effect with --heads"),
        (("", "--heads"), "the text is empty"),
        ((TEXT, "--heads", "--to", "x.html"), "'.html' is not a known format"),
        (("de: a\x00", "--heads", "--meaning", "a"), "--heads has no effect with --meaning"),
        ((), "there is no text to look at"),
        (("--steps",), "there is no text to look at"),
        (("--meaning", "bank"), "meaning is compared between sentences and there is 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call, model, options, said, tmp_path):
    answer = call("look", model, *options)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert list(tmp_path.iterdir()) == []

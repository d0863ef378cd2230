"""`regard look MODEL SENTENCE SENTENCE --meaning WORD`: tables, a figure, and one sentence on what cannot be."""

import json

import pytest

SENTENCES = ("de: 3 mars 2011", "fr: 17 mars 1999", "it: 5 mars 2003")


def test_a_words_meaning_is_printed_and_drawn(call, model, tmp_path):
    answer = call("look", model, *SENTENCES, "--meaning", "mars", "--to", "m.svg")
    assert (answer.code, answer.err) == (0, "")
    assert "'mars' in 3 sentences" in answer.out
    assert "embedding  1.000  1.000  1.000" in answer.out
    assert "m.svg shows how the layers move 'mars' apart" in answer.out
    assert "1999" in (tmp_path / "m.svg").read_text(encoding="utf-8")


def test_a_words_meaning_is_one_object_whose_parts_make_up_the_change(call, model):
    answer = call("look", model, *SENTENCES, "--meaning", "mars", "--json")
    assert (answer.code, answer.err) == (0, "")
    record = json.loads(answer.out)
    assert (record["word"], record["file"], record["causal"]) == ("mars", "meaning.png", False)
    assert [pair["sentences"] for pair in record["pairs"]] == [[1, 2], [1, 3], [2, 3]]
    assert all(len(pair["cosines"]) == len(record["layers"]) for pair in record["pairs"])
    assert all(pair["cosines"][0] == pytest.approx(1) for pair in record["pairs"])
    for one, sentence in zip(record["sentences"], SENTENCES, strict=True):
        assert one["sentence"] == sentence
        assert "mars" in one["words"][one["itself"]]
        for layer in one["moved"]:
            assert sum(layer["words"]) + layer["bias"] + layer["rest"] == pytest.approx(layer["change"], rel=1e-4)


def test_the_figure_has_a_name_of_its_own(call, model, tmp_path):
    assert call("look", model, *SENTENCES, "--meaning", "mars").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["meaning.png"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([*SENTENCES], "3 texts cannot be looked at together; give one, or name a word with --meaning"),
        ([*SENTENCES, "--meaning", "avril"], "sentence 1, 'de: 3 mars 2011', has no word 'avril'"),
        ([SENTENCES[0], "--meaning", "mars"], "meaning is compared between sentences and there is 1"),
        ([*SENTENCES, "--meaning", "mars", "--head", "0"], "--head has no effect with --meaning"),
        ([*SENTENCES, "--meaning", "mars", "--words"], "--words has no effect with --meaning"),
        ([*SENTENCES, "--meaning", "mars", "--to", "m.html"], "'.html' is not a known format"),
        ([*SENTENCES, "", "--meaning", "mars"], "the text is empty"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_sentence(call, model, arguments, problem, tmp_path):
    answer = call("look", model, *arguments)
    assert answer.code == 1
    assert problem in answer.err
    assert "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []

"""`regard look`: pictures, pages and numbers of what a model attends to."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.inspection.maps import attention_map, special_tokens
from regard.views.look import layer_tops
from regard.views.special import without_special

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
    table = call("look", model, TEXT, "--word", "mars", "--to", "g.png", "--force").out
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


def test_special_tokens_can_be_left_out_and_their_share_is_said(call, model, tmp_path):
    """The other weights are those of the whole picture, and what is missing from 1 is the share."""
    seen = regard.load(model).look(TEXT)
    layer, tokenizer = "encoder.0.self", regard.load(model).tokenizer
    whole = attention_map(seen, layer, tokenizer)
    rows, columns = special_tokens(seen, layer, tokenizer)
    assert [whole.rows[at] for at in np.flatnonzero(rows)] == ["<eos>"]
    kept, share = without_special(whole, rows, columns)
    assert "<eos>" not in (*kept.rows, *kept.columns)
    assert np.array_equal(kept.weights, whole.weights[:, ~rows][:, :, ~columns])
    assert share == pytest.approx(1 - kept.weights.sum(axis=-1).mean(), abs=1e-6)
    options = ("--no-special-tokens", "--layer", layer)
    for ending, more in ((".svg", ()), (".svg", ("--words",)), (".html", ())):
        name = f"{len(more)}{ending}"
        assert call("look", model, TEXT, *options, *more, "--to", name).code == 0
        drawn = (tmp_path / name).read_text(encoding="utf-8")
        assert f"Special tokens are left out: {100 * share:.0f} % of the attention." in " ".join(drawn.split())
        assert "eos" not in drawn.split("<script")[0]


def test_a_page_without_special_tokens_has_the_largest_of_the_others(model):
    seen, tokenizer = regard.load(model).look(TEXT), regard.load(model).tokenizer
    for top in layer_tops(seen, tokenizer, special=False):
        rows, columns = special_tokens(seen, top.name, tokenizer)
        weights = seen.weights(top.name).numpy()[:, ~rows][:, :, ~columns]
        assert top.weight == pytest.approx(np.take_along_axis(weights, top.index, axis=-1), abs=1e-7)
        assert top.weight == pytest.approx(-np.sort(-weights, axis=-1)[..., : top.weight.shape[-1]], abs=1e-7)


def test_a_word_is_looked_at_without_special_tokens_too(call, model, tmp_path):
    assert call("look", model, TEXT, "--word", "mars", "--no-special-tokens", "--to", "w.svg").code == 0
    drawn = " ".join(" ".join(ET.parse(tmp_path / "w.svg").getroot().itertext()).split())
    assert "Special tokens are left out" in drawn
    assert "eos" not in drawn


# A language model reads


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    (folder / "text.txt").write_text("the cup did not fit in the bag because it was too big\n" * 9)
    data = {"train": "text.txt", "valid": "text.txt", "folder": str(folder), "window": 16}
    values = {"task": "language_modelling", "data": data, "tokenizer": {"kind": "characters", "size": 60}}
    values["model"] = {"architecture": "decoder", "width": 8, "heads": 2, "layers": 1, "feedforward_width": 8}
    values |= {"training": {"steps": 1, "batch_tokens": 128}, "decoding": {"max_new_tokens": 300}}
    regard.train(regard.Recipe.model_validate(values), folder / "model")
    return folder / "model"


def test_a_language_model_reads_the_text_and_goes_on_only_when_asked(call, language_model):
    loaded, text = regard.load(language_model), "the cup was big"
    read = loaded.look(text)
    tokens = 1 + len(loaded.tokenizer.encode(text))
    assert read.weights("decoder.0.self", 0).shape == (tokens, tokens)
    longer = loaded.look(text, max_new_tokens=4)
    rows = longer.weights("decoder.0.self", 0)
    assert len(rows) in range(tokens, tokens + 4)
    assert torch.allclose(rows[:tokens, :tokens], read.weights("decoder.0.self", 0), atol=1e-5)
    record = json.loads(call("look", language_model, text, "--word", "cup", "--json", "--to", "w.png").out)
    assert "".join(look["word"] for look in record["looks_at"] if "<" not in look["word"]) == text
    answer = call("look", language_model, text, "--word", "cup", "--generate", "--to", "x.png")
    assert answer.code == 0 or "too many for one picture" in answer.err
    assert len(loaded.look(text, generate=True).weights("decoder.0.self", 0)) > tokens


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", "3. März", "--generate"), "a target is given, so nothing is generated"),
        (("--steps", "--no-special-tokens"), "--no-special-tokens has no effect with --steps"),
        (("--meaning", "mars", "--no-special-tokens"), "--no-special-tokens has no effect with --meaning"),
        (("--meaning", "mars", "--max-new-tokens", "3"), "--max-new-tokens has no effect with --meaning"),
    ],
)
def test_options_of_reading_that_have_no_effect_are_refused(call, model, options, said):
    answer = call("look", model, TEXT, *options)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err

"""What models, recordings and tokenizers say of themselves, in a terminal and in a notebook."""

import html
import re

import pytest
import torch

import regard
from regard.api import notebook
from regard.errors import InputError
from regard.views.look import draw_seen
from small_models import KINDS, small_model


@pytest.mark.parametrize("task", KINDS)
def test_a_model_says_what_it_is(task):
    model = small_model(task)
    size = sum(one.numel() for one in model.module.parameters())
    said = repr(model)
    for word in (task, KINDS[task]["architecture"], f"{size:,} parameters", "width 12, 3 heads", "cpu, float32"):
        assert word in said
    assert f"vocabulary {model.tokenizer.size} (characters)" in said
    assert f">{size:,}</td>" in model._repr_html_()


def test_a_tokenizer_says_its_kind_size_and_special_tokens():
    tokenizer = small_model("masked").tokenizer
    specials = "<pad> <bos> <eos> <unk> <mask>"
    assert repr(tokenizer) == (
        f"<CharacterTokenizer: kind characters, {tokenizer.size} entries, special tokens {specials}>"
    )
    assert "&lt;mask&gt;" in tokenizer._repr_html_()
    assert "<code>c</code>" in tokenizer._repr_html_()


@pytest.fixture
def model() -> regard.Model:
    return small_model("translation")


def test_a_recording_says_what_it_holds(model):
    with regard.watch(model) as seen:
        assert repr(seen) == "<Watched: nothing was seen yet>"
        model.run(["mars", "a cat"])
    rows = [len(seen.weights("decoder.1.cross", 0, batch=batch)) for batch in range(2)]
    assert repr(seen) == (
        f"<Watched: 2 texts, 6 layers (encoder.0.self … decoder.1.cross), 3 heads, {rows[0]}, {rows[1]} rows in "
        "decoder.1.cross>"
    )


def test_a_recording_carries_the_tokens_of_every_text(model):
    texts = ["mars", "a cat"]
    with regard.watch(model) as seen:
        model.run(texts)
    for batch, text in enumerate(texts):
        rows, keys = seen.tokens(batch=batch)
        assert keys == (*text, "<eos>")
        assert (len(rows), len(keys)) == seen.weights("decoder.0.cross", 0, batch=batch).shape
        assert seen.tokens("encoder.1.self", batch) == (keys, keys)
        inside = seen.tokens("decoder.1.self", batch)
        assert inside.rows[0] == "<bos>"
        assert inside.rows[1:] == rows[:-1]
    with pytest.raises(InputError, match="2 sequences were seen; say which"):
        seen.tokens()
    with regard.watch(model.module) as bare:
        model.run("mars")
    with pytest.raises(InputError, match="a bare module's tokens have no names"):
        bare.tokens()


def test_one_sequence_of_several_is_seen_as_if_alone(model):
    with regard.watch(model) as seen:
        model.run(["mars", "a cat"])
    for layer in seen.layers:
        torch.testing.assert_close(seen.only(1).weights(layer), seen.weights(layer, batch=1), atol=0, rtol=0)


def test_a_notebook_shows_the_page_that_look_writes(model, tmp_path):
    seen = model.look("mars")
    draw_seen(seen, model.tokenizer, tmp_path / "look.html")
    framed = re.fullmatch(r'<iframe srcdoc="([^"]*)" .*></iframe>', seen._repr_html_())
    assert html.unescape(framed[1]) == (tmp_path / "look.html").read_text(encoding="utf-8")
    with regard.watch(model) as several:
        model.run(["mars", "a cat"])
    assert several._repr_html_() is None  # its sentence is shown instead
    several.save(tmp_path / "second.html", batch=1)
    assert "a cat" in (tmp_path / "second.html").read_text(encoding="utf-8")


def test_show_takes_a_browser_where_there_is_no_notebook(model, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)) or len(opened) == 1)
    seen = model.look("mars")
    seen.show()
    assert opened[0].startswith("file:///")
    with pytest.raises(InputError, match=r"no browser to show it in; use `seen\.save"):
        seen.show()
    assert not notebook.running()

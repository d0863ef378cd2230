"""The page holds the weights it was given, whatever the tokens spell, in the size it promises, and fetches nothing."""

import base64
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import FileError, InputError
from regard.views.html import (
    AttentionPage,
    LayerTop,
    largest_k,
    largest_weights,
    page_html,
    save_html,
    shown_in_words,
)
from regard.views.look import seen_page
from small_models import small_model

HOSTILE = (
    *(
        "</script>",
        "<script>alert(1)</script>",
        "<!--",
        "-->",
        "]]>",
        '"',
        "'",
        "\\",
        "`${1}`",
        "{{data}}",
        "{{program}}",
    ),
    *(
        "\u2028",
        "\u2029",
        "\x00",
        "\x1b[31m",
        "\ud800",
        "👩‍👩‍👧",
        "مرحبا",
        "\u202eabc",
        "\ufeff",
        "",
        " ",
        "\n",
        "&lt;",
        "<b>",
    ),
)


class Reader(HTMLParser):
    """The page as a browser's parser sees it: every element, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.titles: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data
        if self._inside in ("title", "h1"):
            self.titles.append(data)

    @property
    def data(self):
        (text,) = [text for attributes, text in self.scripts if attributes.get("type") == "application/json"]
        return json.loads(text)


def softmax_rows(*shape: int, seed: int = 3) -> np.ndarray:
    raw = np.exp(np.random.default_rng(seed).normal(0, 2, shape))
    return raw / raw.sum(axis=-1, keepdims=True)


def make_layer(rows=7, columns=11, heads=3, k=5, name="decoder.0.cross") -> LayerTop:
    index, weight = largest_weights(softmax_rows(heads, rows, columns), k)
    return LayerTop(
        name, tuple(f"r{at}" for at in range(rows)), tuple(f"c{at}" for at in range(columns)), index, weight, "cross"
    )


def make_self(tokens: tuple[str, ...], heads=2, k=3, kind="self") -> LayerTop:
    index, weight = largest_weights(softmax_rows(heads, len(tokens), len(tokens)), k)
    return LayerTop("encoder.0.self", tokens, tokens, index, weight, kind)


def long_page(tokens=2000, k=16) -> AttentionPage:
    """2 layers of 4 heads over so many tokens, without ever holding all weights."""
    random = np.random.default_rng(0)
    names = tuple(f" token{at % 97}" for at in range(tokens))
    layers = []
    for layer in range(2):
        index = (np.arange(tokens)[:, None] - np.arange(k)) % tokens
        weight = np.sort(random.dirichlet(np.ones(k), (4, tokens)), axis=-1)[..., ::-1]
        layers.append(LayerTop(f"decoder.{layer}.self", names, names, np.tile(index, (4, 1, 1)), weight, "self"))
    return AttentionPage("long", tuple(layers))


def decoded(record, shape, columns):
    kinds = {"index": "<u2" if columns <= 65536 else "<u4", "weight": "<u2"}
    return [np.frombuffer(base64.b64decode(record[name]), kind).reshape(shape) for name, kind in kinds.items()]


# What the file holds


def test_the_weights_come_back_from_the_file_to_half_a_step_of_rounding():
    layers = (make_layer(), make_self(("a", "b", "c", "d", "e"), heads=5))
    data = Reader(page_html(AttentionPage("t", layers))).data
    assert [record["name"] for record in data["layers"]] == [layer.name for layer in layers]
    for record, layer in zip(data["layers"], layers, strict=True):
        index, weight = decoded(record, layer.index.shape, len(layer.columns))
        np.testing.assert_array_equal(index, layer.index)
        np.testing.assert_allclose(weight / 65535, layer.weight, atol=0.501 / 65535, rtol=0)
        assert tuple(data["tokens"][record["rows"]]) == layer.rows
        assert tuple(data["tokens"][record["columns"]]) == layer.columns
        assert (record["kind"], record["heads"], record["k"]) == (layer.kind, layer.heads, layer.largest)


def test_columns_beyond_two_bytes_take_four():
    columns = tuple("c" for _ in range(65537))
    layer = LayerTop(
        "x", ("r",), columns, np.array([[[65536, 3]]]), np.array([[[0.75, 0.25]]], dtype=np.float16), "cross"
    )
    (record,) = Reader(page_html(AttentionPage("t", (layer,)))).data["layers"]
    index, weight = decoded(record, (1, 1, 2), 65537)
    assert index.tolist() == [[[65536, 3]]]
    np.testing.assert_allclose(weight / 65535, [[[0.75, 0.25]]], atol=1e-5)


@given(st.lists(st.text(max_size=7), min_size=1, max_size=7), st.text(max_size=13))
def test_any_tokens_and_any_title_come_back_whole_and_add_no_element(tokens, title):
    plain = Reader(page_html(AttentionPage("t", (make_self(("a",)),))))
    page = Reader(page_html(AttentionPage(title, (make_self(tuple(tokens)),), note=title)))
    assert page.data["tokens"] == [tokens]
    assert page.elements == plain.elements


def test_hostile_tokens_cannot_leave_the_data():
    plain = Reader(page_html(AttentionPage("t", (make_self(("a",)),))))
    text = page_html(AttentionPage("</title><script>x", (make_self(HOSTILE),), note="</p><script>y"))
    page = Reader(text)
    assert tuple(page.data["tokens"][0]) == HOSTILE
    assert page.elements == plain.elements
    assert page.titles == ["</title><script>x"] * 2
    assert text.encode("utf-8").decode("utf-8") == text  # a lone surrogate would not encode
    (data,) = [script for attributes, script in page.scripts if attributes.get("type") == "application/json"]
    assert "<" not in data
    assert data.isascii()


def test_tokens_that_layers_share_are_stored_once():
    first, second = make_self(("a", "b", "c")), make_self(("a", "b", "c"), heads=1)
    assert Reader(page_html(AttentionPage("t", (first, second)))).data["tokens"] == [["a", "b", "c"]]


def test_a_page_opens_with_the_layer_named_else_the_first_that_crosses():
    layers = (make_self(("a", "b")), make_layer(), make_layer(name="decoder.1.cross"))
    assert Reader(page_html(AttentionPage("t", layers))).data["first"] == 1
    assert Reader(page_html(AttentionPage("t", layers[:1]))).data["first"] == 0
    assert Reader(page_html(AttentionPage("t", layers, opens_with="decoder.1.cross"))).data["first"] == 2
    with pytest.raises(InputError, match=r"'decoder\.7\.cross'.*use one of: encoder\.0\.self"):
        AttentionPage("t", layers, opens_with="decoder.7.cross")


# How much it shows, and how large it is


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_the_page_says_which_part_of_the_attention_it_shows(k):
    weights = softmax_rows(3, 7, 11)
    layer = make_layer(k=k)
    shares = [sorted(row, reverse=True)[:k] for head in weights for row in head]
    share = 100 * sum(map(sum, shares)) / len(shares)
    said = re.search(r"on average ([\d.]+) %", shown_in_words(layer))
    assert said is not None
    assert float(said.group(1)) == pytest.approx(share, abs=0.501)
    assert (f"the {k} largest weights" if k > 1 else "the largest weight") in shown_in_words(layer)
    assert Reader(page_html(AttentionPage("t", (layer,)))).data["layers"][0]["shown"] == shown_in_words(layer)


def test_a_page_with_every_weight_says_so_and_a_row_that_sees_nothing_does_not_count():
    assert shown_in_words(make_layer(k=11)) == "Every weight is shown."
    weight = np.array([[[0.5, 0.3], [0.0, 0.0]]])
    layer = LayerTop("x", ("a", "b"), ("c", "d", "e"), np.array([[[0, 1], [0, 1]]]), weight, "cross")
    assert "on average 80 %" in shown_in_words(layer)


def test_two_thousand_tokens_are_under_two_megabytes():
    assert len(page_html(long_page()).encode("utf-8")) < 2_000_000


@pytest.mark.parametrize(("tokens", "most"), [(128, 2_000_000), (512, 10_000_000)])
def test_twelve_layers_of_twelve_heads_of_a_model_fit_and_the_share_is_said(tokens, most):
    torch.manual_seed(7)
    model = small_model("language_modelling", layers=12, heads=12, width=48, max_positions=tokens)
    seen = model.look("cat " * (tokens // 4 - 1) + "cat")
    page = seen_page(seen, model.tokenizer)
    assert len(page.encode("utf-8")) < most
    layers = Reader(page).data["layers"]
    assert len(layers) == 12
    for layer in layers[::11]:
        largest = seen.weights(layer["name"]).sort(dim=-1, descending=True).values[..., : layer["k"]]
        share = re.search(r"on average ([\d.]+) %", layer["shown"])
        assert share is not None
        assert float(share.group(1)) == pytest.approx(100 * float(largest.sum(dim=-1).mean()), abs=0.501)


@pytest.mark.parametrize("budget", [900_000, 1_800_000, 3_000_000])
def test_as_many_weights_as_fit_do_fit_and_leave_little_room(budget):
    k = largest_k(2, 4, 2000, budget)
    size = len(page_html(long_page(k=k)).encode("utf-8"))
    assert size <= budget
    assert size + 2 * 4 * 2000 * 4 * 4 / 3 > 0.95 * budget


def test_what_cannot_fit_is_refused_with_the_size_it_takes():
    with pytest.raises(
        InputError, match=r"32 layers of 32 heads and 2000 rows take 11,0\d\d,\d{3} bytes,.* fewer layers"
    ):
        largest_k(32, 32, 2000)


@given(st.integers(1, 9), st.integers(0, 5))
def test_the_largest_weights_are_those_that_sorting_finds(k, seed):
    weights = softmax_rows(2, 3, 7, seed=seed)
    index, weight = largest_weights(weights, k)
    np.testing.assert_array_equal(weight, -np.sort(-weights, axis=-1)[..., :k])
    np.testing.assert_array_equal(np.take_along_axis(weights, index, axis=-1), weight)


# Nothing is fetched


def test_nothing_in_the_page_is_fetched():
    page = Reader(page_html(AttentionPage("t", (make_layer(),))))
    links = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("href", "src", "action")
    ]
    assert [link.split(",")[0] for link in links] == ["data:image/svg+xml"]
    assert [attributes["rel"] for tag, attributes in page.elements if tag == "link"] == [
        "icon"
    ]  # else one is looked for
    policies = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"]
    for asset in files("regard.views").joinpath("assets").iterdir():
        if asset.is_dir():  # the explorer's, which is served
            continue
        text = asset.read_text(encoding="utf-8").replace("xmlns='http://www.w3.org/2000/svg'", "")
        assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(|innerHTML|eval\(", text), (
            asset.name
        )


# Files


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    page = AttentionPage("t", (make_layer(),))
    path = tmp_path / "new" / "page.HTM"
    save_html(page, path)
    assert path.read_text(encoding="utf-8") == page_html(page)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match="No space left"):
        save_html(AttentionPage("other", (make_layer(),)), path)
    assert path.read_text(encoding="utf-8") == page_html(page)
    assert [file.name for file in path.parent.iterdir()] == ["page.HTM"]


def test_a_name_that_is_no_page_is_refused(tmp_path):
    page = AttentionPage("t", (make_layer(),))
    with pytest.raises(InputError, match=r"picture\.png .*; end the name in one of: \.html, \.htm"):
        save_html(page, tmp_path / "picture.png")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(FileError, match="it is a folder"):
        save_html(page, tmp_path / "folder.html")


# Records that cannot be shown


def changed(rows=("a", "b"), columns=("c", "d", "e"), index=None, weight=None, kind="cross"):
    index = np.array([[[0, 1], [2, 1]]]) if index is None else np.asarray(index)
    weight = np.array([[[0.75, 0.25], [0.5, 0.25]]]) if weight is None else np.asarray(weight)
    return LayerTop("layer", rows, columns, index, weight, kind)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "crossed"}, "kind 'crossed' is unknown; use one of: self, masked self, cross"),
        ({"kind": "self"}, "2 rows and 3 columns of 'self' attention differ"),
        ({"rows": ("a",)}, r"for 1 rows; pass both as \[heads, rows, k\]"),
        ({"index": [[[0, 1]]]}, r"index \[1, 1, 2\] and weight \[1, 2, 2\]"),
        ({"columns": ("c",)}, "2 weights a row are more than its 1 columns"),
        ({"index": [[[0, 3], [2, 1]]]}, "from 0 to 3; pass whole numbers from 0 to 2"),
        ({"index": [[[0, -1], [2, 1]]]}, "from -1 to 2"),
        ({"index": [[[0.0, 1.0], [2.0, 1.0]]]}, "float64"),
        ({"index": [[[0, 0], [2, 1]]]}, "the same column twice"),
        ({"weight": [[[0.25, 0.75], [0.5, 0.25]]]}, "the weights of a row rise"),
        ({"weight": [[[1.25, 0.25], [0.5, 0.25]]]}, "from 0.25 to 1.25 are not between 0 and 1"),
        ({"weight": [[[0.75, -0.25], [0.5, 0.25]]]}, "not between 0 and 1"),
        ({"weight": [[[0.75, np.nan], [0.5, 0.25]]]}, "not between 0 and 1"),
        ({"columns": ("a", "b"), "index": [[[0, 1], [0, 1]]], "kind": "masked self"}, "looks at a later token"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_layer_that_contradicts_itself_is_refused(change, sentence):
    changed()
    with pytest.raises(InputError, match=sentence):
        changed(**change)


def test_a_page_without_layers_is_refused():
    with pytest.raises(InputError, match="pass at least one layer"):
        AttentionPage("t", ())

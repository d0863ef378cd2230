"""The pictures show the weights they were given, every token is named, and a file is complete or absent."""

import io
import logging
import os
import subprocess
import sys
import unicodedata
import warnings
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from regard.errors import FileError, InputError
from regard.views.attention import (
    COLOURS,
    AttentionMap,
    draw_alignment,
    draw_alignment_with_heads,
    draw_heads,
    label,
    save_figure,
)

SOURCE = ("de:", " 3", " mars", " 20", "21")
TARGET = ("3", ".", " März", " 20", "21", "<eos>", "\n")
DRAWINGS = (draw_alignment, draw_heads, draw_alignment_with_heads)


def rows_that_sum_to_one(*shape: int) -> np.ndarray:
    raw = np.random.default_rng(0).random(shape) ** 4
    return raw / raw.sum(axis=-1, keepdims=True)


def make_map(heads: int = 3, rows: tuple[str, ...] = TARGET, columns: tuple[str, ...] = SOURCE) -> AttentionMap:
    return AttentionMap(rows_that_sum_to_one(heads, len(rows), len(columns)), rows, columns, "decoder.2.cross")


def maps_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.images]


def shown(axes: Axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def texts(labels: list) -> list[str]:
    return [text.get_text() for text in labels]


# What is drawn


def test_every_head_is_drawn_as_it_is_on_one_scale_from_zero_to_one():
    map = make_map(heads=5)
    panels = maps_of(draw_heads(map))
    assert [axes.get_title() for axes in panels] == [f"head {head}" for head in range(5)]
    for axes, weights in zip(panels, map.weights, strict=True):
        np.testing.assert_array_equal(shown(axes), weights)
        assert axes.images[0].get_clim() == (0.0, 1.0)


def test_an_alignment_is_the_mean_over_heads():
    map = make_map(heads=3)
    (axes,) = maps_of(draw_alignment(map))
    by_hand = (map.weights[0] + map.weights[1] + map.weights[2]) / 3
    np.testing.assert_allclose(shown(axes), by_hand, rtol=1e-12)
    assert axes.images[0].get_clim() == (0.0, pytest.approx(by_hand.max()))


def test_an_alignment_with_heads_is_the_mean_and_then_each_head():
    map = make_map(heads=3)
    large, *small = maps_of(draw_alignment_with_heads(map))
    np.testing.assert_allclose(shown(large), map.weights.mean(axis=0), rtol=1e-12)
    for axes, weights in zip(small, map.weights, strict=True):
        np.testing.assert_array_equal(shown(axes), weights)


def test_a_single_head_is_not_drawn_twice():
    assert len(maps_of(draw_alignment_with_heads(make_map(heads=1)))) == 1


def test_sources_run_across_the_top_and_generated_words_down_the_side():
    (axes,) = maps_of(draw_alignment(make_map()))
    assert texts(axes.get_xticklabels()) == ["de:", "␣3", "␣mars", "␣20", "21"]
    assert texts(axes.get_yticklabels()) == ["3", ".", "␣März", "␣20", "21", "<eos>", "⏎"]
    axes.figure.draw_without_rendering()
    map_box = axes.get_window_extent()
    assert all(text.get_window_extent().y0 >= map_box.y1 for text in axes.get_xticklabels())
    assert all(text.get_window_extent().x1 <= map_box.x0 for text in axes.get_yticklabels())
    heights = [text.get_window_extent().y0 for text in axes.get_yticklabels()]
    assert heights == sorted(heights, reverse=True)


def test_the_outer_panels_name_the_tokens():
    panels = maps_of(draw_heads(make_map(heads=4)))
    boxes = [axes.get_position() for axes in panels]
    for axes, box in zip(panels, boxes, strict=True):
        leftmost = all(box.x0 <= other.x0 + 1e-9 for other in boxes)
        topmost = all(box.y1 >= other.y1 - 1e-9 for other in boxes)
        assert len(axes.get_yticklabels()) == (len(TARGET) if leftmost else 0)
        assert len(axes.get_xticklabels()) == (len(SOURCE) if topmost else 0)


def test_weights_of_a_twentieth_and_more_are_printed_in_their_cells():
    weights = np.array([[[0.90, 0.06, 0.04], [0.30, 0.651, 0.049]]])
    (axes,) = maps_of(draw_alignment(AttentionMap(weights, ("a", "b"), ("c", "d", "e"), "")))
    printed = {text.get_position(): text.get_text() for text in axes.texts}
    assert printed == {(0, 0): "0.90", (1, 0): "0.06", (0, 1): "0.30", (1, 1): "0.65"}


def luminance(colour: object) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_printed_number_has_the_contrast_that_accessibility_asks_for():
    """WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    weights = np.linspace(0.05, 1.0, 96).reshape(1, 8, 12)
    names = tuple("abcdefghijkl")
    (axes,) = maps_of(draw_alignment(AttentionMap(weights, names[:8], names, "")))
    assert len(axes.texts) == 96
    for text in axes.texts:
        column, row = text.get_position()
        levels = sorted((luminance(COLOURS(weights[0, row, column])), luminance(text.get_color())))
        assert (levels[1] + 0.05) / (levels[0] + 0.05) >= 4.5


def test_a_larger_weight_is_always_darker():
    levels = [luminance(COLOURS(weight)) for weight in np.linspace(0, 1, 101)]
    assert all(later < earlier for earlier, later in pairwise(levels))


def test_a_long_map_has_fewer_names_each_at_its_own_position_and_no_numbers():
    tokens = tuple(f"t{index}" for index in range(307))
    (axes,) = maps_of(draw_alignment(make_map(2, tokens, tokens)))
    assert not axes.texts
    for positions, names in (
        (axes.get_xticks(), texts(axes.get_xticklabels())),
        (axes.get_yticks(), texts(axes.get_yticklabels())),
    ):
        assert 10 < len(names) < 100
        for position, name in zip(positions, names, strict=True):
            assert set(name.split()) == {str(int(position)), f"t{int(position)}"}


@pytest.mark.parametrize("size", [(5, 7), (41, 43), (307, 311), (2, 151), (151, 2)])
@pytest.mark.parametrize("draw", DRAWINGS)
def test_names_never_touch_each_other_and_nothing_leaves_the_page(draw, size):
    rows, columns = ([f"word{index}" for index in range(count)] for count in size)
    figure = draw(make_map(3, tuple(rows), tuple(columns)))
    figure.draw_without_rendering()
    page, drawing = figure.bbox, figure.get_tightbbox()
    assert drawing.x0 >= 0
    assert drawing.y0 >= 0
    assert drawing.x1 * figure.dpi <= page.x1
    assert drawing.y1 * figure.dpi <= page.y1
    for axes in maps_of(figure):
        boxes = [text.get_window_extent() for text in axes.get_yticklabels()]
        assert not any(first.overlaps(second) for first, second in pairwise(boxes))
        names = [text for text in axes.get_xticklabels() if text.get_rotation() in (0, 90)]
        boxes = [text.get_window_extent() for text in names]  # a slanted text's box says nothing
        assert not any(first.overlaps(second) for first, second in pairwise(boxes))


@pytest.mark.parametrize(("lowest", "highest", "extend"), [(0, 1, "neither"), (-0.2, 1, "min"), (0, 1.5, "max")])
def test_weights_beyond_the_scale_are_announced_on_the_colour_bar(lowest, highest, extend):
    weights = np.array([[[lowest, highest]]], dtype=np.float64)
    figure = draw_alignment(AttentionMap(weights, ("a",), ("b", "c"), ""))
    (bar,) = [axes for axes in figure.axes if not axes.images or hasattr(axes, "_colorbar")]
    assert bar._colorbar.extend == extend


# How a token is written


@pytest.mark.parametrize(
    ("token", "written"),
    [
        ("mars", "mars"),
        (" mars", "␣mars"),
        (" ", "␣"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("", "∅"),
        ("\u00a0", "⍽"),
        ("\u0301", "◌\u0301"),
        ("\x1b", "\\x1b"),
        ("\u200b", "\\u200b"),
        ("\ud800", "\\ud800"),
        ("日本", "日本"),
    ],
)
def test_blanks_and_control_characters_become_visible(token, written):
    assert label(token) == written


def test_no_character_at_all_gives_an_empty_or_invisible_label():
    for code in (*range(0x20000), 0xE0001, sys.maxunicode):
        text = label(chr(code))
        assert text
        assert all(unicodedata.category(character)[0] not in "CZ" for character in text)


def test_a_very_long_token_is_shortened():
    assert len(label("a" * 500)) <= 24
    assert label("a" * 500).endswith("…")


ODD = ("$x_1$", "$", "日本語", "😀", "\x00", "\ud800", "\\frac", "", "<&>", "ก")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("draw", DRAWINGS)
def test_any_token_can_be_drawn_without_a_warning(draw, suffix, tmp_path, caplog):
    weights = rows_that_sum_to_one(3, len(ODD), len(ODD))
    map = AttentionMap(weights, ODD, ODD, "$\\frac{1}$ 日本 \x00\ud800", "\x1f", "$")
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        save_figure(draw(map), tmp_path / f"odd{suffix}")
    assert not caplog.records
    assert (tmp_path / f"odd{suffix}").stat().st_size > 1000


# What is refused


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "both"),
    [
        ((3, 5, 7), 6, 7, ("5 rows", "6")),
        ((3, 5, 7), 5, 11, ("7 columns", "11")),
        ((3, 7, 5), 5, 7, ("7 rows", "5")),
        ((5, 7), 5, 7, ("[5, 7]", "[heads, rows, columns]")),
        ((0, 5, 7), 5, 7, ("[0, 5, 7]", "[heads, rows, columns]")),
    ],
)
def test_weights_that_do_not_fit_their_labels_are_refused_with_both_values(shape, rows, columns, both):
    with pytest.raises(InputError) as refusal:
        AttentionMap(np.zeros(shape), ("a",) * rows, ("b",) * columns, "")
    assert all(value in refusal.value.problem for value in both)


def test_weights_that_are_no_numbers_are_refused_with_their_count():
    weights = rows_that_sum_to_one(2, 3, 5)
    weights[1, 2] = np.nan
    with pytest.raises(InputError, match="5 of 30"):
        AttentionMap(weights, ("a",) * 3, ("b",) * 5, "")


@pytest.mark.parametrize("name", ["map.gif", "map", "map.png.tmp"])
def test_an_unknown_format_is_refused_with_those_known(name, tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.svg"):
        save_figure(draw_alignment(make_map()), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_path_where_no_file_can_be_is_refused_with_a_remedy(tmp_path):
    figure = draw_alignment(make_map(heads=1, rows=("a",), columns=("b",)))
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder.png").mkdir()
    places = ["file/map.png", "file/deeper/map.svg", "folder.png", f"{'x' * 300}.png"]
    for place in places:
        with pytest.raises(FileError) as refusal:
            save_figure(figure, tmp_path / place)
        assert refusal.value.remedy
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.png"]
    assert (tmp_path / "file").read_text() == "kept"


# The file


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_png_decodes_to_a_picture_of_many_shades_with_a_white_edge(draw, tmp_path):
    save_figure(draw(make_map()), tmp_path / "map.png")
    picture = matplotlib.image.imread(tmp_path / "map.png")
    assert min(picture.shape[:2]) > 400
    assert len(np.unique(picture[..., 0])) > 20
    for edge in (picture[0], picture[-1], picture[:, 0], picture[:, -1]):
        np.testing.assert_array_equal(edge, np.ones_like(edge))


def test_a_pixel_of_the_png_has_the_colour_of_its_weight(tmp_path):
    map = make_map(heads=1)
    figure = draw_heads(map)
    save_figure(figure, tmp_path / "map.png")
    picture = matplotlib.image.imread(tmp_path / "map.png")
    box = maps_of(figure)[0].get_position()
    for (row, column), weight in np.ndenumerate(map.weights[0]):
        x = box.x0 + box.width * (column + 0.5) / len(SOURCE)
        y = 1 - box.y1 + box.height * (row + 0.5) / len(TARGET)
        pixel = picture[int(y * picture.shape[0]), int(x * picture.shape[1]), :3]
        np.testing.assert_allclose(pixel, COLOURS(weight)[:3], atol=1.5 / 255)


def test_an_svg_is_xml_with_every_label_as_text(tmp_path):
    save_figure(draw_alignment(make_map(), note="what was read, and when"), tmp_path / "map.svg")
    root = ElementTree.parse(tmp_path / "map.svg").getroot()
    words = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    expected = [label(token) for token in SOURCE + TARGET] + ["decoder.2.cross", "mean of 3 heads"]
    assert set(expected) <= set(words)
    assert "what was read, and when" in words


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("draw", DRAWINGS)
def test_the_same_map_gives_the_same_bytes_whatever_the_users_settings(draw, suffix, tmp_path):
    figure = draw(make_map())
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "again", "anew")]
    save_figure(figure, paths[0])
    save_figure(figure, paths[1])
    with rc_context({"font.size": 31, "savefig.dpi": 17, "axes.facecolor": "red", "svg.fonttype": "path"}):
        save_figure(draw(make_map()), paths[2])
    first, again, anew = (path.read_bytes() for path in paths)
    assert first == again
    assert first == anew


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(failing, tmp_path, monkeypatch):
    path = tmp_path / "map.svg"
    path.write_text("the old picture")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(FileError, match="No space left on device"):
        save_figure(draw_alignment(make_map()), path)
    assert path.read_text() == "the old picture"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_picture_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "MAP.PNG"
    path.write_text("the old picture")
    save_figure(draw_alignment(make_map()), path)
    assert matplotlib.image.imread(io.BytesIO(path.read_bytes()), format="png").ndim == 3
    assert list(tmp_path.iterdir()) == [path]


def test_drawing_needs_neither_pyplot_nor_torch_and_changes_no_setting(tmp_path: Path):
    program = f"""
import sys, matplotlib, numpy
settings = lambda: {{name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}}
before = settings()
from pathlib import Path
from regard.views import AttentionMap, draw_alignment_with_heads, save_figure
map = AttentionMap(numpy.full((2, 3, 5), 0.2), tuple("abc"), tuple("defgh"), "t")
save_figure(draw_alignment_with_heads(map), Path({str(tmp_path / "map.png")!r}))
assert settings() == before
assert not {{"matplotlib.pyplot"}} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# Attention that is spread out


def test_where_no_weight_reaches_a_half_the_scale_ends_at_the_largest_and_says_so():
    weights = np.full((2, 4, 4), 0.02)
    weights[1, 0, 2] = 0.08
    names = tuple("abcd")
    heads = draw_heads(AttentionMap(weights, names, names, "spread out"))
    assert {image.norm.vmax for axes in heads.axes for image in axes.images} == {0.08}
    assert "(scale ends at the largest, 0.08)" in heads.axes[-1].get_ylabel()
    mean = draw_alignment_with_heads(AttentionMap(weights, names, names, "spread out"))
    large, *small = [image.norm.vmax for axes in mean.axes for image in axes.images]
    assert large == pytest.approx(0.05)
    assert small == [0.08, 0.08]
    assert any("its darkest cell 0.05; the scale at the right is the heads'" in text.get_text() for text in mean.texts)
    printed = [text.get_text() for text in mean.axes[0].texts]
    assert printed.count("0.050") == 1
    assert printed.count("0.020") == 15

"""Letters that a picture's own font lacks: other fonts of the machine draw them, else their code points stand there."""

import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager

from regard.inspection.maps import AttentionMap
from regard.views import fonts
from regard.views.attention import draw_alignment
from regard.views.figure import draw_to
from regard.views.fonts import OWN, MissingGlyphs, fonts_for

CHINESE = "我喜歡"
UNASSIGNED_SCRIPT = "\U00016f00"  # Miao, which few machines can draw


def drawing(*tokens: str):
    map = AttentionMap(np.full((1, len(tokens), len(tokens)), 1 / len(tokens)), tokens, tokens, "encoder.0.self")
    return lambda: draw_alignment(map)


def draws_chinese(path: str) -> bool:
    return all(font_manager.get_font(path).get_char_index(ord(one)) for one in CHINESE)


@pytest.fixture
def _no_other_font(monkeypatch):
    monkeypatch.setattr(fonts, "_candidates", lambda: iter(()))


def test_the_usual_letters_need_no_other_font():
    assert fonts_for("abcäß→␣⏎⟨⟩") == ((OWN,), frozenset())


def test_a_font_is_named_only_if_it_has_a_letter_and_what_none_has_is_told(monkeypatch):
    symbols = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXNonUni.ttf")
    private = next(chr(code) for code in font_manager.get_font(symbols).get_charmap() if 0xE000 <= code < 0xF000)
    own = font_manager.findfont("DejaVu Sans Mono")
    monkeypatch.setattr(fonts, "_candidates", lambda: iter([("DejaVu Sans Mono", own), ("STIXNonUnicode", symbols)]))
    lacking = not font_manager.get_font(font_manager.findfont(OWN)).get_char_index(ord(private))
    assert lacking
    assert fonts_for(["a", private, UNASSIGNED_SCRIPT]) == ((OWN, "STIXNonUnicode"), frozenset(UNASSIGNED_SCRIPT))


@pytest.mark.usefixtures("_no_other_font")
@pytest.mark.parametrize("ending", [".png", ".pdf"])
def test_what_no_font_has_is_a_code_point_and_said_once(tmp_path, ending):
    with pytest.warns(MissingGlyphs, match="no font on this machine has 喜 我 歡, drawn as code points") as said:
        draw_to(tmp_path / f"a{ending}", drawing(*CHINESE))
    assert len(said) == 1
    plain = tmp_path / f"b{ending}"
    draw_to(plain, drawing(*(f"⟨U+{ord(one):04X}⟩" for one in CHINESE)))
    assert (tmp_path / f"a{ending}").read_bytes() == plain.read_bytes()


@pytest.mark.usefixtures("_no_other_font")
def test_an_svg_keeps_its_text(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_to(tmp_path / "a.svg", drawing(*CHINESE))
    assert set(CHINESE) <= set("".join(ET.parse(tmp_path / "a.svg").getroot().itertext()))


@pytest.mark.skipif(fonts_for(CHINESE)[1] != frozenset(), reason="no font for Chinese is installed")
@pytest.mark.parametrize("ending", [".png", ".pdf"])
def test_chinese_is_drawn_by_a_font_of_the_system_even_one_that_is_new(tmp_path, ending, monkeypatch):
    """The list that matplotlib keeps may be older than the font."""
    entries = [entry for entry in font_manager.fontManager.ttflist if not draws_chinese(entry.fname)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_to(tmp_path / f"a{ending}", drawing(*CHINESE))
        draw_to(tmp_path / f"b{ending}", drawing("喜", "喜", "喜"))
    families, absent = fonts_for(CHINESE)
    assert (len(families), absent) == (2, frozenset())
    assert (tmp_path / f"a{ending}").read_bytes() != (tmp_path / f"b{ending}").read_bytes()

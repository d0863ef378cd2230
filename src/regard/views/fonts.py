"""Fonts for what a picture's own font lacks: found on this machine, Chinese, Japanese and Korean first.

A font that was installed after matplotlib made its list is found too. What no font has is told, once.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress

from matplotlib import font_manager

from regard.errors import RegardWarning

OWN = "DejaVu Sans"  # comes with matplotlib
PREFERRED = (
    *("Noto Sans CJK", "Source Han Sans", "Noto Sans SC", "Noto Sans JP", "WenQuanYi", "PingFang", "Hiragino"),
    *("Microsoft YaHei", "SimHei", "Yu Gothic", "MS Gothic", "Malgun Gothic", "Arial Unicode", "Noto Sans", "Unifont"),
)
UNUSABLE = ("Last Resort", "Emoji", ".LastResort")  # boxes for everything, and pictures instead of outlines


class MissingGlyphs(RegardWarning):
    """No font of this machine has some characters of a picture."""


def fonts_for(characters: Collection[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The families, best first, that together draw these characters, and those that none of them has."""
    absent = {one for one in characters if not _has(font_manager.findfont(OWN), one)}
    families = [OWN]
    for family, path in _candidates() if absent else ():
        drawn = {one for one in absent if _has(path, one)}
        if drawn:
            families.append(family)
            absent -= drawn
        if not absent:
            break
    return tuple(families), frozenset(absent)


def _candidates() -> Iterator[tuple[str, str]]:
    """Every other font once, with its file: those that are preferred, the rest by name."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in sorted({*font_manager.findSystemFonts()} - known):
        with suppress(Exception):  # a file that is no font after all
            font_manager.fontManager.addfont(path)
    found: dict[str, str] = {}
    for entry in sorted(
        font_manager.fontManager.ttflist, key=lambda entry: (abs(_weight(entry.weight) - 400), entry.fname)
    ):
        found.setdefault(entry.name, entry.fname)
    usable = [name for name in found if name != OWN and not any(part in name for part in UNUSABLE)]
    ranks = {name: at for at, part in enumerate(PREFERRED) for name in usable if name.startswith(part)}
    for name in sorted(usable, key=lambda name: (ranks.get(name, len(PREFERRED)), name)):
        yield name, found[name]


def _weight(weight: int | str) -> int:
    return weight if isinstance(weight, int) else font_manager.weight_dict.get(weight, 400)


def _has(path: str, character: str) -> bool:
    try:
        return bool(font_manager.get_font(path).get_char_index(ord(character)))
    except (OSError, RuntimeError):  # a font that cannot be opened draws nothing
        return False

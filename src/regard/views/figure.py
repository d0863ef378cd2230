"""The page a figure is drawn on: its style, the words around it, how a token reads, the file it becomes.

Figures are matplotlib objects made without pyplot: no display, no state but their own. Everything is placed
in inches on a page of one inch by one; `frame` then measures the drawing and cuts the page to fit. What DejaVu Sans
lacks `draw_to` takes from other fonts of the machine; what none has is drawn as its code point, but for an SVG, whose
text stays text.
"""

import io
import os.path
import textwrap
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.style
from matplotlib.figure import Figure

from regard.errors import FileError, InputError
from regard.files import writing
from regard.views.fonts import OWN, MissingGlyphs, fonts_for

FORMATS = (".png", ".svg", ".pdf")
LONGEST_LABEL = 24
TEXT, QUIET, LINE = "#1f2430", "#667085", "#d5d9e2"
VISIBLE = {" ": "␣", "\u00a0": "⍽", "\u202f": "⍽", "\n": "⏎", "\r": "⏎", "\t": "⇥"}

_STYLE = {
    "text.parse_math": False,  # a `$` in a token is a dollar
    "text.color": TEXT,
    "axes.edgecolor": LINE,
    "svg.fonttype": "none",  # text stays text: it can be searched, and the reader's own fonts fill the gaps
    "svg.hashsalt": "regard",
    "pdf.fonttype": 3,  # outlines: any font can be embedded
}
_NO_PDF_DATES = {"CreationDate": None, "Creator": None, "Producer": None}
_STYLE_LOCK = threading.RLock()  # matplotlib's settings and Python's warning filters are the whole process's


@dataclass(frozen=True)
class _Glyphs:
    """How characters are drawn: by these families; as code points where none has them. `seen` collects all."""

    families: tuple[str, ...] = (OWN,)
    absent: frozenset[str] = frozenset()
    seen: set[str] = field(default_factory=set)


_USUAL = _Glyphs()
_GLYPHS: ContextVar[_Glyphs] = ContextVar("glyphs")


def label(token: str) -> str:
    """A token as readers can see it: blanks and control characters get a mark, and nothing is left empty.

    >>> label(" mars"), label("\\n"), label(""), label("\\x1b")
    ('␣mars', '⏎', '∅', '\\\\x1b')
    """
    text = "".join(_visible(character) for character in token)
    if not text:
        return "∅"
    if unicodedata.category(text[0]) in ("Mn", "Me"):  # an accent needs something to sit on
        text = "◌" + text
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def printable(text: str) -> str:
    """Running text with its blanks as they are and a mark for what would print nothing or break a file."""
    return "".join(character if character in " \n\t" else _visible(character) for character in text)


def _visible(character: str) -> str:
    """The character, or a mark for one that prints nothing."""
    if character in VISIBLE:
        return VISIBLE[character]
    category = unicodedata.category(character)
    if category == "Zs":
        return "␣"
    if category[0] not in "CZ":
        glyphs = _GLYPHS.get(_USUAL)
        glyphs.seen.add(character)
        return f"⟨U+{ord(character):04X}⟩" if character in glyphs.absent else character
    return character.encode("unicode_escape").decode("ascii")


@contextmanager
def plain_style() -> Iterator[None]:
    """matplotlib's defaults and Regard's, whatever the user set; no warning for a glyph that no font has."""
    with (
        _STYLE_LOCK,
        warnings.catch_warnings(),
        matplotlib.style.context(["default", _STYLE | {"font.family": list(_GLYPHS.get(_USUAL).families)}]),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def blank_page() -> Figure:
    """A page of one inch by one, so that until `frame` cuts it a fraction of the page is an inch."""
    return Figure(figsize=(1.0, 1.0), dpi=100)


def frame(figure: Figure, title: str, subtitle: str, note: str) -> None:
    """Write the words around the drawing, then cut the page so that everything is on it."""
    drawing = figure.get_tightbbox()
    longest = max(int(drawing.width * 72 / 8), 40)  # characters a line
    top = drawing.y1 + 0.18
    for text, size, weight, colour in ((subtitle, 11, "normal", QUIET), (title, 15, "bold", TEXT)):
        if text:
            wrapped = textwrap.fill(printable(text), longest if weight == "bold" else longest * 4 // 3)
            figure.text(drawing.x0, top, wrapped, size=size, weight=weight, color=colour, va="bottom")
            top += (wrapped.count("\n") + 1) * size * 1.3 / 72 + 0.06
    if note:
        wrapped = textwrap.fill(printable(note), longest * 4 // 3)
        figure.text(drawing.x0, drawing.y0 - 0.15, wrapped, size=11, color=QUIET, va="top", linespacing=1.4)
    margin = 0.25
    page = figure.get_tightbbox()
    width, height = page.width + 2 * margin, page.height + 2 * margin
    left, bottom = page.x0 - margin, page.y0 - margin
    for axes in figure.axes:
        at = axes.get_position()
        axes.set_position(((at.x0 - left) / width, (at.y0 - bottom) / height, at.width / width, at.height / height))
    for words in figure.texts:
        x, y = words.get_position()
        words.set_position(((x - left) / width, (y - bottom) / height))
    figure.set_size_inches(width, height)


def check_format(path: Path) -> str:
    """`png`, `svg` or `pdf`, by the name's ending; another one is refused before any work is done."""
    kind = path.suffix.lower()
    if kind not in FORMATS:
        found = f"{kind!r} is not a known format" if kind else "its name says no format"
        raise InputError(f"cannot draw to {path}: {found}", f"end the name in one of: {', '.join(FORMATS)}")
    if os.path.isdir(path):  # Path.is_dir raises for a name too long
        raise FileError(f"cannot write {path}: it is a folder", "choose a name that is not taken")
    return kind.removeprefix(".")


def draw_to(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw, with fonts of this machine for what the usual one lacks, and write the file."""
    kind, glyphs = check_format(path), _Glyphs()
    figure = _drawn(draw, glyphs)
    families, absent = fonts_for(glyphs.seen)
    if len(families) > 1 or absent:
        figure = _drawn(draw, _Glyphs(families, frozenset() if kind == "svg" else absent))
    if absent and kind != "svg":
        some = " ".join(sorted(absent)[:8]) + (" …" if len(absent) > 8 else "")
        warnings.warn(
            f"no font on this machine has {some}, drawn as code points; install one, such as Debian's fonts-noto-cjk, "
            "or draw an .svg or .html",
            MissingGlyphs,
            stacklevel=2,
        )
    save_figure(figure, path)


def _drawn(draw: Callable[[], Figure], glyphs: _Glyphs) -> Figure:
    before = _GLYPHS.set(glyphs)
    try:
        return draw()
    finally:
        _GLYPHS.reset(before)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a .png, .svg or .pdf beside its name, flush it, rename it: a crash leaves the old file or the new."""
    content = rendered(figure, check_format(path))
    with writing(path) as partial:
        partial.write_bytes(content)


def rendered(figure: Figure, kind: str) -> bytes:
    """The file's content; without the date and the version that would make two equal figures differ."""
    stream = io.BytesIO()
    without = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": _NO_PDF_DATES}[kind]
    with plain_style():
        figure.savefig(stream, format=kind, dpi=200, metadata=without)
    return stream.getvalue()

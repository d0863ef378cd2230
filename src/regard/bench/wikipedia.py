"""The plain words of a Wikipedia dump such as enwik8, to train vectors on: articles without markup, a paragraph a line.

Lower-case letters a–z only; everything else ends a word. Redirects are left out.
"""

import html
import re
from collections.abc import Iterable, Iterator

_REMOVED = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r"<!--.*?-->", " "),
        (r"<ref[^>]*/>|<ref.*?</ref>|<math.*?</math>", " "),
        (r"<[^>]*>", " "),
        (r"\{\|.*?\|\}", " "),  # tables
        (r"\{\{[^{}]*\}\}", " "),  # templates, the inner ones first …
        (r"\{\{[^{}]*\}\}", " "),  # … then those around them
        (r"\[\[[a-z-]+:[^\[\]]*\]\]", " "),  # other languages, images, categories
        (r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1"),  # a link is the text it shows
        (r"\[https?:\S*([^\]]*)\]|https?:\S+", r"\1"),
    )
]
_OTHERS = re.compile(r"[^a-z\n]+")


def plain_words(lines: Iterable[str]) -> Iterator[str]:
    """The paragraphs of all articles, as lower-case words between single spaces."""
    for article in _articles(lines):
        text = html.unescape(article).lower().replace("'", "")
        if text.startswith("#redirect"):
            continue
        for pattern, replacement in _REMOVED:
            text = pattern.sub(replacement, text)
        for paragraph in _OTHERS.sub(" ", text).split("\n"):
            words = paragraph.split()
            if len(words) > 1:
                yield " ".join(words)


def _articles(lines: Iterable[str]) -> Iterator[str]:
    """What stands between `<text …>` and `</text>`."""
    kept: list[str] | None = None
    for line in lines:
        if kept is None:
            _, tag, rest = line.partition("<text")
            kept = [rest.partition(">")[2]] if tag else None
        else:
            kept.append(line)
        if kept is not None and "</text>" in kept[-1]:
            kept[-1] = kept[-1].partition("</text>")[0]
            yield "\n".join(kept)
            kept = None

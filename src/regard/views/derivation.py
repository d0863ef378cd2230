"""How byte-pair encoding came to its merges, as one HTML file without scripts: it opens from a disk, and prints.

For each merge: the pair, the pairs it tied with, the counts around it, and the corpus after it with the new symbol
marked. For a text: the merges that build each word.
"""

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from regard.files import write_text
from regard.text.bpe import Pair
from regard.text.explain import SHOWN_WORDS, Building, Derivation, Reading, Step, Word
from regard.views.figure import printable
from regard.views.html import check_html_name

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class DerivationPage:
    """What a page shows: a derivation, or none; the words that were built, or none."""

    title: str
    derivation: Derivation | None
    words: tuple[Building, ...]
    reading: Reading


def derivation_html(page: DerivationPage) -> str:
    """The whole file."""
    assets = files("regard.views").joinpath("assets")
    parts = {
        "title": _text(page.title),
        "note": _note(page),
        "style": assets.joinpath("derivation.css").read_text(encoding="utf-8"),
        "body": "\n".join([*_corpus(page), *_built(page)]),
    }
    template = assets.joinpath("derivation.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place.group(1)], template)


def save_derivation(page: DerivationPage, path: Path) -> None:
    """Write the page beside its name, flush it, rename it."""
    check_html_name(path)
    write_text(path, derivation_html(page))


def _note(page: DerivationPage) -> str:
    found = page.derivation
    if found is None:
        return "How the merges build each word."
    total = sum(count for _, count in found.start)
    return (
        f"{total} words, {len(found.start)} different. The most frequent pair of neighbours becomes one symbol, again "
        f"and again; ties go by the rule <b>{_text(found.rule)}</b>. After {len(found.steps)} merges "
        f"{_text(found.stopped)}."
    )


def _corpus(page: DerivationPage) -> Iterable[str]:
    found = page.derivation
    if found is None:
        return
    yield f"<section><h2>Start</h2>{_words(found.start, None, len(found.start))}</section>"
    yield '<ol class="merges">'
    for step in found.steps:
        yield _step(step, len(found.start))
    yield "</ol>"
    yield f"<section><h2>Vocabulary, {len(found.vocabulary)}</h2>{_symbols(found.vocabulary)}</section>"
    yield f"<section><h2>Symbols in use, {len(found.in_use)}</h2>{_symbols(found.in_use)}</section>"


def _step(step: Step, total: int) -> str:
    left, right = step.merge.pair
    head = f'{_symbols((left, right))} → {_symbols((left + right,), new=left + right)} <span class="count">'
    lines = [f"<li><h2>{head}occurs {step.merge.count} times</span></h2>"]
    if step.merge.ties:
        lines.append(f'<p><span class="label">tied with</span> {_pairs((pair, None) for pair in step.merge.ties)}</p>')
    more = f' <span class="quiet">and {step.more} more</span>' if step.more else ""
    lines.append(f'<p><span class="label">pairs</span> {_pairs(step.pairs)}{more}</p>')
    return "\n".join([*lines, _words(step.words, left + right, total), "</li>"])


def _pairs(pairs: Iterable[tuple[Pair, int | None]]) -> str:
    shown = (
        f'<span class="pair">{_symbols(pair)}{"" if count is None else f"<b>{count}</b>"}</span>'
        for pair, count in pairs
    )
    return " ".join(shown)


def _words(words: Sequence[Word], new: str | None, total: int) -> str:
    """Words, the new symbol marked, and how many of all are not shown."""
    held = words[:SHOWN_WORDS]
    shown = (
        f'<span class="word">{_symbols(symbols, new=new)}{f"<b>×{count}</b>" if count > 1 else ""}</span>'
        for symbols, count in held
    )
    more = total - len(held)
    return f'<p class="corpus">{" ".join(shown)}{f" … and {more} more" if more else ""}</p>'


def _built(page: DerivationPage) -> Iterable[str]:
    if not page.words:
        return
    yield "<section><h2>How a text is built</h2></section>"
    for word in page.words:
        rows = [f'<tr><td></td><td></td><td class="corpus">{_symbols(word.start)}</td></tr>']
        rows += [
            f'<tr><td class="label">merge {number}</td><td>{_symbols(pair)}</td>'
            f'<td class="corpus">{_symbols(symbols, new="".join(pair))}</td></tr>'
            for pair, number, symbols in word.steps
        ]
        pieces = _symbols(page.reading.pieces(word.pieces))
        yield f'<section class="built"><h3 dir="auto">{_text(page.reading.word(word.word))}</h3>'
        rows.append(f'<tr><td class="label">pieces</td><td></td><td>{pieces}</td></tr>')
        yield f"<table>{''.join(rows)}</table></section>"


def _symbols(symbols: Iterable[str], new: str | None = None) -> str:
    return "".join(f'<bdi class="symbol{" new" if symbol == new else ""}">{_text(symbol)}</bdi>' for symbol in symbols)


def _text(text: str) -> str:
    return html.escape(printable(text))

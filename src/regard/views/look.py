"""What was seen of a text, as the file its name asks for: a picture (.png, .svg, .pdf) or a page to explore (.html)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError
from regard.files import write_text
from regard.inspection.capture import Recording
from regard.inspection.four_steps import four_steps
from regard.inspection.maps import AttentionMap, attention_map, default_layer, labels, special_tokens
from regard.text.tokenizer import Tokenizer
from regard.views.attention import draw_alignment_with_heads
from regard.views.figure import FORMATS, check_format, draw_to
from regard.views.html import SUFFIXES, AttentionPage, LayerTop, check_html_name, largest_k, page_html
from regard.views.special import left_out_in_words, require_some, special_words, without_special
from regard.views.steps import FourSteps, draw_steps
from regard.views.words import merge_words

LONGEST_NOTE = 100
LONGEST_PICTURE = 512
"""More tokens than this are a page to explore, not a picture."""


def check_name(path: Path) -> None:
    """Refuse a file name that says no known kind, before any work is done."""
    if path.suffix.lower() in SUFFIXES:
        check_html_name(path)
    elif path.suffix.lower() in FORMATS:
        check_format(path)
    else:
        known = ", ".join((*FORMATS, *SUFFIXES))
        raise InputError(f"cannot draw to {path}: its name says no known format", f"end it in one of: {known}")


def require_one(seen: Recording) -> None:
    """Refuse to draw what was read in several windows, or several texts."""
    if seen.sequences > 1:
        raise InputError(
            f"the text was read as {seen.sequences} sequences, such as the windows of a long passage, and one is drawn",
            "give a shorter text, or ask for the numbers of one in Python: seen.weights(layer, batch=0)",
        )


@dataclass(frozen=True)
class Shown:
    """What is shown: a layer, the clearest if None; a head, all if None; pieces or words; special tokens or not."""

    layer: str | None = None
    head: int | None = None
    words: bool = False
    special_tokens: bool = True


EVERYTHING = Shown()


def draw_seen(seen: Recording, tokenizer: Tokenizer, path: Path, shown: Shown = EVERYTHING) -> str:
    """Write what was seen to a file; the answer says which layer it shows (a page: which it opens with)."""
    check_name(path)
    require_one(seen)
    chosen = shown.layer or default_layer(seen)
    note = _note(seen, tokenizer)
    if path.suffix.lower() in SUFFIXES:
        if shown.words or shown.head is not None:
            option = "words" if shown.words else "head"
            raise InputError(f"{option} has no effect on a page", "choose it on the page itself, or draw a .png")
        write_text(path, seen_page(seen, tokenizer, chosen, shown.special_tokens))
        return chosen
    if max(len(side) for side in labels(seen, chosen, tokenizer)) > LONGEST_PICTURE:
        raise InputError(
            f"a picture of more than {LONGEST_PICTURE} tokens cannot be read", "draw a page: end its name in .html"
        )
    found = attention_map(seen, chosen, tokenizer, shown.head)
    special = special_tokens(seen, chosen, tokenizer)
    if shown.words:
        special = special_words(found.rows, special[0]), special_words(found.columns, special[1])
        found = AttentionMap(*merge_words(found.weights, found.rows, found.columns), found.title)
    if not shown.special_tokens:
        found, share = without_special(found, *special)
        note = "\n".join([note, left_out_in_words(share)])
    draw_to(path, lambda: draw_alignment_with_heads(found, note=note))
    return found.title


def seen_page(seen: Recording, tokenizer: Tokenizer, opens_with: str | None = None, special: bool = True) -> str:
    """The page to explore, as the text of its file."""
    require_one(seen)
    tops, note = layer_tops(seen, tokenizer, special), _note(seen, tokenizer)
    return page_html(AttentionPage("Regard", tops, note, opens_with or default_layer(seen)))


def layer_tops(seen: Recording, tokenizer: Tokenizer, special: bool = True) -> tuple[LayerTop, ...]:
    """Every layer's largest weights, as many of each row as a page has room for."""
    sides = {layer: labels(seen, layer, tokenizer) for layer in seen.layers}
    heads = max(seen.trace(layer).heads for layer in seen.layers)
    k = largest_k(len(sides), heads, max(len(rows) for rows, _ in sides.values()))
    if special:
        return tuple(_layer_top(seen, layer, sides[layer], k) for layer in seen.layers)
    return tuple(_plain_top(seen, layer, tokenizer, k) for layer in seen.layers)


def _layer_top(seen: Recording, layer: str, sides: tuple[tuple[str, ...], tuple[str, ...]], k: int) -> LayerTop:
    top = seen.top(k, layer)
    return LayerTop(layer, *sides, top.keys.cpu().numpy(), top.weights.float().cpu().numpy(), _kind(seen, layer))


def _plain_top(seen: Recording, layer: str, tokenizer: Tokenizer, k: int) -> LayerTop:
    """The same without special tokens: of each row so many more are asked for that k of the others are among them."""
    row_special, column_special = special_tokens(seen, layer, tokenizer)
    rows, columns = labels(seen, layer, tokenizer)
    kept_rows, kept_columns = require_some(~row_special, rows), require_some(~column_special, columns)
    top = seen.top(k + int(column_special.sum()), layer)
    keys, weights = top.keys.cpu().numpy()[:, kept_rows], top.weights.float().cpu().numpy()[:, kept_rows]
    special = column_special[keys]
    others = np.argsort(special, axis=-1, kind="stable")[..., : min(k, int((~column_special).sum()))]
    keys, kept = np.take_along_axis(keys, others, -1), np.take_along_axis(weights, others, -1)
    places = np.cumsum(~column_special) - 1
    sides = tuple(rows[at] for at in kept_rows), tuple(columns[at] for at in kept_columns)
    share = float((weights * special).sum(axis=-1, dtype=np.float64).mean())
    return LayerTop(layer, *sides, places[keys], kept, _kind(seen, layer), share)


def _kind(seen: Recording, layer: str) -> str:
    return "cross" if seen.crosses(layer) else "self" if seen.encodes(layer) else "masked self"


def steps_seen(seen: Recording, tokenizer: Tokenizer, *, layer: str | None, head: int, row: int) -> FourSteps:
    """The four steps of one row and head, with the tokens named."""
    require_one(seen)
    chosen = layer or default_layer(seen)
    pieces = four_steps(seen, chosen, head, row)
    rows, columns = labels(seen, chosen, tokenizer)
    return FourSteps(
        token=rows[row],
        keys=columns[: len(pieces.raw)],
        query=_numbers(pieces.query),
        key=_numbers(pieces.key),
        raw=_numbers(pieces.raw),
        scale=pieces.scale,
        bias=_numbers(pieces.bias),
        allowed=pieces.allowed.cpu().numpy(),
        weights=_numbers(pieces.weights),
        values=_numbers(pieces.values),
        output=_numbers(pieces.output),
        title=f"{chosen}, head {head}",
        dotted=pieces.dotted,
    )


def _numbers(tensor: Tensor) -> NDArray[Any]:
    return tensor.float().cpu().numpy()


def save_steps(record: FourSteps, path: Path) -> None:
    """The four steps as a picture."""
    draw_to(path, lambda: draw_steps(record))


def _note(seen: Recording, tokenizer: Tokenizer) -> str:
    """What was read and what was written, each on part of a line."""
    run, index = seen.find(None)
    if run.inputs is None:
        return ""
    read = _begin(tokenizer.decode((run.inputs.source or run.inputs.tokens).rows()[index]))
    return f"{read}  →  {_begin(tokenizer.decode(run.outcome[index].ids))}" if run.outcome is not None else read


def _begin(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_NOTE else line[:LONGEST_NOTE] + " …"

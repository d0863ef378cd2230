"""Where one word looks, in every layer and head: to whom a pronoun turns, if any head does that.

Pieces are merged into words as elsewhere (`views/words.py`). A weight says what a head reads, not what becomes of it:
`look --meaning` counts what attention carries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.errors import InputError, choose
from regard.inspection.capture import Recording
from regard.inspection.maps import attention_map
from regard.text.tokenizer import Tokenizer
from regard.views.attention import COLOURS
from regard.views.figure import TEXT, blank_page, frame, label, plain_style
from regard.views.special import left_out_in_words
from regard.views.words import is_special, merge_words

CELL, ROW, GAP = 0.5, 0.17, 0.16  # inches
MOST_WORDS = 64
"""A picture of more columns cannot be read."""


@dataclass(frozen=True, eq=False)
class WordAttention:
    """One word's weights on all words of its text."""

    word: str
    words: tuple[str, ...]
    itself: int
    layers: tuple[str, ...]
    weights: NDArray[Any]
    """`[layers, heads, words]`"""

    def most(self, other: int) -> tuple[str, int, float]:
        """The layer and head in which it looks most at another word, and how much."""
        layer, head = np.unravel_index(int(self.weights[:, :, other].argmax()), self.weights.shape[:2])
        return self.layers[int(layer)], int(head), float(self.weights[layer, head, other])

    def of(self, name: str) -> int:
        """Which of the words bears this name."""
        return slot_of(name, self.words)


def slot_of(name: str, words: Sequence[str]) -> int:
    """Which word bears a name: the last, if several do."""
    plain = [word.strip("▁ ").casefold() for word in words]
    if name.casefold() not in plain:
        known = [word for word in plain if word.isalnum()]
        raise InputError(f"{name!r} is no word of the text", choose(name.casefold(), known))
    return len(plain) - 1 - plain[::-1].index(name.casefold())


def word_attention(seen: Recording, tokenizer: Tokenizer, word: str) -> WordAttention:
    """Where the word looks in the self-attention of the stack that reads the text."""
    own = [layer for layer in seen.layers if not seen.crosses(layer)]
    layers = [layer for layer in own if seen.encodes(layer)] or own
    if not layers:
        raise InputError(
            "no self-attention was seen, in which alone a word looks at others",
            "draw the layers that there are instead",
        )
    maps = [attention_map(seen, layer, tokenizer) for layer in layers]
    merged = [merge_words(found.weights, found.rows, found.columns) for found in maps]
    words = merged[0][1]
    if len(words) > MOST_WORDS:
        raise InputError(f"the text has {len(words)} words, too many for one picture", f"give at most {MOST_WORDS}")
    place = slot_of(word, words)
    return WordAttention(word, words, place, tuple(layers), np.stack([weights[:, place] for weights, _, _ in merged]))


def word_attention_text(found: WordAttention) -> str:
    """For every other word: the mean over all heads, and the head that looks at it most."""
    means = found.weights.mean(axis=(0, 1))
    others = [at for at in np.argsort(-means, kind="stable") if at != found.itself and not is_special(found.words[at])]
    wide = max(len(label(found.words[at])) for at in [*others, found.itself])
    special = sum(float(means[at]) for at, word in enumerate(found.words) if is_special(word))
    wide = max(wide, len("special tokens")) if special else wide
    lines = [f"{found.word!r} looks at       mean   most, and where"]
    for at in others:
        layer, head, most = found.most(int(at))
        lines.append(f"  {label(found.words[at]):<{wide}}  {means[at]:>8.3f}  {most:.3f} in {layer}, head {head}")
    lines.append(f"  {'itself':<{wide}}  {means[found.itself]:>8.3f}")
    return "\n".join([*lines, f"  {'special tokens':<{wide}}  {special:>8.3f}"] if special else lines)


def draw_word_attention(found: WordAttention, candidates: Sequence[int] = (), special_tokens: bool = True) -> Figure:
    """A strip for each layer, heads down and words across; words of interest are printed bold."""
    at = [place for place, word in enumerate(found.words) if special_tokens or not is_special(word)]
    if len(at) == len(found.words):
        return _drawn(found, candidates, "")
    words, share = tuple(found.words[place] for place in at), 1 - found.weights[:, :, at].sum(axis=-1).mean()
    shown = replace(found, words=words, itself=at.index(found.itself), weights=found.weights[:, :, at])
    return _drawn(shown, [at.index(place) for place in candidates], " " + left_out_in_words(float(share)))


def _drawn(found: WordAttention, candidates: Sequence[int], more: str) -> Figure:
    with plain_style():
        figure = blank_page()
        layers, heads, words = found.weights.shape
        names = [label(word) for word in found.words]
        scale = PowerNorm(0.5, 0.0, max(float(found.weights.max()), 1e-6))
        for number, layer in enumerate(found.layers):
            top = number * (heads * ROW + GAP)
            axes = figure.add_axes((0.0, -top - heads * ROW, words * CELL, heads * ROW))
            axes.imshow(found.weights[number], cmap=COLOURS, norm=scale, aspect="auto")
            axes.set_yticks(range(heads), labels=[str(head) for head in range(heads)])
            axes.set_xticks([])
            if number == 0:
                axes.xaxis.set_ticks_position("top")
                axes.set_xticks(
                    range(words), labels=names, rotation=45, ha="left", rotation_mode="anchor", parse_math=False
                )
                for at in (found.itself, *candidates):
                    axes.get_xticklabels()[at].set_fontweight("bold")
            axes.tick_params(which="both", length=0, labelsize=7, labelcolor=TEXT, pad=3)
            axes.tick_params(axis="x", labelsize=10)
            axes.set_ylabel(layer, size=10, color=TEXT, labelpad=6)
            axes.set_xticks(np.arange(0.5, words - 1), minor=True)
            axes.grid(which="minor", axis="x", color="white", linewidth=1.5)
            for spine in axes.spines.values():
                spine.set_visible(False)
        note = "Darker is more; the darkest cell is " + f"{float(found.weights.max()):.2f}.{more}"
        frame(
            figure, f"Where “{found.word}” looks", f"the weights of {layers} layers × {heads} heads on every word", note
        )
        return figure

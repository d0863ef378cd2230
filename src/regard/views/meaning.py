"""One word in several sentences, as a table and as a figure: how far apart each layer moves it, and what moved it.

At the left of the figure, the cosine of every pair of sentences from the embedding to the last layer. At the right, for
every sentence, each word's share of what a layer changed (see `inspection/contextual.py`): blue moved the word along,
brown held it back. What is missing to 100 % is the layer's bias, feed-forward network and normalisation.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from regard.inspection.contextual import InSentence, Meaning
from regard.views.columns import aligned
from regard.views.figure import LINE, QUIET, TEXT, blank_page, frame, label, plain_style, printable
from regard.views.steps import SIGNED

MOST_PAIRS = 10
"""More pairs of sentences than this are shown by their lowest, mean and highest cosine."""
MOST_MOVERS = 3
MOST_WORDS = 40
"""Of a longer sentence, the words of the largest shares are drawn."""
TOGETHER = 0.95
"""A cosine after the last layer from which vectors are said to have stayed together."""

CELL, ROW = 0.5, 0.3  # inches
LINES = ("#234798", "#c4622d", "#3c8d5a", "#8a4fa3", "#b8912b", "#3a9bb0", "#b03a6b", "#6b7a2f", "#5a5fd0", "#8b5a3c")


def meaning_text(meaning: Meaning) -> str:
    """The cosines and the words that moved it, as tables in plain text."""
    lines = [f"{meaning.word!r} in {len(meaning.sentences)} sentences", ""]
    lines += [f"  {number}  {_begin(one)}" for number, one in enumerate(meaning.sentences, start=1)]
    names, columns = _columns(meaning)
    rows = [["cosine", *names]]
    rows += [
        [layer, *(f"{number:.3f}" for number in numbers)]
        for layer, numbers in zip(meaning.layers, columns, strict=True)
    ]
    lines += ["", *aligned(rows), "", *findings(meaning)]
    for number, one in enumerate(meaning.sentences, start=1):
        lines += [
            "",
            f"What moved it in sentence {number}, {_begin(one)}",
            *aligned(_moved(meaning, one), left=(0, 5)),
        ]
    lines += ["", "A share is of the length of the layer's change, along that change; below 0 it held back."]
    return "\n".join(lines)


def findings(meaning: Meaning) -> list[str]:
    """What the numbers say, in sentences; that nothing was found, where nothing was."""
    said = []
    pieces = [one.pieces for one in meaning.sentences]
    if len(set(pieces)) > 1:
        different = ", ".join(" ".join(map(label, one)) for one in dict.fromkeys(pieces))
        said.append(f"The tokenizer cuts the word in different ways ({different}): it does not begin as one vector.")
    else:
        said.append("At the embedding, before positions, it is one vector.")
    if any(piece in ("[UNK]", "<unk>") for one in pieces for piece in one):
        said.append("The tokenizer does not know the word: its vector is that of every unknown word.")
    last = [float(meaning.cosines[-1][pair]) for pair in meaning.pairs]
    between = f"{min(last):.3f}" if len(last) == 1 else f"{min(last):.3f} to {max(last):.3f}"
    verdict = "this model hardly tells them apart" if min(last) >= TOGETHER else "the sentences have moved it apart"
    said.append(f"After {meaning.layers[-1]} the cosines are {between}: {verdict}.")
    for number, one in enumerate(meaning.sentences, start=1):
        if one.occurrences > 1:
            said.append(f"Sentence {number} has it {one.occurrences} times: the last is followed.")
    if meaning.causal:
        said.append("The model is causal: a word is moved by itself and earlier words only, so what comes after is 0.")
    return said


def draw_meaning(meaning: Meaning) -> Figure:
    """Cosines at the left, what moved the word in each sentence at the right."""
    with plain_style():
        figure = blank_page()
        strips = [_Strip.height(meaning, one) for one in meaning.sentences]
        height = max(sum(strips), 3.8)
        _draw_cosines(figure, meaning, width=max(0.62 * len(meaning.layers), 3.0), height=min(height - 0.6, 6.5))
        left = max(0.62 * len(meaning.layers), 3.0) + 1.9
        top = 0.0
        largest = max(_largest(one) for one in meaning.sentences)
        for number, (one, room) in enumerate(zip(meaning.sentences, strips, strict=True), start=1):
            _Strip(figure, meaning, one, Normalize(-largest, largest)).draw(number, left, top)
            top += room
        title = f"“{meaning.word}” in {len(meaning.sentences)} sentences"
        subtitle = "how far apart the layers move it, and each word’s share of what a layer changed, in %"
        frame(figure, title, subtitle, " ".join(findings(meaning)))
        return figure


def _columns(meaning: Meaning) -> tuple[list[str], list[list[float]]]:
    """The cosines to show, by layer: of every pair, or of many pairs the lowest, mean and highest."""
    numbers = [[float(cosines[pair]) for pair in meaning.pairs] for cosines in meaning.cosines]
    if len(meaning.pairs) <= MOST_PAIRS:
        return [f"{one + 1}–{other + 1}" for one, other in meaning.pairs], numbers
    return ["lowest", "mean", "highest"], [[min(row), float(np.mean(row)), max(row)] for row in numbers]


def _moved(meaning: Meaning, one: InSentence) -> list[list[str]]:
    """A row for each layer: how long the change was, who made it."""
    rows = [["layer", "change", "itself", "bias", "the rest", "words that moved it most"]]
    for at, layer in enumerate(meaning.layers[1:]):
        whole = max(float(one.change[at]), 1e-30)
        parts = (one.moved[at, one.itself], one.bias[at], one.rest[at])
        rows.append([layer, f"{whole:.2f}", *(_percent(float(part) / whole) for part in parts), _named(one, at)])
    rows.append(["all layers", "", "", "", "", _named(one, None)])
    return rows


def _named(one: InSentence, layer: int | None) -> str:
    movers = [(word, share) for word, share in one.movers(layer)[:MOST_MOVERS] if share > 0]
    return ", ".join(f"{label(word)} {_percent(share)}" for word, share in movers) or "none"


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %".replace("-", "−")  # + 0.0: no minus before nothing


def _begin(one: InSentence) -> str:
    line = printable(" ".join(one.sentence.split()))
    return line if len(line) <= 80 else line[:79] + "…"


def _draw_cosines(figure: Figure, meaning: Meaning, width: float, height: float) -> None:
    """One line for each pair of sentences, from the embedding on, named at its right end."""
    axes = figure.add_axes((0.0, -height, width, height))
    names, numbers = _columns(meaning)
    table = np.array(numbers)
    lowest = min(float(table.min()), 0.9)
    margin = 0.05 * (1 - lowest)
    axes.set_yticks(
        [
            tick
            for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(lowest, 1.0)
            if lowest - margin <= tick <= 1.0
        ]
    )
    axes.set_ylim(lowest - margin, 1 + margin)
    axes.set_xlim(-0.2, len(meaning.layers) - 1 + 0.1)
    for at in range(len(names)):
        axes.plot(table[:, at], color=LINES[at % len(LINES)], linewidth=2.0, marker="o", markersize=4)
    ends = _apart(table[-1], 0.16 / height * (axes.get_ylim()[1] - axes.get_ylim()[0]))
    for at, name in enumerate(names):
        place = (len(meaning.layers) - 1, float(ends[at]))
        colour = LINES[at % len(LINES)]
        axes.annotate(name, place, (8, 0), "data", "offset points", size=11, color=colour, va="center")
    axes.set_xticks(range(len(meaning.layers)), labels=meaning.layers, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_ylabel("cosine between its vectors", size=10, color=QUIET, labelpad=8)
    axes.tick_params(length=0, labelsize=10, labelcolor=TEXT, pad=6)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _apart(places: NDArray[Any], room: float) -> NDArray[Any]:
    """Places for names, in the same order from below, none nearer to another than `room`."""
    order = np.argsort(places, kind="stable")
    moved = places.astype(np.float64).copy()
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + room)
    centred: NDArray[Any] = moved - (moved - places).mean()
    return centred


def _largest(one: InSentence) -> float:
    """The largest share of another word, which the colours go up to."""
    shares = np.abs(one.moved / np.maximum(one.change[:, None], 1e-30))
    return max(float(np.delete(shares, one.itself, axis=1).max(initial=0.0)), 0.01)


class _Strip:
    """What moved the word in one sentence: layers down, words across."""

    def __init__(self, figure: Figure, meaning: Meaning, one: InSentence, scale: Normalize) -> None:
        self.figure, self.layers, self.scale = figure, meaning.layers[1:], scale
        shares = one.moved / np.maximum(one.change[:, None], 1e-30)
        largest = np.abs(shares).max(axis=0)
        largest[one.itself] = np.inf
        shown = sorted(np.argsort(-largest, kind="stable")[:MOST_WORDS].tolist())
        self.shares, self.itself = shares[:, shown], shown.index(one.itself)
        self.names = [label(one.words[at]) for at in shown]
        self.left_out = len(one.words) - len(shown)

    @staticmethod
    def height(meaning: Meaning, one: InSentence) -> float:
        """Inches for the strip, the words above it and a gap."""
        longest = max(len(label(word)) for word in one.words)
        return (len(meaning.layers) - 1) * ROW + 0.55 + min(0.07 * longest, 1.2)

    def draw(self, number: int, left: float, top: float) -> None:
        """Draw it below `top`, the names of its words in the room above."""
        words, layers = len(self.names), len(self.layers)
        room = min(0.07 * max(map(len, self.names)), 1.2) + 0.15
        axes = self.figure.add_axes((left, -top - room - layers * ROW, words * CELL, layers * ROW))
        axes.imshow(self.shares, cmap=SIGNED, norm=self.scale, aspect="auto")
        axes.xaxis.set_ticks_position("top")
        axes.set_xticks(
            range(words), labels=self.names, rotation=45, ha="left", rotation_mode="anchor", parse_math=False
        )
        axes.set_yticks(range(layers), labels=self.layers)
        axes.tick_params(which="both", length=0, labelsize=10, labelcolor=TEXT, pad=4)
        axes.get_xticklabels()[self.itself].set_fontweight("bold")
        axes.set_xticks(np.arange(0.5, words - 1), minor=True)
        axes.set_yticks(np.arange(0.5, layers - 1), minor=True)
        axes.grid(which="minor", color="white", linewidth=2.0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.annotate(f"{number}", (0, 1), (-30, 12), "axes fraction", "offset points", size=13, weight="bold")
        if self.left_out:
            said = f"and {self.left_out} words of smaller shares"
            axes.annotate(said, (1, 0.5), (8, 0), "axes fraction", "offset points", size=10, color=QUIET, va="center")
        self._print(axes)

    def _print(self, axes: Axes) -> None:
        """Shares of a hundredth and more as numbers."""
        for (row, column), share in np.ndenumerate(self.shares):
            if abs(share) < 0.01:
                continue
            strong = abs(share) > 0.6 * float(self.scale.vmax or 1.0)
            text = f"{100 * share:.0f}".replace("-", "−")
            axes.text(column, row, text, size=9, color="white" if strong else TEXT, ha="center", va="center_baseline")

"""The tree of a beam search as one SVG: time runs to the right, every line is a branch, the winner is on top.

    ┌────────┐   ┌────────┐
    │ March  ├───┤  3,    ├─── … ★ 1st
    └────────┘ └─┤  13,   ✕ rank 6 of its step: −4.1, the last kept −3.2

Every branch that was kept is drawn, and of those that were not the likeliest of every step, and the likeliest of every
branch that ends there. A place says why on its face, and all of it where the pointer rests on it.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.decoding.trace import BeamTree, Branch
from regard.views.figure import label, printable

COLUMN, ROW = 158, 58
BOX_WIDTH, BOX_HEIGHT = 112, 42
LEFT, TOP = 24, 64
LINE = 21
"""Of words above a picture that stands alone."""
PRUNED_A_STEP = 2
"""Of every step so many pruned branches are drawn, the likeliest."""
PRUNED_WIDTH = 236
ORDINALS = ("1st", "2nd", "3rd")

STYLE = """
.decoding-tree { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, "DejaVu Sans", sans-serif; }
.decoding-tree .page { fill: #ffffff; }
.decoding-tree text { fill: #1f2430; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
.decoding-tree g text.token, .decoding-tree g text.inside { stroke: none; }
.decoding-tree .quiet { fill: #5b6475; font-size: 11px; }
.decoding-tree .step { fill: #5b6475; font-size: 12px; }
.decoding-tree .box { fill: #f5f7fb; stroke: #8a94a8; stroke-width: 1.2; }
.decoding-tree .line { fill: none; stroke: #8a94a8; stroke-width: 1.4; }
.decoding-tree .token { font-weight: 600; }
.decoding-tree .won .box { fill: #dff3e4; stroke: #1d7f3d; stroke-width: 2.2; }
.decoding-tree .line.won { stroke: #1d7f3d; stroke-width: 3; }
.decoding-tree .ended .box { fill: #e6effb; stroke: #2f63ad; stroke-width: 1.6; }
.decoding-tree .pruned .box { fill: #fbeeee; stroke: #b23a3a; stroke-dasharray: 4 3; }
.decoding-tree .line.pruned { stroke: #b23a3a; stroke-dasharray: 4 3; }
.decoding-tree .why { fill: #9c2f2f; font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 3px; }
.decoding-tree .score { fill: #14602d; font-size: 12px; font-weight: 600; }
.decoding-tree .second { fill: #2f63ad; font-size: 12px; }
""".strip()


@dataclass(frozen=True)
class Place:
    """A branch on the page: its column is its step, its row was free."""

    branch: Branch
    row: int
    won: bool


def tree_svg(tree: BeamTree, heading: Sequence[str] = ()) -> str:
    """The whole picture, its own style in it; with lines above it where it stands alone."""
    places = layout(tree)
    rows = max(place.row for place in places.values()) + 1
    steps = max(place.branch.step for place in places.values())
    width = LEFT + 60 + (steps - 1) * COLUMN + BOX_WIDTH + PRUNED_WIDTH + 40
    head = LINE * len(heading)
    height = TOP + rows * ROW + 16 + head
    ranks = {one.branch: rank for rank, one in enumerate(tree.finished)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="decoding-tree" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="the tree of a beam search">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *(
            f'<text x="{LEFT}" y="{LINE * row + 22}">{html.escape(printable(text))}</text>'
            for row, text in enumerate(heading)
        ),
        f'<g transform="translate(0 {head})">',
        *(_step(column) for column in range(1, steps + 1)),
        f'<circle cx="{LEFT + 10}" cy="{_y(0)}" r="5" class="box"/>',
        *(_line(place, places) for place in sorted(places.values(), key=lambda one: one.won)),
        *(_box(place, ranks.get(place.branch.number), tree) for place in places.values()),
        "</g></svg>",
    ]
    return "\n".join(parts)


def layout(tree: BeamTree) -> dict[int, Place]:
    """Where every branch that is drawn stands: the best child goes on in its parent's row, the others in rows below.

    A row is used again where what stood in it has ended long enough before.
    """
    drawn, winning = shown(tree), set(path(tree, tree.finished[0].branch))
    children: dict[int, list[Branch]] = {}
    for branch in drawn:
        children.setdefault(branch.parent, []).append(branch)
    alive = {number for branch in drawn if branch.fate != "pruned" for number in path(tree, branch.number)}

    def rank(branch: Branch) -> tuple[bool, bool, float]:
        return (branch.number not in winning, branch.number not in alive, -branch.total)

    taken: list[list[tuple[float, float]]] = []
    places: dict[int, Place] = {}

    def put(branch: Branch, row: int) -> None:
        chain = [branch]
        while below := sorted(children.get(chain[-1].number, []), key=rank):
            chain.append(below[0])
        end = chain[-1].step + (2.4 if chain[-1].fate != "kept" else 1.0)
        at = _free(taken, row, (branch.step - 0.6, end))
        for one in chain:
            places[one.number] = Place(one, at, one.number in winning)
        for one in reversed(chain):
            for other in sorted(children.get(one.number, []), key=rank)[1:]:
                put(other, at + 1)

    for branch in sorted(children.get(0, []), key=rank):
        put(branch, 0)
    return places


def shown(tree: BeamTree) -> list[Branch]:
    """The branches that are drawn: all that were kept or ended, and the likeliest of those that were pruned."""
    cut = [branch for branch in tree.branches if branch.fate == "pruned"]
    parents = {branch.parent for branch in tree.branches if branch.fate != "pruned"}
    went_on = {branch.parent for branch in tree.branches}
    drawn = {branch.number for step in {one.step for one in cut} for branch in _best(cut, step)}
    for branch in tree.branches:
        if branch.number in parents or branch.fate == "finished" or branch.number not in went_on:
            continue
        drawn.add(max((one for one in cut if one.parent == branch.number), key=lambda one: one.total).number)
    return [branch for branch in tree.branches if branch.fate != "pruned" or branch.number in drawn | went_on]


def path(tree: BeamTree, number: int) -> list[int]:
    """The branches from the beginning to this one."""
    found = []
    while number:
        found.append(number)
        number = tree.branches[number - 1].parent
    return found[::-1]


def _best(cut: Sequence[Branch], step: int) -> list[Branch]:
    return sorted((one for one in cut if one.step == step), key=lambda one: -one.total)[:PRUNED_A_STEP]


def _free(taken: list[list[tuple[float, float]]], row: int, span: tuple[float, float]) -> int:
    """The first row from this one on that is free over these steps; it is taken now."""
    while True:
        while row >= len(taken):
            taken.append([])
        if all(span[1] <= begin or end <= span[0] for begin, end in taken[row]):
            taken[row].append(span)
            return row
        row += 1


def _x(step: int) -> int:
    return LEFT + 60 + (step - 1) * COLUMN


def _y(row: int) -> int:
    return TOP + row * ROW + BOX_HEIGHT // 2


def _step(column: int) -> str:
    return f'<text class="step" x="{_x(column)}" y="{TOP - 26}">token {column}</text>'


def _line(place: Place, places: dict[int, Place]) -> str:
    """From the parent's right side to this one's left."""
    parent = places.get(place.branch.parent)
    from_x, from_y = (LEFT + 15, _y(0)) if parent is None else (_x(parent.branch.step) + BOX_WIDTH, _y(parent.row))
    x, y = _x(place.branch.step), _y(place.row)
    kind = "won" if place.won else "pruned" if place.branch.fate == "pruned" else ""
    middle = from_x + 16
    return f'<path class="line {kind}" d="M{from_x} {from_y} C{middle} {from_y} {middle} {y} {x} {y}"/>'


def _box(place: Place, rank: int | None, tree: BeamTree) -> str:
    """The token, its probability and the sum so far; behind an end its score, behind a pruned one why."""
    branch, x, y = place.branch, _x(place.branch.step), _y(place.row)
    kind = "won" if place.won else "ended" if rank is not None else branch.fate
    words = label(branch.token)
    words = words if len(words) <= 14 else words[:13] + "…"
    inside = f"p {share(branch.log_probability)}   Σ {number(branch.total, 2)}"
    tip = f"{label(branch.token)}: {branch.why}"
    return "\n".join(
        [
            f'<g class="{kind}" data-branch="{branch.number}"><title>{html.escape(tip)}</title>',
            f'<rect class="box" x="{x}" y="{y - BOX_HEIGHT // 2}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
            f'<text class="token" x="{x + 8}" y="{y - 4}">{html.escape(words)}</text>',
            f'<text class="quiet inside" x="{x + 8}" y="{y + 13}" xml:space="preserve">{inside}</text>',
            *_behind(branch, rank, (x + BOX_WIDTH + 8, y), tree),
            "</g>",
        ]
    )


def _behind(branch: Branch, rank: int | None, at: tuple[int, int], tree: BeamTree) -> Iterable[str]:
    x, y = at
    if rank is not None:
        kind, name = ("score", "★ wins") if rank == 0 else ("second", f"{ordinal(rank + 1)} place")
        yield f'<text class="{kind}" x="{x}" y="{y - 4}">{name}: score {number(branch.score)}</text>'
        yield f'<text class="quiet" x="{x}" y="{y + 12}">{html.escape(added_up(branch, tree.length_penalty))}</text>'
    elif branch.fate == "pruned":
        first, second = short_reason(branch)
        yield f'<text class="why" x="{x}" y="{y - 4}">✕ {html.escape(first)}</text>'
        yield f'<text class="why" x="{x}" y="{y + 12}">{html.escape(second)}</text>'


def share(log_probability: float) -> str:
    """A probability in as many digits as a place has room for.

    >>> share(-0.01), share(-9.0)
    ('0.99', '1e-4')
    """
    value = math.exp(log_probability)
    return f"{value:.2f}" if value >= 0.005 else f"{value:.0e}".replace("e-0", "e-")


def number(value: float, digits: int = 3) -> str:
    """A sum or a score with a real minus, and enough digits to tell it from 0.

    >>> number(-1.2345), number(-0.00012, 2)
    ('−1.234', '−0.0001')
    """
    digits = digits if not value or abs(value) >= 0.01 else 4
    return f"{value:.{digits}f}".replace("-", "−")


def ordinal(place: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    return ORDINALS[place - 1] if place <= len(ORDINALS) else f"{place}th"


def added_up(branch: Branch, power: float) -> str:
    """How a score comes of its sum."""
    if power == 0:
        return "= Σ log p"
    length = f"{branch.step} tokens" if power == 1 else f"{branch.step}^{power:g}"
    return f"= {number(branch.total)} / {length}"


def short_reason(branch: Branch) -> tuple[str, str]:
    """Why a branch was pruned, in two short lines."""
    if "better ones ended" in branch.why:
        return f"pushed out: score {number(branch.score)}", f"the last that stays: {number(branch.threshold or 0)}"
    if "it stood at" in branch.why:
        return f"search over: score {number(branch.score)}", f"cannot pass {number(branch.threshold or 0)}"
    if branch.threshold is None:
        return f"it ends, but only as rank {branch.rank}", "of its step"
    total, least = number(branch.total, 2), number(branch.threshold, 2)
    return f"pruned: rank {branch.rank} of its step", f"Σ {total}, last kept {least}"

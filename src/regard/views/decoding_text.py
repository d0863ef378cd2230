"""How an answer came about, for a terminal: lines with a style each, what a terminal would obey written out."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from regard.decoding.trace import BeamTree, Branch, Choice, Choices
from regard.views.decoding_page import story
from regard.views.decoding_tree import added_up, number, ordinal, path, share, short_reason, shown
from regard.views.figure import label, printable

CANDIDATES = 5
"""Of every step so many are listed, the chosen one aside."""


class Line(NamedTuple):
    """Some text, and how a terminal shows it."""

    text: str
    style: str = ""


def decoding_lines(record: Choices | BeamTree) -> list[Line]:
    """All there is to say, line by line."""
    head = [Line(f"{printable(record.text)} → {printable(record.output)}", "bold"), Line(record.strategy, "dim")]
    if isinstance(record, BeamTree):
        told = [Line(printable(sentence)) for sentence in story(record)]
        return [*head, *told, Line(""), *_tree(record)]
    total = f"{len(record.steps)} tokens, log p in all {number(record.score, 4)}"
    return [*head, *(line for step in record.steps for line in _choice(record.stages, step)), Line(total)]


def _tree(tree: BeamTree) -> Iterator[Line]:
    winning = set(path(tree, tree.finished[0].branch))
    ranks = {one.branch: rank for rank, one in enumerate(tree.finished, start=1)}
    children: dict[int, list[Branch]] = {}
    for branch in sorted(shown(tree), key=lambda one: (one.number not in winning, one.fate == "pruned", -one.total)):
        children.setdefault(branch.parent, []).append(branch)

    def grow(parent: int, before: str) -> Iterator[Line]:
        below = children.get(parent, [])
        for place, branch in enumerate(below):
            last = place == len(below) - 1
            chain = [branch]
            while len(children.get(chain[-1].number, [])) == 1:
                chain.append(children[chain[-1].number][0])
            words = " ".join(f"{label(one.token)} {share(one.log_probability)}" for one in chain)
            yield Line(
                f"{before}{'└─' if last else '├─'} {words}{_end(tree, chain[-1], ranks)}", _style(chain[-1], ranks)
            )
            yield from grow(chain[-1].number, before + ("   " if last else "│  "))

    yield Line("every token with its probability; ✕ is pruned, ★ wins", "dim")
    yield from grow(0, "")


def _end(tree: BeamTree, branch: Branch, ranks: dict[int, int]) -> str:
    if branch.number in ranks:
        rank = ranks[branch.number]
        name = "★ wins" if rank == 1 else f"{ordinal(rank)} place"
        return f"   {name}: score {number(branch.score)} {added_up(branch, tree.length_penalty)}"
    return f"   ✕ {', '.join(short_reason(branch))}" if branch.fate == "pruned" else ""


def _style(branch: Branch, ranks: dict[int, int]) -> str:
    if branch.number in ranks:
        return "bold green" if ranks[branch.number] == 1 else "blue"
    return "red" if branch.fate == "pruned" else ""


def _choice(stages: Sequence[str], step: Choice) -> Iterator[Line]:
    yield Line("")
    listed = step.candidates[:CANDIDATES]
    if step.chosen not in {one.id for one in listed}:
        listed = (*listed, next(one for one in step.candidates if one.id == step.chosen))
    rows = [[f"token {step.step}", *(f"{name} ({left:,} left)" for name, left in zip(stages, step.left, strict=True))]]
    for one in listed:
        shares = ("–" if not value and place else _percent(value) for place, value in enumerate(one.probabilities))
        rows.append([("▶ " if one.id == step.chosen else "  ") + label(one.token), *shares])
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for place, row in enumerate(rows):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        chosen = row[0].startswith("▶")
        yield Line("  ".join(cells).rstrip(), "dim" if place == 0 else "bold green" if chosen else "")


def _percent(value: float) -> str:
    return "< 0.01 %" if 0 < value < 0.00005 else f"{100 * value:.2f} %"

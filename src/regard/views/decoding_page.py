"""How an answer came about, as one HTML file without scripts: the tree of a beam, or the candidates of every step.

Nothing is fetched; it opens from a disk. The record is in a `<script type="application/json" id="numbers">`, which a
browser does not run.
"""

import html
import json
import math
import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import files

from regard.decoding.trace import BeamTree, Branch, Candidate, Choice, Choices
from regard.views.decoding_tree import added_up, number, ordinal, path, tree_svg
from regard.views.figure import label, printable

_PLACE = re.compile(r"\{\{(\w+)\}\}")
PRUNED_TOLD = 2
"""Pruned branches that the words above the tree tell of."""
ALTERNATIVES = 5


def decoding_html(record: Choices | BeamTree) -> str:
    """The whole file."""
    assets = files("regard.views").joinpath("assets")
    numbers = json.dumps(asdict(record), ensure_ascii=True).replace("<", "\\u003c")
    body = [*(_beam(record) if isinstance(record, BeamTree) else _choices(record))]
    body.append(f'<script type="application/json" id="numbers">{numbers}</script>')
    parts = {
        "title": f"{_text(record.text)} → {_text(record.output)}",
        "note": _text(record.strategy[:1].upper() + record.strategy[1:] + "."),
        "style": assets.joinpath("decoding.css").read_text(encoding="utf-8"),
        "body": "\n".join(body),
    }
    template = assets.joinpath("derivation.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place.group(1)], template)


# A beam


def _beam(tree: BeamTree) -> Iterable[str]:
    yield f'<section class="words">{"".join(f"<p>{_text(one)}</p>" for one in story(tree))}</section>'
    yield (
        '<p class="legend"><b class="won">green: the winner</b> <b class="kept">grey: kept for the next step</b> '
        '<b class="ended">blue: ended, other answers</b> <b class="pruned">red, dashed: pruned</b> '
        "p: probability of the token; Σ: sum of log p from the beginning to here; ␣: a blank</p>"
    )
    yield f'<div class="wide">{tree_svg(tree)}</div>'
    yield "<h2>Answers, best first</h2>"
    yield from _answers(tree)
    yield "<h2>The winner word by word: how its score adds up, and what else might have stood there</h2>"
    yield from _alternatives(tree)


def decoding_svg(tree: BeamTree) -> str:
    """The tree as a picture that stands alone, with what the page says above it."""
    title = f"{tree.text} → {tree.output}"
    lines = [line for sentence in (title, tree.strategy, *story(tree)) for line in textwrap.wrap(sentence, 150)]
    return tree_svg(tree, lines)


def story(tree: BeamTree) -> list[str]:
    """What happened, in sentences from the run's own numbers."""
    best, power = tree.finished[0], tree.length_penalty
    end = tree.branches[best.branch - 1]
    rule = "Σ log p" if power == 0 else "Σ log p / length" if power == 1 else f"Σ log p / length^{power:g}"
    told = [
        f"Beam search keeps the {tree.size} best beginnings side by side. At every step each of them is tried with "
        f"every token that could come next; the {tree.size} with the largest sum of log-probabilities (Σ) are kept, "
        f"all others are pruned, of which the likeliest are drawn. Log p is the natural logarithm: 0 is certain, −4.6 "
        f"is one in a hundred. Of those that end, by the token that ends texts or at the limit, the one with the best "
        f"score, {rule}, wins.",
        f"The winner is “{best.text}” with the score {number(best.score)} {added_up(end, power)}.",
    ]
    if len(tree.finished) > 1:
        second = tree.finished[1]
        added = added_up(tree.branches[second.branch - 1], power)
        told.append(f"Second came “{second.text}” with {number(second.score)} {added}.")
    for branch in pruned_to_tell(tree):
        told.append(f"Pruned at token {branch.step}: “{text_of(tree, branch)}”: {branch.why}.")
    return told


def pruned_to_tell(tree: BeamTree) -> list[Branch]:
    """The likeliest of those that were pruned, each at a step of its own; by their rank, if there are such."""
    cut = [one for one in tree.branches if one.fate == "pruned"]
    by_step: dict[int, Branch] = {}
    for one in sorted(cut, key=lambda one: (not one.why.startswith("rank"), -one.total, one.number)):
        by_step.setdefault(one.step, one)
    return list(by_step.values())[:PRUNED_TOLD]


def text_of(tree: BeamTree, branch: Branch) -> str:
    """The tokens up to a branch."""
    return "".join(tree.branches[node - 1].token for node in path(tree, branch.number))


def _answers(tree: BeamTree) -> Iterable[str]:
    heads = "".join(f"<th>{name}</th>" for name in ("", "answer", "score", "Σ log p", "tokens"))
    yield f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
    for rank, one in enumerate(tree.finished, start=1):
        kind = ' class="won"' if rank == 1 else ""
        yield (
            f"<tr{kind}><td>{ordinal(rank)}</td><td>{_text(one.text)}</td><td>{number(one.score, 4)}</td>"
            f"<td>{number(math.fsum(one.log_probabilities), 4)}</td><td>{len(one.log_probabilities)}</td></tr>"
        )
    yield "</table></div>"


def _alternatives(tree: BeamTree) -> Iterable[str]:
    yield (
        '<div class="wide"><table><thead><tr><th>token</th><th>written</th><th>p</th><th>log p</th><th>Σ</th>'
        "<th>instead (p, what became of it)</th><th>prefix that goes on from the first of these</th></tr></thead>"
    )
    before = tree.prefix
    for node in path(tree, tree.finished[0].branch):
        branch = tree.branches[node - 1]
        others = [one for one in tree.branches if one.parent == branch.parent and one.number != node]
        others.sort(key=lambda one: -one.log_probability)
        listed = " ".join(
            f'<span class="{one.fate}" title="{_text(one.why)}">{_token(one.token)} '
            f"{_share(one.log_probability)}</span>"
            for one in others[:ALTERNATIVES]
        )
        on = f"<code>{_text(json.dumps(before + others[0].token, ensure_ascii=False))}</code>" if others else ""
        yield (
            f"<tr><td>{branch.step}</td><td>{_token(branch.token)}</td><td>{_share(branch.log_probability)}</td>"
            f"<td>{number(branch.log_probability, 4)}</td><td>{number(branch.total, 4)}</td>"
            f"<td>{listed}</td><td>{on}</td></tr>"
        )
        before += branch.token
    yield "</table></div>"


# One choice after the other


def _choices(record: Choices) -> Iterable[str]:
    stages = ", then ".join(record.stages[1:])
    told = f"At every step the model gives each token a probability. {_what(record)}"
    yield f'<section class="words"><p>{_text(told)}</p>'
    if stages:
        yield f"<p>{_text(f'What is done to them, in this order: {stages}. Removed tokens are crossed out.')}</p>"
    total = f"The answer has {len(record.steps)} tokens, whose log p add up to the score {number(record.score, 4)}."
    yield f"<p>{_text(total)}</p></section>"
    yield '<ol class="steps">'
    for step in record.steps:
        yield from _choice(record, step)
    yield "</ol>"


def _what(record: Choices) -> str:
    if record.strategy.startswith("greedy"):
        return "The likeliest one is written."
    if record.strategy.startswith("contrastive"):
        return "Of the likeliest few the one is written that is likely and unlike what stands there."
    return "One is drawn by these probabilities."


def _choice(record: Choices, step: Choice) -> Iterable[str]:
    yield (
        f'<li><h2>{_token(step.token)} <span class="quiet">token {step.step}, rank {step.rank}, '
        f"log p {number(step.log_probability, 4)}</span></h2>"
    )
    heads = "".join(
        f"<th>{_text(name)}<br><span class='quiet'>{left:,} left</span></th>"
        for name, left in zip(record.stages, step.left, strict=True)
    )
    yield f'<div class="wide"><table><thead><tr><th>candidate</th>{heads}</tr></thead>'
    for one in step.candidates:
        yield _candidate(one, one.id == step.chosen)
    yield "</table></div></li>"


def _candidate(one: Candidate, chosen: bool) -> str:
    cells = "".join(
        f'<td class="{"removed" if not value and place else ""}"><i style="width:{max(round(90 * value), 1)}px"></i>'
        f"{'removed' if not value and place else _percent(value)}</td>"
        for place, value in enumerate(one.probabilities)
    )
    kind, mark = (' class="won"', " ← chosen") if chosen else ("", "")
    return f"<tr{kind}><td>{_token(one.token)}{mark}</td>{cells}</tr>"


def _percent(value: float) -> str:
    if not value:
        return "0 %"
    return f"{100 * value:.1f} %" if value >= 0.0005 else f"{100 * value:.2f} %" if value >= 0.00005 else "< 0.01 %"


def _share(log_probability: float) -> str:
    return _percent(math.exp(log_probability))


def _token(token: str) -> str:
    return f'<bdi class="token">{html.escape(label(token))}</bdi>'


def _text(text: str) -> str:
    return html.escape(printable(text))

"""Why each part of a Transformer is there, shown by taking it away, one at a time, with the number it is known for.

    scale      ÷√d_k: the variance of scores and the entropy of their softmax; one head trained with it and without
    heads      many against one, at equal width
    depth      residuals and norms: the deepest network that still learns, with and without
    positions  whether a permuted source changes the answer; what is learnt with positions and without
    mask       the causal mask: right tokens while the right ones are given, and when the model writes by itself

A finding is numbers, rows to print, panels to draw, and sentences made by rule from the numbers of this run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from regard.api.model import Model
from regard.compare import ablation_sentences as say
from regard.compare.ablation_cases import (
    COMPLETE,
    CONDITIONS,
    HEADS,
    WIDTH,
    Budget,
    complete,
    deep,
    one_head,
    shallow,
    translator,
    unmasked,
    unordered_decoder,
    unscaled,
)
from regard.compare.climb import Climb, Entry
from regard.compare.permuted import Moved, moved
from regard.compare.quality import attention_entropy, held_out_pairs, quality
from regard.compare.score_spread import KEYS, spread
from regard.errors import InputError, choose
from regard.files import write_json, write_text
from regard.models.unmasked import unmasked_known
from regard.views.ablations import (
    AblationBars,
    AblationCurves,
    AblationPanel,
    AblationSection,
    ablations_page,
    draw_ablations,
)
from regard.views.figure import draw_to

TITLE = "Why each part of a Transformer is there"
EXACT = "texts exactly right"
PERMUTED = 50
"""Test sources that are permuted."""


@dataclass(frozen=True)
class Finding:
    """What was found of one part."""

    name: str
    title: str
    sentences: Sequence[str]
    rows: Sequence[tuple[str, str]]
    """What was measured, and the figure, for people."""
    panels: Sequence[AblationPanel]
    numbers: Mapping[str, Any]

    def record(self) -> dict[str, Any]:
        """For programs."""
        return {"name": self.name, "title": self.title, "sentences": list(self.sentences), "numbers": self.numbers}


@dataclass(frozen=True)
class Ablation:
    """One part: what must be trained for it, and how the finding is made."""

    title: str
    cases: Callable[[Budget], Sequence[Entry]]
    find: Callable[[Climb, Budget], Finding]


def chosen(names: Sequence[str] | None) -> list[str]:
    """The ablations of these names, in their usual order; all where none are given."""
    for name in names or ():
        if name not in ABLATIONS:
            raise InputError(f"there is no ablation {name!r}", choose(name, ABLATIONS))
    return [name for name in ABLATIONS if not names or name in names]


def cases_of(names: Sequence[str], budget: Budget) -> list[Entry]:
    """All that these ablations train, each once, in the order it is needed."""
    cases = [case for name in names for case in ABLATIONS[name].cases(budget)]
    return list({case.name: case for case in cases}.values())


def ablate(names: Sequence[str], climb: Climb, budget: Budget) -> list[Finding]:
    """Find out, training what is not there yet."""
    with unmasked_known():
        return [ABLATIONS[name].find(climb, budget) for name in names]


def write_findings(folder: Path, findings: Sequence[Finding], budget: Budget) -> list[Path]:
    """The figure, the page and the numbers, in the folder."""
    panels = [panel for finding in findings for panel in finding.panels]
    parts = (
        f"A Transformer of width {WIDTH} that reverses rows of 3 to 5 letters: an encoder–decoder of 2 + 2 layers in "
        f"{budget.steps} steps, decoders of {_depths(budget)} layers in {budget.deep_steps}; {budget.held_out} test "
        "rows; one seed where no other number is said"
    )
    paths = [folder / f"ablations.{kind}" for kind in ("png", "html", "json")]
    folder.mkdir(parents=True, exist_ok=True)
    draw_to(paths[0], lambda: draw_ablations(TITLE, parts, panels))
    sections = [AblationSection(one.title, one.sentences, one.rows) for one in findings]
    write_text(paths[1], ablations_page(TITLE, parts, panels, sections))
    write_json(paths[2], {"findings": [finding.record() for finding in findings]})
    return paths


def _depths(budget: Budget) -> str:
    return f"{min(budget.depths)} to {max(budget.depths)}"


def _exact(climb: Climb, case: Entry) -> float:
    """The share of texts that are exactly right; none where the training diverged."""
    found = climb.ask(case, "quality", quality)
    return float(found["exact_match"]) if found else 0.0


def _scale(climb: Climb, budget: Budget) -> Finding:
    spreads = [spread(width) for width in budget.head_widths]
    pair = {True: one_head(budget), False: unscaled(budget)}
    shares = {scaled: _exact(climb, case) for scaled, case in pair.items()}
    entropy = {scaled: climb.ask(case, "entropy", attention_entropy) for scaled, case in pair.items()}
    widths = [float(one.head_width) for one in spreads]
    names = {"scaled_dot": "with ÷√d_k", "dot": "without ÷√d_k"}
    variance, saturation = say.on_variance(spreads), say.on_entropy(spreads)
    trained = say.on_trained_scale(WIDTH, shares, entropy)
    curves = {
        what: {words: [getattr(one, what)[name] for one in spreads] for name, words in names.items()}
        for what in ("variance", "entropy")
    }
    rows = [
        (f"{what} at d_k = {one.head_width}, {words}", f"{getattr(one, what)[name]:.3g}")
        for what in ("variance", "entropy")
        for one in spreads
        for name, words in names.items()
    ]
    rows += [(f"{EXACT}, one head {names['scaled_dot' if one else 'dot']}", _share(shares[one])) for one in shares]
    across, bars = "head width d_k", {names["scaled_dot"]: shares[True], names["dot"]: shares[False]}
    panels = [
        AblationPanel(
            "Scale: variance",
            AblationCurves(across, "of the scores", widths, curves["variance"], True),
            variance,
        ),
        AblationPanel(
            "Scale: entropy",
            AblationCurves(across, f"of the largest, for {KEYS} keys", widths, curves["entropy"]),
            saturation,
        ),
        AblationPanel("Scale: trained", AblationBars(EXACT, bars, [names["dot"]]), trained),
    ]
    numbers = {
        "drawn": [asdict(one) for one in spreads],
        "trained": {names["scaled_dot" if one else "dot"]: shares[one] for one in shares},
        "trained_entropy": {names["scaled_dot" if one else "dot"]: entropy[one] for one in shares},
    }
    return Finding("scale", ABLATIONS["scale"].title, [variance, saturation, trained], rows, panels, numbers)


def _head_cases(budget: Budget) -> dict[int, list[Entry]]:
    return {count: [shallow(count, seed, budget) for seed in budget.seeds] for count in budget.heads}


def _heads(climb: Climb, budget: Budget) -> Finding:
    found = {count: [_exact(climb, case) for case in cases] for count, cases in _head_cases(budget).items()}
    shares = {count: fmean(of_seeds) for count, of_seeds in found.items()}
    deeper = {HEADS: _exact(climb, complete(budget)), 1: _exact(climb, one_head(budget))}
    sentences = say.on_heads(WIDTH, len(budget.seeds), shares, deeper)
    bars = {f"{count} head{'s' * (count > 1)}": share for count, share in shares.items()}
    rows = [(f"{EXACT}, sort, one layer, {name}", _share(share)) for name, share in bars.items()]
    rows += [
        (f"{EXACT}, reverse, two layers, {count} head{'s' * (count > 1)}", _share(deeper[count])) for count in deeper
    ]
    panel = AblationPanel("Heads", AblationBars(f"{EXACT}, sort", bars, ["1 head"]), " ".join(sentences))
    numbers = {"sort, one layer": found, "reverse, two layers": deeper}
    return Finding("heads", ABLATIONS["heads"].title, sentences, rows, [panel], numbers)


def _depth(climb: Climb, budget: Budget) -> Finding:
    shares = {
        condition: {layers: _exact(climb, deep(condition, layers, budget)) for layers in budget.depths}
        for condition in CONDITIONS
    }
    diverged = {
        f"{layers} layers {condition}": why
        for condition in CONDITIONS
        for layers in budget.depths
        if (why := climb.training(deep(condition, layers, budget))["diverged"])
    }
    sentences = say.on_depth(shares, COMPLETE, diverged)
    rows = [
        (f"{EXACT}, {layers} layers, {condition}", _share(share))
        for condition, found in shares.items()
        for layers, share in found.items()
    ]
    rows += [
        (f"deepest that reaches 90 %, {name}", str(say.deepest(found) or "none")) for name, found in shares.items()
    ]
    curves = {condition: list(found.values()) for condition, found in shares.items()}
    drawing = AblationCurves(
        "layers of a decoder", EXACT, [float(one) for one in budget.depths], curves, level=say.REACHED
    )
    numbers: dict[str, Any] = {EXACT: shares, "deepest": {name: say.deepest(found) for name, found in shares.items()}}
    numbers["diverged"] = diverged
    panel = AblationPanel("Residuals and norms", drawing, " ".join(sentences))
    return Finding("depth", ABLATIONS["depth"].title, sentences, rows, [panel], numbers)


def _position_cases(budget: Budget) -> dict[str, tuple[Entry, Entry]]:
    """By task, with positions and without."""
    none = {"positions": "none"}
    return {
        "reverse": (complete(budget), translator("without-positions", budget, none)),
        "sort": (translator("sort", budget, None, "sort"), translator("sort-without-positions", budget, none, "sort")),
        "decoder, reverse": (deep(COMPLETE, budget.depths[0], budget), unordered_decoder(budget)),
    }


def _positions(climb: Climb, budget: Budget) -> Finding:
    pairs = _position_cases(budget)
    shares = {task: (_exact(climb, one), _exact(climb, other)) for task, (one, other) in pairs.items()}
    asked = {
        "with positions": pairs["reverse"][0],
        "without positions": pairs["reverse"][1],
        "a causal decoder without positions": pairs["decoder, reverse"][1],
    }
    answers = {name: climb.ask(case, "permuted", _permuted) for name, case in asked.items()}
    permuted = {name: Moved(**answer) for name, answer in answers.items() if answer}
    sentences = [say.on_positions(shares)]
    if len(permuted) == len(asked):
        with_, without, causal = asked
        sentences = [*say.on_order(permuted, without, with_, causal), *sentences]
    rows = [
        (f"logits moved by permuting the source, {name}", f"{found.logits:.2g}") for name, found in permuted.items()
    ]
    bars: dict[str, float] = {}
    for task, (with_share, without_share) in shares.items():
        rows += [(f"{EXACT}, {task}, with positions", _share(with_share))]
        rows += [(f"{EXACT}, {task}, without", _share(without_share))]
        bars |= {task: with_share, f"{task}, without": without_share}
    drawing = AblationBars(EXACT, bars, [name for name in bars if name.endswith("without")])
    panel = AblationPanel("Positions", drawing, " ".join(sentences))
    numbers = {
        "permuted": {name: asdict(found) for name, found in permuted.items()},
        EXACT: {task: {"with": one, "without": other} for task, (one, other) in shares.items()},
    }
    return Finding("positions", ABLATIONS["positions"].title, sentences, rows, [panel], numbers)


def _permuted(model: Model) -> dict[str, Any]:
    return asdict(moved(model, held_out_pairs(model, PERMUTED)))


def _mask(climb: Climb, budget: Budget) -> Finding:
    cases = {"with the mask": complete(budget), "without it": unmasked(budget)}
    found = {name: climb.ask(case, "quality", quality) or _nothing() for name, case in cases.items()}
    sentence = say.on_mask(*found.values())
    words = {"forced": "the right ones given", "free": "by itself"}
    bars = {f"{name}, {words[how]}": shares[how] for name, shares in found.items() for how in words}
    rows = [(f"right tokens, {name}", _share(share)) for name, share in bars.items()]
    rows += [(f"{EXACT}, {name}", _share(shares["exact_match"])) for name, shares in found.items()]
    drawing = AblationBars("right tokens", bars, [name for name in bars if name.startswith("without")])
    panel = AblationPanel("The causal mask", drawing, sentence)
    return Finding("mask", ABLATIONS["mask"].title, [sentence], rows, [panel], found)


def _nothing() -> dict[str, float]:
    """Of a training that diverged."""
    return {"forced": 0.0, "free": 0.0, "exact_match": 0.0}


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


ABLATIONS: Mapping[str, Ablation] = MappingProxyType(
    {
        "scale": Ablation("Without ÷√d_k", lambda budget: [one_head(budget), unscaled(budget)], _scale),
        "heads": Ablation(
            "With one head",
            lambda budget: (
                [case for cases in _head_cases(budget).values() for case in cases]
                + [complete(budget), one_head(budget)]
            ),
            _heads,
        ),
        "depth": Ablation(
            "Without residuals, without norms",
            lambda budget: [deep(condition, layers, budget) for condition in CONDITIONS for layers in budget.depths],
            _depth,
        ),
        "positions": Ablation(
            "Without positions",
            lambda budget: [case for pair in _position_cases(budget).values() for case in pair],
            _positions,
        ),
        "mask": Ablation("Without the causal mask", lambda budget: [complete(budget), unmasked(budget)], _mask),
    }
)
"""Every ablation by its name."""

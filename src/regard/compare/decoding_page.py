"""A comparison of ways to decode as it is shown: the table, and for every knob two drawings with a sentence."""

from collections.abc import Sequence
from dataclasses import asdict

from regard.compare.decoding import KNOBS, REPEATED, DecodingComparison, Knob, Setting, sentence
from regard.compare.shown import ComparisonView
from regard.views.comparison import ComparisonPanel, Curve, CurveLines

LIKELIHOOD = "mean log p of a token"
MARGIN = 0.06
"""Of what the curves of likelihood span, beyond them."""


def shown(found: DecodingComparison) -> ComparisonView:
    """Everything of a comparison that is shown."""
    names = _names(found)
    header = ["", *names.values()]
    rows = [_row("greedy", found.greedy, names)]
    rows += [_row(f"{knob.name} {one.value:g}", one, names) for knob in KNOBS for one in found.of(knob)]
    note = (
        "Mean log p of a token: how likely the model itself holds its answers, nearer 0 is likelier; the broken line "
        "is greedy decoding. distinct-2: of all pairs of neighbouring words in all answers, the share that are "
        f"different. Repetition: of every answer's runs of {REPEATED} words, the share that stood in it before. The "
        "likeliest answers repeat themselves and the most varied fall apart: look between. One knob is turned at a "
        "time; sampling is at temperature 1 unless that is the knob."
    )
    if found.quality is None:
        note += " There are no references to measure quality by."
    subtitle = (
        f"{found.model}; {found.prompts} prompts of {found.data}, at most {found.max_new_tokens} new tokens, "
        f"seed {found.seed}"
    )
    panels = [_panel(found, knob) for knob in KNOBS]
    title = "What temperature, top-k, top-p and beam width do to a model's answers"
    return ComparisonView(title, subtitle, note, header, rows, panels, {"compared": asdict(found)})


def _names(found: DecodingComparison) -> dict[str, str]:
    """The figures that are known, as people call them."""
    names = {"likelihood": LIKELIHOOD, "distinct": "distinct-2", "repetition": "repetition"}
    names |= {} if found.quality is None else {"quality": found.quality.replace("_", " ")}
    known = {key for one in found.settings for key in one.figures}
    return {key: name for key, name in names.items() if key in known}


def _panel(found: DecodingComparison, knob: Knob) -> ComparisonPanel:
    settings, names = found.of(knob), _names(found)
    log = "x" if knob.key in ("top_k", "beams") else ""
    ticks = knob.values if log else None
    every = [one.figures["likelihood"] for one in (found.greedy, *found.settings)]
    margin = MARGIN * (max(every) - min(every)) or 1.0
    likely = CurveLines(
        *(knob.name, LIKELIHOOD, [_curve(settings, "likelihood", "log p")], log),
        ticks=ticks,
        span=(min(every) - margin, max(every) + margin),
        level=("greedy", found.greedy.figures["likelihood"]),
    )
    shares = [_curve(settings, key, name) for key, name in names.items() if key != "likelihood"]
    drawings = [likely, CurveLines(knob.name, "share", shares, log, percent=True, ticks=ticks)] if shares else [likely]
    return ComparisonPanel(knob.name.capitalize(), drawings, sentence(found, knob))


def _curve(settings: Sequence[Setting], key: str, name: str) -> Curve:
    known = [one for one in settings if key in one.figures]
    return Curve(name, [one.value for one in known], [one.figures[key] for one in known])


def _row(name: str, one: Setting, names: dict[str, str]) -> list[str]:
    return [name, *(f"{one.figures[key]:.4f}" if key in one.figures else "" for key in names)]

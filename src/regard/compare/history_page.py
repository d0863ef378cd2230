"""The ladder as it is shown: the table and the four panels."""

from collections.abc import Mapping

from regard.compare.history import History, Rung
from regard.compare.sentences import nearest
from regard.compare.shown import ComparisonView
from regard.views.comparison import Bars, ComparisonPanel, Curve, CurveLines

TITLE = "From the plain RNN to the Transformer"
NOTE = (
    "Bands are bootstrap intervals of 95 % over held-out rows. Gradient: the norm of the derivative of the readout of "
    "an output token, along random unit directions, by the embedding of the source token it needs; the distance is "
    "the number of tokens read and written between them. Operations: the longest chain in the recorded graph of a "
    "forward pass. Time: forward and backward, {tokens:,} target tokens in a batch, on {device}."
)


def shown(found: History) -> ComparisonView:
    """Everything of a ladder that is shown."""
    said = found.sentences()
    note = NOTE.format(tokens=found.batch_tokens, device=found.timed_on)
    panels = [
        ComparisonPanel("1  Quality against length", [_quality(found)], said["quality"]),
        ComparisonPanel("2  Gradient against distance", _gradients(found), said["gradients"]),
        ComparisonPanel("3  Operations in sequence, and time", _time(found), said["time"]),
        ComparisonPanel("4  What training takes", _cost(found), said["cost"]),
    ]
    subtitle = f"{found.task}; {found.budget}"
    return ComparisonView(
        TITLE, subtitle, note, _header(found), [_row(one) for one in found.rungs], panels, found.record()
    )


def _quality(found: History) -> CurveLines:
    curves = [
        Curve(
            rung.name,
            [one.middle for one in rung.buckets],
            [one.exact for one in rung.buckets],
            [one.low for one in rung.buckets],
            [one.high for one in rung.buckets],
        )
        for rung in found.rungs
    ]
    ends = [end for one in found.rungs[0].thirds for end in (one.shortest, one.longest)]
    return CurveLines("letters of the source", "exact match", curves, percent=True, ticks=ends)


def _curve(name: str, numbers: Mapping[int, float] | Mapping[int, int]) -> Curve:
    return Curve(name, list(numbers), list(numbers.values()))


def _gradients(found: History) -> list[CurveLines | Bars]:
    """What underflows even float64 has no place on a logarithmic axis."""
    drawn = [_curve(rung.name, _above_zero(rung.gradients)) for rung in found.rungs]
    trained = [_curve(rung.name, _above_zero(rung.gradients_trained)) for rung in found.rungs]
    return [
        CurveLines("tokens between, where training begins", "norm", drawn, log="y"),
        CurveLines("tokens between, after training", "norm", trained, log="y"),
    ]


def _above_zero(norms: Mapping[int, float]) -> dict[int, float]:
    return {at: value for at, value in norms.items() if value > 0}


def _time(found: History) -> list[CurveLines | Bars]:
    ticks = list(found.rungs[0].operations)[::-2]
    chains = [_curve(rung.name, rung.operations) for rung in found.rungs]
    times = [_curve(rung.name, rung.microseconds) for rung in found.rungs]
    return [
        CurveLines("tokens", "operations in sequence", chains, log="xy", ticks=ticks),
        CurveLines("tokens", "µs for a token", times, log="xy", ticks=ticks),
    ]


def _cost(found: History) -> list[CurveLines | Bars]:
    names = {"parameters": "parameters", "tokens_per_second": "tokens a second", "seconds": "seconds of training"}
    return [
        Bars(words, {rung.name: float(rung.training[key] or 0) for rung in found.rungs}) for key, words in names.items()
    ]


def _header(found: History) -> list[str]:
    first = found.rungs[0]
    lengths = list(first.microseconds)
    return [
        "",
        "rate",
        *(f"{one.shortest}–{one.longest}" for one in first.thirds),
        f"gradient at {nearest(first.gradients)}",
        f"operations at {lengths[0]}",
        f"at {lengths[-1]:,}",
        f"µs/token at {lengths[0]}",
        f"at {lengths[-1]:,}",
        "parameters",
        "tokens/s",
        "seconds",
    ]


def _row(rung: Rung) -> list[str]:
    operations, microseconds = list(rung.operations.values()), list(rung.microseconds.values())
    seconds = rung.training["seconds"]
    return [
        rung.name,
        f"{rung.rate:g}",
        *(f"{100 * one.exact:.1f} %" for one in rung.thirds),
        f"{rung.gradients[nearest(rung.gradients)]:.1e}",
        f"{operations[0]:,}",
        f"{operations[-1]:,}",
        f"{microseconds[0]:.2f}",
        f"{microseconds[-1]:.2f}",
        f"{rung.training['parameters']:,}",
        f"{rung.training['tokens_per_second']:,.0f}",
        "" if seconds is None else f"{seconds:,.0f}",
    ]

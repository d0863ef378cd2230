"""What the panels of the ladder show, said by rule from the numbers of the run: also that an effect is absent.

Every function takes numbers by rung (`rnn`, `lstm`, `gru`, `attention`, `transformer`) and gives one sentence.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.compare.rungs import NAMES
from regard.views.comparison import SUPERSCRIPTS

CLOSE, APART = 0.05, 0.20
"""Shares of right answers that are alike, and that are not."""
VANISHES, HELPS = 100.0, 10.0
"""How many times smaller a gradient is that has vanished, and larger one that gates have kept."""
GROWS, FLAT = 4.0, 2.5
"""How many times longer a token takes that waits for those before it, and one that does not."""
AT = 100
"""The distance at which gradients are compared, or the one nearest to it."""

Third = tuple[int, int, float]
"""Lengths from, to, and the share of right answers."""


def on_quality(thirds: Mapping[str, Sequence[Third]]) -> str:
    """Whether the fixed vector forgets: alike where rows are short, apart where they are long."""
    fixed, attending = thirds["gru"], thirds["attention"]
    short, long = attending[0][2] - fixed[0][2], attending[-1][2] - fixed[-1][2]
    at_short, at_long = _lengths(fixed[0]), _lengths(fixed[-1])
    numbers = (
        f"{_percent(attending[0][2])} with attention and {_percent(fixed[0][2])} with a fixed vector on {at_short}, "
        f"{_percent(attending[-1][2])} and {_percent(fixed[-1][2])} on {at_long}"
    )
    if long < APART:
        return f"That a fixed vector forgets does not show here: exact match is {numbers}."
    if short > CLOSE:
        return (
            f"Attention is ahead on long rows and already on short ones, so that this run does not tell forgetting "
            f"from slow learning: exact match is {numbers}."
        )
    return f"The fixed vector forgets and attention does not: exact match is {numbers}."


def on_gradients(norms: Mapping[str, Mapping[int, float]], trained: Mapping[str, Mapping[int, float]]) -> str:
    """Whether the plain RNN's gradient vanishes where training begins, whether gates help, what training changed."""
    at = nearest(norms["rnn"])
    times, after = (
        {key: _ratio(one[at], each["rnn"][at]) for key, one in each.items() if key != "rnn"}
        for each in (norms, trained)
    )
    learnt = f"after training it is {_against(after['attention'])}"
    if times["attention"] < VANISHES:
        return (
            f"The plain RNN's gradient does not vanish here: where training begins, {at} tokens away, it is "
            f"{_against(times['attention'])}; {learnt}."
        )
    gates = [f"the {NAMES[key]}'s is {_times(times[key])} the RNN's" for key in ("lstm", "gru") if times[key] >= HELPS]
    without = [NAMES[key] for key in ("lstm", "gru") if times[key] < HELPS]
    helped = f"gates help ({' and '.join(gates)})" if gates else "gates do not help"
    if gates and without:
        helped += f", but not the {without[0]}'s"
    return (
        f"Where training begins, {at} tokens away, the plain RNN's gradient is {_against(times['attention'])}; "
        f"{helped}; {learnt}."
    )


def _against(times: float) -> str:
    name = NAMES["attention"]
    return f"{_times(times)} below that of {name}" if times >= 1 else f"{_times(1 / times)} above that of {name}"


def on_time(operations: Mapping[str, Mapping[int, int]], microseconds: Mapping[str, Mapping[int, float]]) -> str:
    """Whether recurrent networks wait for every token and the Transformer for none."""
    first, last = min(operations["rnn"]), max(operations["rnn"])
    chains = {key: (one[first], one[last]) for key, one in operations.items()}
    recurrent, flat = (f"{_chain(chains[key])} in the {NAMES[key]}" for key in ("rnn", "transformer"))
    times = {key: _ratio(one[last], one[first]) for key, one in microseconds.items()}
    waits = times["rnn"] >= GROWS and times["transformer"] <= FLAT
    took = (
        f"a token takes {_times(times['rnn'])} as long in the RNN, {_times(times['attention'])} in "
        f"{NAMES['attention']} and {_times(times['transformer'])} in the Transformer"
    )
    if not waits:
        took = f"the expected gap in time does not show: {took}"
    return f"From {first} to {last:,} tokens the longest chain of operations {recurrent} and {flat}; {took}."


def on_cost(training: Mapping[str, Mapping[str, Any]]) -> str:
    """Which rung reads fastest, which slowest, and with how many parameters."""
    speed = {key: float(one["tokens_per_second"]) for key, one in training.items()}
    fastest, slowest = max(speed, key=lambda key: speed[key]), min(speed, key=lambda key: speed[key])
    if speed[fastest] < 1.2 * speed[slowest]:
        return f"All train about equally fast, {speed[slowest]:,.0f} to {speed[fastest]:,.0f} tokens a second."
    sizes = {key: int(one["parameters"]) for key, one in training.items()}
    return (
        f"{_article(fastest)} trains fastest, on {speed[fastest]:,.0f} tokens a second with {sizes[fastest]:,} "
        f"parameters, {_article(slowest, 'the')} slowest, on {speed[slowest]:,.0f} with {sizes[slowest]:,}."
    )


def nearest(norms: Mapping[int, float]) -> int:
    """The distance gradients are compared at."""
    return min(norms, key=lambda one: abs(one - AT))


def _chain(ends: tuple[int, int]) -> str:
    before, after = ends
    return f"stays at {before:,}" if before == after else f"goes from {before:,} to {after:,}"


def _article(key: str, article: str = "The") -> str:
    return f"{article} {NAMES[key]}"


def _lengths(third: Third) -> str:
    shortest, longest, _ = third
    return f"{shortest} to {longest} letters" if longest > shortest else f"{shortest} letters"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ratio(above: float, below: float) -> float:
    return above / below if below else float("inf") if above else 1.0


def _times(factor: float) -> str:
    """`3.2×`, `410×`, `10¹²×`."""
    if factor == float("inf"):
        return "infinitely many times"
    if factor >= 1e6:
        return f"10{str(len(str(int(factor))) - 1).translate(SUPERSCRIPTS)}×"
    return f"{factor:,.0f}×" if factor >= 20 else f"{factor:.1f}×"

"""What an ablation shows, said by rule from the numbers of the run, also where the expected effect is absent."""

from collections.abc import Mapping, Sequence

from regard.compare.permuted import ROUNDING, Moved
from regard.compare.score_spread import ScoreSpread

LEAST = 0.05
"""A difference of shares below it is no effect."""
AGREES = 0.1
"""How far, as a share, a variance may be from what theory says."""
REACHED = 0.9


def on_variance(spreads: Sequence[ScoreSpread]) -> str:
    """d_k against 1, or that it is not so."""
    widths = _listed([str(one.head_width) for one in spreads])
    unscaled = _listed([f"{one.variance['dot']:.3g}" for one in spreads])
    scaled = _listed([f"{one.variance['scaled_dot']:.2f}" for one in spreads])
    said = f"At d_k = {widths} the variance of the scores is {unscaled} without ÷√d_k and {scaled} with it"
    far = [one.head_width for one in spreads if not _agrees(one)]
    if far:
        return f"{said}: the effect is absent, since at {_listed(far)} these are not d_k and 1 within 10 %."
    return f"{said}: d_k and 1, within 10 %."


def _agrees(one: ScoreSpread) -> bool:
    unscaled, scaled = one.variance["dot"] / one.head_width, one.variance["scaled_dot"]
    return abs(unscaled - 1) <= AGREES and abs(scaled - 1) <= AGREES


def on_entropy(spreads: Sequence[ScoreSpread]) -> str:
    """Whether the softmax saturates."""
    first, last = spreads[0], spreads[-1]
    unscaled = f"{_percent(first.entropy['dot'])} to {_percent(last.entropy['dot'])}"
    scaled = f"{_percent(first.entropy['scaled_dot'])} to {_percent(last.entropy['scaled_dot'])}"
    said = (
        f"From d_k = {first.head_width} to {last.head_width} the softmax's entropy goes from {unscaled} of the largest "
        f"without ÷√d_k, and from {scaled} with it"
    )
    lost = last.entropy["scaled_dot"] - last.entropy["dot"]
    return f"{said}: unscaled, it saturates." if lost >= LEAST else f"{said}: no saturation shows."


def on_trained_scale(width: int, shares: Mapping[bool, float], entropy: Mapping[bool, float | None]) -> str:
    """One head of this width, trained with the scale (True) and without (False)."""
    said = (
        f"Trained with one head of width {width}, {_percent(shares[True])} of texts are exactly right with ÷√d_k and "
    )
    said += f"{_percent(shares[False])} without; {_effect(shares[True], shares[False])}."
    spread = {scaled: share for scaled, share in entropy.items() if share is not None}
    if len(spread) == 2:
        said += (
            f" Its attention then has {_percent(spread[True])} and {_percent(spread[False])} of the largest entropy."
        )
    return said


def on_heads(width: int, seeds: int, shallow: Mapping[int, float], deeper: Mapping[int, float]) -> list[str]:
    """Many heads against one: in one layer that sorts, and in two that reverse."""
    listed = ", ".join(f"{_percent(share)} with {_heads(count)}" for count, share in shallow.items())
    best = max((count for count in shallow if count > 1), key=lambda count: shallow[count])
    many = max(deeper)
    return [
        f"One layer of width {width} that sorts, mean of {seeds} seeds, texts exactly right: {listed}. "
        f"{_heads(best)} against one: {_effect(shallow[best], shallow[1])}.",
        f"Two layers that reverse: {_percent(deeper[many])} with {_heads(many)} and {_percent(deeper[1])} with one: "
        f"{_effect(deeper[many], deeper[1])}.",
    ]


def on_depth(
    shares: Mapping[str, Mapping[int, float]], complete: str, diverged: Mapping[str, str] | None = None
) -> list[str]:
    """The deepest that reaches 90 % in each condition, and whether what was left out made a difference."""
    reached = [f"{name} {deepest(found) or 'none'}" for name, found in shares.items()]
    said = [f"The deepest that reaches 90 %: {_listed(reached)}."]
    for name, found in shares.items():
        if name == complete:
            continue
        whole, left = deepest(shares[complete]), deepest(found)
        if left < whole:
            end = f"none of {_listed(list(found))} layers does" if not left else f"{left} layers are the most"
            said.append(f"{name.capitalize()}, {end}.")
        else:
            said.append(f"{name.capitalize()}, the effect is absent: {left} layers reach 90 % all the same.")
    if diverged:
        said.append(f"Diverged: {'; '.join(f'{name} ({why})' for name, why in diverged.items())}.")
    return said


def deepest(shares: Mapping[int, float]) -> int:
    """The most layers that reach 90 %; 0 where none do."""
    return max((layers for layers, share in shares.items() if share >= REACHED), default=0)


def on_order(found: Mapping[str, Moved], without: str, ordered: str, causal: str) -> list[str]:
    """What a permuted source changes: of an encoder–decoder `without` positions and with, and of a causal decoder."""
    one, other, decoder = found[without], found[ordered], found[causal]
    far = max(one.vectors or 0.0, one.logits)
    exact = "the same answer to rounding (float64)" if far <= ROUNDING else "another answer: the effect is absent"
    encoder = (
        f"Without positions a permuted source gives {exact}: the encoder's vectors, permuted back, differ by at most "
        f"{one.vectors:.1e}, the logits by {one.logits:.1e} (with positions by {other.logits:.2g}), and "
        f"{_percent(one.same)} of the texts written are the same."
    )
    if decoder.logits > ROUNDING:
        masked = "A causal decoder does see the order, since a token sees only those before it: "
    else:
        masked = "A causal decoder does not see the order here either: "
    return [encoder, f"{masked}its logits differ by {decoder.logits:.2g}, and {_percent(decoder.same)} are the same."]


def on_positions(shares: Mapping[str, tuple[float, float]]) -> str:
    """Trained quality with positions and without, by task."""
    listed = (
        f"{task}: {_percent(with_)} with positions and {_percent(without)} without, {_effect(with_, without)}"
        for task, (with_, without) in shares.items()
    )
    return f"Texts exactly right, {'; '.join(listed)}."


def on_mask(masked: Mapping[str, float], unmasked: Mapping[str, float]) -> str:
    """Tokens right where the right ones are given (`forced`) and where the model writes by itself (`free`)."""
    said = (
        f"Without the causal mask {_percent(unmasked['forced'])} of tokens are right while the right ones are given, "
        f"and {_percent(unmasked['free'])} when the model writes by itself; with the mask "
        f"{_percent(masked['forced'])} and {_percent(masked['free'])}"
    )
    lost = (unmasked["forced"] - unmasked["free"]) - (masked["forced"] - masked["free"])
    if lost >= LEAST:
        return f"{said}: without it, the model learnt to copy the token it should predict."
    return f"{said}: the effect is absent."


def _effect(kept: float, removed: float) -> str:
    points = 100 * (kept - removed)
    if kept - removed >= LEAST:
        return f"a difference of {points:.0f} points"
    if removed - kept >= LEAST:
        return f"the effect is absent, and even the other way round by {-points:.0f} points"
    return "the effect is absent"


def _heads(count: int) -> str:
    return f"{count} head{'' if count == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _listed(parts: Sequence[object]) -> str:
    words = [str(part) for part in parts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

"""Which layers of a decoder see a window and which all before, as transformers says it: `layer_types`, one word each.

Regard's list goes through its mechanisms again and again: of Gemma 3's 26 layers six are named, five of them windows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.attention.exact import ExactShape
from regard.attention.mechanism import MechanismShape
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.reading import whole

Values = dict[str, Any]
SLIDING, FULL = "sliding_attention", "full_attention"


def repeated(listed: Sequence[MechanismShape]) -> MechanismShape | tuple[MechanismShape, ...]:
    """The fewest that give the list when they are gone through again and again; one alone as itself."""
    layers = range(len(listed))
    period = next(size for size in range(1, len(listed) + 1) if all(listed[at] == listed[at % size] for at in layers))
    return listed[0] if period == 1 else tuple(listed[:period])


def per_layer(config: TransformerConfig) -> list[ExactShape]:
    """How each layer of a decoder attends; all of them exactly, or ConfigError."""
    listed = config.mechanisms("decoder")
    shapes = [one for one in listed if isinstance(one, ExactShape)]
    if len(shapes) < len(listed):
        others = ", ".join(sorted({one.name for one in listed} - {"exact"}))
        raise ConfigError(f"layers attend by {others}", "convert to a family whose layers do")
    return [shapes[layer % len(shapes)] for layer in range(config.layers)]


def window(hf: Mapping[str, Any], default: int | None) -> int | None:
    """How many tokens a sliding layer sees, itself among them; None where null is said."""
    size = None if hf.get("sliding_window", default) is None else whole(hf, "sliding_window", default)
    if size == 1:
        raise ConfigError(
            "sliding_window = 1 lets a token see itself alone, which transformers does not keep to while it generates",
            "use a model with a window of 2 or more",
        )
    return size


def kinds(hf: Mapping[str, Any], usual: Sequence[str], sliding: int | None) -> list[str]:
    """The word for each layer: those of the file, or the usual ones; `sliding` is the size of a window."""
    given = hf.get("layer_types") or list(usual)
    if not isinstance(given, list) or len(given) != len(usual) or not {*given} <= {SLIDING, FULL}:
        raise ConfigError(
            f"layer_types = {str(given)[:60]} is not known here", f"name {SLIDING} or {FULL} for {len(usual)} layers"
        )
    if SLIDING in given and sliding is None:
        raise ConfigError(f"a layer of {SLIDING} has no sliding_window", "copy config.json again")
    return given


def attention(said: Sequence[str], shapes: Mapping[str, Values]) -> MechanismShape | tuple[MechanismShape, ...]:
    """Regard's list of mechanisms: of each word the options of its layers."""
    return repeated([ExactShape(**shapes[kind]) for kind in said])


def windows(config: TransformerConfig) -> tuple[list[str], int | None]:
    """And back: the word for each layer, and the one size of their windows; None where there is none."""
    shapes = per_layer(config)
    sizes = {one.window for one in shapes} - {None}
    if len(sizes) > 1:
        raise ConfigError(
            f"windows of {' and '.join(map(str, sorted(one for one in sizes if one)))} in one model have no key",
            "train with windows of one size",
        )
    return [FULL if one.window is None else SLIDING for one in shapes], next(iter(sizes), None)

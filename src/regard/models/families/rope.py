"""Rotary positions as config.json says them: `rope_parameters`, or the older `rope_theta` and `rope_scaling`."""

from collections.abc import Mapping
from typing import Any

from regard.attention.rotary import PLAIN, RotaryConfig
from regard.errors import ConfigError
from regard.models.families.reading import number, table


def read_rope(hf: Mapping[str, Any]) -> RotaryConfig:
    """How all layers turn."""
    given = table(hf, "rope_scaling", "rope_parameters")  # transformers lets the old name win
    return rope_of(given, number(given if "rope_theta" in given else hf, "rope_theta", PLAIN.base))


def rope_of(given: Mapping[str, Any], base: float) -> RotaryConfig:
    """What one table says."""
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ConfigError(f"rotary positions of the type {kind!r} are not known here", "use default, linear or llama3")
    values: dict[str, Any] = {"base": base, "scaling": "none" if kind == "default" else kind}
    if kind != "default":
        values["factor"] = number(given, "factor", None)
    if kind == "llama3":
        values["low_frequency_factor"] = number(given, "low_freq_factor", None)
        values["high_frequency_factor"] = number(given, "high_freq_factor", None)
        values["original_max_positions"] = number(given, "original_max_position_embeddings", None)
    return RotaryConfig(**values)


def write_rope(turns: RotaryConfig) -> dict[str, Any]:
    """The same table, as it is written today."""
    rope: dict[str, Any] = {
        "rope_theta": turns.base,
        "rope_type": "default" if turns.scaling == "none" else turns.scaling,
    }
    if turns.scaling != "none":
        rope["factor"] = turns.factor
    if turns.scaling == "llama3":
        rope |= {"low_freq_factor": turns.low_frequency_factor, "high_freq_factor": turns.high_frequency_factor}
        rope |= {"original_max_position_embeddings": turns.original_max_positions}
    return rope

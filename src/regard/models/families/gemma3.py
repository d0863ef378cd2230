"""Gemma 3 (Gemma Team 2025), the part that reads text: Gemma 2 with five windows to one full layer, and no soft caps.

In place of the caps each head's queries and keys are normalised. Layers with a window turn by a base of their own.
"""

from regard.attention.exact import ExactShape
from regard.attention.rotary import RotaryConfig
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families import gemma2, llama, qwen3
from regard.models.families.family import Family, Names, Values
from regard.models.families.layer_types import FULL, SLIDING, attention, kinds, per_layer, window
from regard.models.families.reading import count, number, table
from regard.models.families.rope import rope_of, write_rope

GLOBAL, LOCAL = 1_000_000.0, 10_000.0
NORMS: Values = {"query_key_norm": "rms_offset"}


def _size(layers: int, width: int, inner: int) -> Values:
    sizes = llama.size(layers, width, 4, inner) | {"key_value_heads": 1, "head_width": 256}
    near = NORMS | {"window": 512, "rotary": {"base": LOCAL}}
    more: Values = {"max_positions": 32768, "vocabulary": 262144, **llama.MILLION}
    return {**sizes, **more, "attention": [near, near, near, near, near, NORMS]}


SIZES = {"gemma3-270m": _size(18, 640, 2048), "gemma3-1b": _size(26, 1152, 6912)}

KEYS = gemma2.KEYS | {"max_positions": ("max_position_embeddings", 131072), "vocabulary": ("vocab_size", 262208)}
NAMES: Names = {**gemma2.NAMES, **qwen3.NAMED_NORMS}


def _turns(hf: Values) -> tuple[RotaryConfig, RotaryConfig]:
    """Of the layers that see everything and of those that see a window."""
    nested = table(hf, "rope_parameters")
    if {*nested} - {FULL, SLIDING}:
        raise ConfigError(f"rope_parameters name {', '.join(map(str, nested))[:60]}", f"name {FULL} and {SLIDING}")
    far, near = table(nested, FULL) | table(hf, "rope_scaling"), table(nested, SLIDING)
    bases = number(hf, "rope_theta", GLOBAL), number(hf, "rope_local_base_freq", LOCAL)
    return (
        rope_of(far, number(far, "rope_theta", bases[0])),
        rope_of(near, number(near, "rope_theta", bases[1])),
    )


def _from_hf_extra(hf: Values) -> Values:
    far, near = _turns(hf)
    own, sliding = gemma2.scores(hf) | NORMS, window(hf, gemma2.WINDOW)
    every = number(hf, "sliding_window_pattern", 6.0)
    usual = [SLIDING if (layer + 1) % every else FULL for layer in range(count(hf, "num_hidden_layers", 26))]
    around = own | {"window": sliding, "rotary": None if near == far else near}
    listed = attention(kinds(hf, usual, sliding), {FULL: own, SLIDING: around})
    return gemma2.shared(hf, None) | {"rotary": far, "attention": listed}


def _to_hf_extra(config: TransformerConfig) -> Values:
    near: ExactShape | None = next((one for one in per_layer(config) if one.window is not None), None)
    local = RotaryConfig(base=LOCAL) if near is None else near.rotary or config.rotary
    return gemma2.written(config) | {"rope_parameters": {FULL: write_rope(config.rotary), SLIDING: write_rope(local)}}


FAMILY = Family(
    name="gemma3",
    model_type="gemma3_text",
    paper="Gemma Team 2025",
    objective="language_modelling",
    shape=gemma2.SHAPE,
    sizes=SIZES,
    keys=KEYS,
    fixed={},
    architectures={"tokens": "Gemma3ForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    patterns=("sliding_window", "layer_types"),
    copies=llama.FAMILY.copies,
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

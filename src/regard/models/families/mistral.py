"""Mistral (Jiang et al. 2023): LLaMA whose tokens see a window, fewer key/value heads, and no biases.

With layers as deep as these a token still hears of what lies further back: each layer carries it a window on.
"""

from regard.attention.exact import ExactShape
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families import llama
from regard.models.families.family import Family, Values
from regard.models.families.layer_types import window, windows

_SEVEN = llama.size(32, 4096, 32, 14336) | {"key_value_heads": 8, "max_positions": 32768, "epsilon": 1e-5}

SIZES = {
    "mistral-7b": _SEVEN | {"attention": {"window": 4096}},
    "mistral-7b-v0.3": _SEVEN | {"vocabulary": 32768} | llama.MILLION,
}


def _from_hf_extra(hf: Values) -> Values:
    size = window(hf, 4096)
    if hf.get("layer_types") and size is not None:
        raise ConfigError(
            f"layer_types beside sliding_window = {size} is not known of mistral models here",
            "leave layer_types out: all layers of a mistral model see the same",
        )
    return llama.gated(hf) | {"attention": ExactShape(window=size)}


def _to_hf_extra(config: TransformerConfig) -> Values:
    return llama.written_gated(config) | {"sliding_window": windows(config)[1]}


FAMILY = Family(
    name="mistral",
    model_type="mistral",
    paper="Jiang et al. 2023",
    objective="language_modelling",
    shape=llama.SHAPE,
    sizes=SIZES,
    keys=llama.KEYS
    | {
        "key_value_heads": ("num_key_value_heads", 8),
        "feedforward_width": ("intermediate_size", 14336),
        "max_positions": ("max_position_embeddings", 2**17),
    },
    fixed={},
    architectures={"tokens": "MistralForCausalLM"},
    body="model.",
    names=lambda config: llama.NAMES,
    patterns=("sliding_window",),
    copies=llama.FAMILY.copies,
    dropped=llama.FAMILY.dropped,
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

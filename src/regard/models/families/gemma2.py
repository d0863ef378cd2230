"""Gemma 2 (Gemma Team 2024): windows in every other layer, four norms a layer, and nothing beyond a soft cap.

Norms stand before and behind every sublayer, their weights kept as what they differ from 1 by. Scores and logits are
bent, `c · tanh(x / c)`; scores are divided by a root of its own, and embeddings multiplied by √width.
"""

from regard.attention.projections import PROJECTIONS
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families import llama
from regard.models.families.family import Family, Names, Values, in_each_layer
from regard.models.families.layer_types import FULL, SLIDING, attention, kinds, per_layer, window, windows
from regard.models.families.reading import choice, count, flag, number
from regard.models.families.rope import read_rope, write_rope

SHAPE = llama.SHAPE | {
    "norm": "rms_offset",
    "norm_placement": "sandwich",
    "feedforward": "geglu_tanh",
    "scale_embeddings": True,
    "tie_embeddings": True,
}
WINDOW = 4096
CAPPED: Values = {"softcap": 50.0}


def _size(layers: int, width: int, heads: int, inner: int, head_width: int, own: Values) -> Values:
    sizes = llama.size(layers, width, heads, inner) | {"key_value_heads": heads // 2, "head_width": head_width}
    listed = [own | {"window": WINDOW}, own]
    return {**sizes, "max_positions": 8192, "vocabulary": 256000, "output_softcap": 30.0, "attention": listed}


SIZES = {
    "gemma2-2b": _size(26, 2304, 8, 9216, 256, CAPPED),
    "gemma2-9b": _size(42, 3584, 16, 14336, 256, CAPPED),
    "gemma2-27b": _size(46, 4608, 32, 36864, 128, CAPPED | {"scale": 144**-0.5}),
}

KEYS = llama.KEYS | {
    "width": ("hidden_size", 2304),
    "layers": ("num_hidden_layers", 26),
    "heads": ("num_attention_heads", 8),
    "key_value_heads": ("num_key_value_heads", 4),
    "head_width": ("head_dim", 256),
    "feedforward_width": ("intermediate_size", 9216),
    "max_positions": ("max_position_embeddings", 8192),
    "tie_embeddings": ("tie_word_embeddings", True),
    "vocabulary": ("vocab_size", 256000),
}

LAYER = llama.LAYER | {
    "self_residual.made_norm": "post_attention_layernorm",
    "feedforward_residual.norm": "pre_feedforward_layernorm",
    "feedforward_residual.made_norm": "post_feedforward_layernorm",
}
NAMES: Names = {**llama.NAMES, **in_each_layer("decoder", "model.layers", LAYER)}


def cap(hf: Values, key: str, usual: float | None) -> float | None:
    """A soft cap, or None where null is said."""
    value = None if hf.get(key, usual) is None else number(hf, key, usual)
    if value is not None and value <= 0:
        raise ConfigError(f"{key} = {value:g} is no cap", "copy config.json again")
    return value


def scores(hf: Values) -> Values:
    """What is done to queries, keys and scores in all layers alike."""
    divisor, head_width = number(hf, "query_pre_attn_scalar", 256.0), count(hf, "head_dim", 256)
    if divisor <= 0:
        raise ConfigError(f"query_pre_attn_scalar = {divisor:g} has no root", "copy config.json again")
    return {
        "scale": None if divisor == head_width else divisor**-0.5,
        "biases": PROJECTIONS if flag(hf, "attention_bias", False) else None,
    }


def shared(hf: Values, usual: float | None) -> Values:
    """What Gemma 2 and 3 say alike."""
    inner = choice(hf, "hidden_activation", "gelu_pytorch_tanh", llama.GATES)
    return {"feedforward": inner, "output_softcap": cap(hf, "final_logit_softcapping", usual)}


def written(config: TransformerConfig) -> Values:
    """And back, with the layers."""
    first = per_layer(config)[0]  # where others differ from it, `lacking` finds it
    said, sliding = windows(config)
    gates = {"geglu_tanh": "gelu_pytorch_tanh", "geglu": "gelu", "swiglu": "silu"}
    return {
        "hidden_activation": gates.get(config.feedforward, "gelu_pytorch_tanh"),
        "query_pre_attn_scalar": config.head_width if first.scale is None else max(1, round(first.scale**-2)),
        "attn_logit_softcapping": first.softcap,
        "final_logit_softcapping": config.output_softcap,
        "attention_bias": llama.attention_bias(config),
        "layer_types": said,
        "sliding_window": sliding or WINDOW,
    }


def _from_hf_extra(hf: Values) -> Values:
    own, sliding = scores(hf) | {"softcap": cap(hf, "attn_logit_softcapping", 50.0)}, window(hf, WINDOW)
    usual = [FULL if layer % 2 else SLIDING for layer in range(count(hf, "num_hidden_layers", 26))]
    listed = attention(kinds(hf, usual, sliding), {FULL: own, SLIDING: own | {"window": sliding}})
    return shared(hf, 30.0) | {"rotary": read_rope(hf), "attention": listed}


def _to_hf_extra(config: TransformerConfig) -> Values:
    return written(config) | {"rope_parameters": write_rope(config.rotary)}


FAMILY = Family(
    name="gemma2",
    model_type="gemma2",
    paper="Gemma Team 2024",
    objective="language_modelling",
    shape=SHAPE,
    sizes=SIZES,
    keys=KEYS,
    fixed={},
    architectures={"tokens": "Gemma2ForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    patterns=("sliding_window", "layer_types"),
    copies=llama.FAMILY.copies,
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

"""LLaMA (Touvron et al. 2023): a decoder with RMS norms, rotary positions, gated feed-forward, and no biases."""

from regard.attention.rotary import PLAIN
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.family import Family, Names, Values, in_each_layer
from regard.models.families.reading import choice, count, flag, number, table, whole

SHAPE: Values = {
    "architecture": "decoder",
    "norm": "rms",
    "norm_placement": "pre",
    "feedforward": "swiglu",
    "positions": "rotary",
    "bias": False,
    "dropout": 0.0,
    "scale_embeddings": False,
    "tie_embeddings": False,
    "init": "normal",
}


def _size(layers: int, width: int, heads: int, inner: int) -> Values:
    sizes = {"layers": layers, "width": width, "heads": heads, "feedforward_width": inner}
    return {**sizes, "max_positions": 2048, "vocabulary": 32000}


_THREE = {"key_value_heads": 8, "max_positions": 8192, "vocabulary": 128256}
_TURNS = {"rotary": {"base": 500_000.0}}

SIZES = {
    "llama-7b": _size(32, 4096, 32, 11008),
    "llama-13b": _size(40, 5120, 40, 13824),
    "llama-65b": _size(80, 8192, 64, 22016),
    "llama2-7b": _size(32, 4096, 32, 11008) | {"max_positions": 4096},
    "llama2-70b": _size(80, 8192, 64, 28672) | {"max_positions": 4096, "key_value_heads": 8},
    "llama3-8b": _size(32, 4096, 32, 14336) | _THREE | _TURNS,
    "llama3-70b": _size(80, 8192, 64, 28672) | _THREE | _TURNS,
}

LAYER = {
    "self_residual.norm": "input_layernorm",
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.o_proj",
    "feedforward_residual.norm": "post_attention_layernorm",
    "feedforward.gate": "mlp.gate_proj",
    "feedforward.up": "mlp.up_proj",
    "feedforward.down": "mlp.down_proj",
}

GATES = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}
GATES |= {"gelu_new": "geglu_tanh", "gelu_pytorch_tanh": "geglu_tanh"}
"""Hugging Face's hidden_act → Regard's feedforward; of several for one, the first is written."""

NAMES: Names = {
    "embedding": "model.embed_tokens",
    **in_each_layer("decoder", "model.layers", LAYER),
    "decoder.norm": "model.norm",
    "output": "lm_head",
}


def _from_hf_extra(hf: Values) -> Values:
    given = table(hf, "rope_scaling", "rope_parameters")  # transformers lets the old name win
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise ConfigError(f"rotary positions of the type {kind!r} are not known here", "use default, linear or llama3")
    rotary = {
        "base": number(given if "rope_theta" in given else hf, "rope_theta", PLAIN.base),
        "scaling": "none" if kind == "default" else kind,
        "factor": number(given, "factor", None) if kind != "default" else PLAIN.factor,
    }
    if kind == "llama3":
        rotary |= {
            "low_frequency_factor": number(given, "low_freq_factor", None),
            "high_frequency_factor": number(given, "high_freq_factor", None),
        }
        rotary |= {"original_max_positions": number(given, "original_max_position_embeddings", None)}
    biases = flag(hf, "attention_bias", False), flag(hf, "mlp_bias", False)
    if biases[0] != biases[1]:
        raise ConfigError("biases in the attention or the feed-forward alone are not known here", "have both or none")
    width, heads = count(hf, "hidden_size", 4096), count(hf, "num_attention_heads", 32)
    own = whole(hf, "head_dim", None)
    return {
        "feedforward": choice(hf, "hidden_act", "silu", GATES),
        "rotary": rotary,
        "bias": biases[0],
        "head_width": None if own in (None, width // heads) else own,
    }


def _to_hf_extra(config: TransformerConfig) -> Values:
    turns = config.rotary
    rope: Values = {"rope_theta": turns.base, "rope_type": "default" if turns.scaling == "none" else turns.scaling}
    if turns.scaling != "none":
        rope["factor"] = turns.factor
    if turns.scaling == "llama3":
        rope |= {"low_freq_factor": turns.low_frequency_factor, "high_freq_factor": turns.high_frequency_factor}
        rope |= {"original_max_position_embeddings": turns.original_max_positions}
    return {
        "hidden_act": next((name for name, gate in GATES.items() if gate == config.feedforward), "silu"),
        "rope_parameters": rope,
        "head_dim": config.head_width,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
    }


FAMILY = Family(
    name="llama",
    model_type="llama",
    paper="Touvron et al. 2023",
    objective="language_modelling",
    shape=SHAPE,
    sizes=SIZES,
    keys={
        "width": ("hidden_size", 4096),
        "layers": ("num_hidden_layers", 32),
        "heads": ("num_attention_heads", 32),
        "key_value_heads": ("num_key_value_heads", None),
        "feedforward_width": ("intermediate_size", 11008),
        "max_positions": ("max_position_embeddings", 2048),
        "epsilon": ("rms_norm_eps", 1e-6),
        "attention_dropout": ("attention_dropout", 0.0),
        "tie_embeddings": ("tie_word_embeddings", False),
        "vocabulary": ("vocab_size", 32000),
    },
    fixed={},
    architectures={"tokens": "LlamaForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    dropped=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

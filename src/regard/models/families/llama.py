"""LLaMA (Touvron et al. 2023): a decoder with RMS norms, rotary positions, gated feed-forward, and no biases."""

from regard.attention.exact import ExactShape
from regard.attention.projections import PROJECTIONS
from regard.models.config import TransformerConfig
from regard.models.families.family import Family, Names, Values, in_each_layer
from regard.models.families.layer_types import per_layer
from regard.models.families.reading import choice, count, flag, whole
from regard.models.families.rope import read_rope, write_rope

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


def size(layers: int, width: int, heads: int, inner: int) -> Values:
    """A member with these; LLaMA's vocabulary and length, where nothing else is said beside."""
    sizes = {"layers": layers, "width": width, "heads": heads, "feedforward_width": inner}
    return {**sizes, "max_positions": 2048, "vocabulary": 32000}


_THREE = {"key_value_heads": 8, "max_positions": 8192, "vocabulary": 128256}
_TURNS = {"rotary": {"base": 500_000.0}}
MILLION: Values = {"rotary": {"base": 1_000_000.0}}

SIZES = {
    "llama-7b": size(32, 4096, 32, 11008),
    "llama-13b": size(40, 5120, 40, 13824),
    "llama-65b": size(80, 8192, 64, 22016),
    "llama2-7b": size(32, 4096, 32, 11008) | {"max_positions": 4096},
    "llama2-70b": size(80, 8192, 64, 28672) | {"max_positions": 4096, "key_value_heads": 8},
    "llama3-8b": size(32, 4096, 32, 14336) | _THREE | _TURNS,
    "llama3-70b": size(80, 8192, 64, 28672) | _THREE | _TURNS,
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

KEYS = {
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
}


def gated(hf: Values) -> Values:
    """What decoders of this kind share: the gate, how heads turn, how wide they are."""
    own, width, heads = (
        whole(hf, "head_dim", None),
        count(hf, "hidden_size", 4096),
        count(hf, "num_attention_heads", 32),
    )
    return {
        "feedforward": choice(hf, "hidden_act", "silu", GATES),
        "rotary": read_rope(hf),
        "head_width": None if own in (None, width // heads) else own,
    }


def written_gated(config: TransformerConfig) -> Values:
    """And back."""
    return {
        "hidden_act": next((name for name, gate in GATES.items() if gate == config.feedforward), "silu"),
        "rope_parameters": write_rope(config.rotary),
        "head_dim": config.head_width,
    }


def attention_bias(config: TransformerConfig) -> bool:
    """Whether the projections of the layers have biases: `lacking` sees where some of them differ."""
    return any(config.bias if one.biases is None else bool(one.biases) for one in per_layer(config))


def _from_hf_extra(hf: Values) -> Values:
    own, inner = flag(hf, "attention_bias", False), flag(hf, "mlp_bias", False)
    biases = {} if own == inner else {"attention": ExactShape(biases=PROJECTIONS if own else ())}
    return gated(hf) | {"bias": inner} | biases


def _to_hf_extra(config: TransformerConfig) -> Values:
    return written_gated(config) | {"attention_bias": attention_bias(config), "mlp_bias": config.bias}


FAMILY = Family(
    name="llama",
    model_type="llama",
    paper="Touvron et al. 2023",
    objective="language_modelling",
    shape=SHAPE,
    sizes=SIZES,
    keys=KEYS,
    fixed={},
    architectures={"tokens": "LlamaForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    dropped=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

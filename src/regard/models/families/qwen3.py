"""Qwen3 (Yang et al. 2025): Qwen2 without its biases; each head's queries and keys are normalised before they turn."""

from regard.attention.projections import PROJECTIONS
from regard.models.config import TransformerConfig
from regard.models.families import llama, qwen2
from regard.models.families.family import Family, Names, Values, in_each_layer
from regard.models.families.reading import count, flag

NORMS: Values = {"query_key_norm": "rms"}
_OWN: Values = {"head_width": 128, "max_positions": 40960}

SIZES = {
    "qwen3-0.6b": qwen2.size(28, 1024, 16, 3072, 8) | _OWN | qwen2.TIED,
    "qwen3-1.7b": qwen2.size(28, 2048, 16, 6144, 8) | _OWN | qwen2.TIED,
    "qwen3-4b": qwen2.size(36, 2560, 32, 9728, 8) | _OWN | qwen2.TIED,
    "qwen3-8b": qwen2.size(36, 4096, 32, 12288, 8) | _OWN,
    "qwen3-14b": qwen2.size(40, 5120, 40, 17408, 8) | _OWN,
    "qwen3-32b": qwen2.size(64, 5120, 64, 25600, 8) | _OWN,
}

NAMED_NORMS = in_each_layer(
    "decoder",
    "model.layers",
    {"self_attention.query_norm": "self_attn.q_norm", "self_attention.key_norm": "self_attn.k_norm"},
)
NAMES: Names = {**llama.NAMES, **NAMED_NORMS}


def _from_hf_extra(hf: Values) -> Values:
    biases: Values = {"biases": PROJECTIONS} if flag(hf, "attention_bias", False) else {}
    head_width = count(hf, "head_dim", 128)
    return llama.gated(hf | {"head_dim": head_width}) | qwen2.layers(hf, NORMS | biases)


def _to_hf_extra(config: TransformerConfig) -> Values:
    bias = {"attention_bias": llama.attention_bias(config)}
    return llama.written_gated(config) | qwen2.written_layers(config) | bias


FAMILY = Family(
    name="qwen3",
    model_type="qwen3",
    paper="Yang et al. 2025",
    objective="language_modelling",
    shape=llama.SHAPE | {"attention": NORMS},
    sizes=SIZES,
    keys=qwen2.KEYS,
    fixed={},
    architectures={"tokens": "Qwen3ForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    patterns=("sliding_window", "layer_types"),
    copies=llama.FAMILY.copies,
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

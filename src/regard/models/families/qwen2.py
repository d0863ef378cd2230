"""Qwen2 (Yang et al. 2024): LLaMA whose queries, keys and values add a learnt vector; high layers may see a window."""

from regard.models.config import TransformerConfig
from regard.models.families import llama
from regard.models.families.family import Family, Values
from regard.models.families.layer_types import FULL, SLIDING, attention, kinds, window, windows
from regard.models.families.reading import count, flag, number

BIASES: Values = {"biases": ("query", "key", "value")}


def size(layers: int, width: int, heads: int, inner: int, shared: int) -> Values:
    """A member with `shared` key/value heads."""
    sizes = llama.size(layers, width, heads, inner) | llama.MILLION
    return {**sizes, "key_value_heads": shared, "vocabulary": 151936, "max_positions": 131072}


TIED: Values = {"tie_embeddings": True}

SIZES = {
    "qwen2-0.5b": size(24, 896, 14, 4864, 2) | TIED,
    "qwen2-1.5b": size(28, 1536, 12, 8960, 2) | TIED,
    "qwen2-7b": size(28, 3584, 28, 18944, 4) | {"vocabulary": 152064},
    "qwen2-72b": size(80, 8192, 64, 29568, 8) | {"vocabulary": 152064},
}

KEYS = llama.KEYS | {
    "key_value_heads": ("num_key_value_heads", 32),
    "feedforward_width": ("intermediate_size", 22016),
    "max_positions": ("max_position_embeddings", 32768),
    "vocabulary": ("vocab_size", 151936),
}


def layers(hf: Values, shape: Values) -> Values:
    """How each attends: to all before it, or to a window where one is said and the layer is high enough."""
    sliding = window(hf, 4096) if flag(hf, "use_sliding_window", False) else None
    first, all_layers = number(hf, "max_window_layers", 28.0), range(count(hf, "num_hidden_layers", 32))
    usual = [SLIDING if sliding is not None and layer >= first else FULL for layer in all_layers]
    return {"attention": attention(kinds(hf, usual, sliding), {FULL: shape, SLIDING: shape | {"window": sliding}})}


def written_layers(config: TransformerConfig) -> Values:
    """And back."""
    said, sliding = windows(config)
    first = next((layer for layer, kind in enumerate(said) if kind == SLIDING), len(said))
    slides = {"use_sliding_window": sliding is not None, "sliding_window": sliding, "max_window_layers": first}
    return {**slides, "layer_types": said}


def _from_hf_extra(hf: Values) -> Values:
    return llama.gated(hf) | layers(hf, BIASES)


def _to_hf_extra(config: TransformerConfig) -> Values:
    return llama.written_gated(config) | written_layers(config)


FAMILY = Family(
    name="qwen2",
    model_type="qwen2",
    paper="Yang et al. 2024",
    objective="language_modelling",
    shape=llama.SHAPE | {"attention": BIASES},
    sizes=SIZES,
    keys=KEYS,
    fixed={},
    architectures={"tokens": "Qwen2ForCausalLM"},
    body="model.",
    names=lambda config: llama.NAMES,
    patterns=("sliding_window", "layer_types"),
    copies=llama.FAMILY.copies,
    dropped=llama.FAMILY.dropped,
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

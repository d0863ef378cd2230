"""OPT (Zhang et al. 2022): GPT with ReLU; its positions begin two rows into their table."""

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.family import ACTIVATIONS, Family, Names, TensorSlot, Values, hf_activation, in_each_layer
from regard.models.families.reading import choice, count, whole

SHAPE: Values = {
    "architecture": "decoder",
    "norm_placement": "pre",
    "feedforward": "relu",
    "positions": "learned",
    "scale_embeddings": False,
    "init": "normal",
}


def _size(layers: int, width: int, heads: int) -> Values:
    return {"layers": layers, "width": width, "heads": heads, "max_positions": 2048, "vocabulary": 50272}


SIZES = {
    "opt-125m": _size(12, 768, 12),
    "opt-1.3b": _size(24, 2048, 32),
    "opt-2.7b": _size(32, 2560, 32),
    "opt-6.7b": _size(32, 4096, 32),
    "opt-13b": _size(40, 5120, 40),
    "opt-30b": _size(48, 7168, 56),
    "opt-66b": _size(64, 9216, 72),
}

LAYER = {
    "self_residual.norm": "self_attn_layer_norm",
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "feedforward_residual.norm": "final_layer_norm",
    "feedforward.up": "fc1",
    "feedforward.down": "fc2",
}

NAMES: Names = {
    "embedding": "model.decoder.embed_tokens",
    "decoder_positions.absolute": TensorSlot("model.decoder.embed_positions", skip_rows=2),
    **in_each_layer("decoder", "model.decoder.layers", LAYER),
    "decoder.norm": "model.decoder.final_layer_norm",
    "output": "lm_head",
}


def _from_hf_extra(hf: Values) -> Values:
    narrow, width = whole(hf, "word_embed_proj_dim", None), count(hf, "hidden_size", 768)
    if narrow not in (None, width):
        raise ConfigError(
            f"embeddings of {narrow} in a model of width {width} are not known here",
            "use a model whose word_embed_proj_dim is its hidden_size: all but opt-350m",
        )
    return {"feedforward": choice(hf, "activation_function", "relu", ACTIVATIONS)}


def _to_hf_extra(config: TransformerConfig) -> Values:
    return {"activation_function": hf_activation(config.feedforward), "word_embed_proj_dim": config.width}


FAMILY = Family(
    name="opt",
    model_type="opt",
    paper="Zhang et al. 2022",
    objective="language_modelling",
    shape=SHAPE,
    sizes=SIZES,
    keys={
        "width": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 12),
        "feedforward_width": ("ffn_dim", 3072),
        "max_positions": ("max_position_embeddings", 2048),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0),
        "tie_embeddings": ("tie_word_embeddings", True),
        "vocabulary": ("vocab_size", 50272),
    },
    fixed={
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
    },
    architectures={"tokens": "OPTForCausalLM"},
    body="model.",
    names=lambda config: NAMES,
    copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

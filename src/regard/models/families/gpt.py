"""GPT-2 (Radford et al. 2019): a decoder that predicts the next token; norms before the sublayers, learnt positions."""

from regard.models.config import TransformerConfig
from regard.models.families.family import ACTIVATIONS, Family, Names, TensorSlot, Values, hf_activation, in_each_layer
from regard.models.families.reading import choice

SHAPE: Values = {
    "architecture": "decoder",
    "norm_placement": "pre",
    "feedforward": "gelu_tanh",
    "positions": "learned",
    "scale_embeddings": False,
    "init": "normal",
}


def _size(layers: int, width: int, heads: int, longest: int = 1024) -> Values:
    return {"layers": layers, "width": width, "heads": heads, "max_positions": longest, "vocabulary": 50257}


SIZES = {
    "gpt2": _size(12, 768, 12),
    "gpt2-medium": _size(24, 1024, 16),
    "gpt2-large": _size(36, 1280, 20),
    "gpt2-xl": _size(48, 1600, 25),
    "gpt3": _size(96, 12288, 96, longest=2048),  # Brown et al. 2020, table 2.1; its sparse layers counted as dense
}

LAYER: Names = {
    "self_residual.norm": "ln_1",
    "self_attention.query": TensorSlot("attn.c_attn", part=0, of=3, transposed=True),
    "self_attention.key": TensorSlot("attn.c_attn", part=1, of=3, transposed=True),
    "self_attention.value": TensorSlot("attn.c_attn", part=2, of=3, transposed=True),
    "self_attention.output": TensorSlot("attn.c_proj", transposed=True),
    "feedforward_residual.norm": "ln_2",
    "feedforward.up": TensorSlot("mlp.c_fc", transposed=True),
    "feedforward.down": TensorSlot("mlp.c_proj", transposed=True),
}

NAMES: Names = {
    "embedding": "transformer.wte",
    "decoder_positions.absolute": "transformer.wpe",
    **in_each_layer("decoder", "transformer.h", LAYER),
    "decoder.norm": "transformer.ln_f",
    "output": "lm_head",
}


def _from_hf_extra(hf: Values) -> Values:
    return {"feedforward": choice(hf, "activation_function", "gelu_new", ACTIVATIONS)}


def _to_hf_extra(config: TransformerConfig) -> Values:
    return {"activation_function": hf_activation(config.feedforward), "embd_pdrop": config.dropout}


FAMILY = Family(
    name="gpt",
    model_type="gpt2",
    paper="Radford et al. 2019",
    objective="language_modelling",
    shape=SHAPE,
    sizes=SIZES,
    keys={
        "width": ("n_embd", 768),
        "layers": ("n_layer", 12),
        "heads": ("n_head", 12),
        "feedforward_width": ("n_inner", None),
        "max_positions": ("n_positions", 1024),
        "epsilon": ("layer_norm_epsilon", 1e-5),
        "dropout": ("resid_pdrop", 0.1),
        "attention_dropout": ("attn_pdrop", 0.1),
        "tie_embeddings": ("tie_word_embeddings", True),
        "vocabulary": ("vocab_size", 50257),
    },
    fixed={
        "add_cross_attention": False,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
    },
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    architectures={"tokens": "GPT2LMHeadModel"},
    body="transformer.",
    names=lambda config: NAMES,
    copies={"lm_head.weight": "transformer.wte.weight"},
    dropped=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

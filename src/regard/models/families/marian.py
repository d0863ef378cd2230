"""Marian (Junczys-Dowmunt et al. 2018): translators much like the Transformer of 2017, with one table for all."""

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.family import ACTIVATIONS, Family, Names, TensorSlot, Values, hf_activation, in_each_layer
from regard.models.families.reading import choice, count

SHAPE: Values = {
    "architecture": "encoder_decoder",
    "norm_placement": "post",
    "feedforward": "silu",
    "positions": "sinusoidal_halves",
    "scale_embeddings": True,
    "output_bias": True,
}

SIZES = {"marian-base": {"layers": 6, "width": 512, "heads": 8, "feedforward_width": 2048, "vocabulary": 58101}}


def _attention(name: str, hf: str, norm: str) -> dict[str, str]:
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return {**{f"{name}.{part}": f"{hf}.{other}" for part, other in names.items()}, norm: f"{hf}_layer_norm"}


OWN = {
    **_attention("self_attention", "self_attn", "self_residual.norm"),
    "feedforward.up": "fc1",
    "feedforward.down": "fc2",
    "feedforward_residual.norm": "final_layer_norm",
}

NAMES: Names = {
    "embedding": "model.shared",
    **in_each_layer("encoder", "model.encoder.layers", OWN),
    **in_each_layer(
        "decoder", "model.decoder.layers", OWN | _attention("cross_attention", "encoder_attn", "cross_residual.norm")
    ),
    "output.weight": "lm_head.weight",
    "output.bias": TensorSlot("final_logits_bias", squeeze=True),
}


def from_hf_extra(hf: Values) -> Values:
    """The activation; as many layers as there are on either side, and heads and inner widths alike on both."""
    for what in ("attention_heads", "ffn_dim"):
        sides = hf.get(f"encoder_{what}"), hf.get(f"decoder_{what}")
        if sides[0] != sides[1]:
            raise ConfigError(f"{what} of {sides[0]} and {sides[1]} on the two sides are not known here", "use one")
    layers, decoding = count(hf, "encoder_layers", 12), count(hf, "decoder_layers", 12)
    return {
        "feedforward": choice(hf, "activation_function", "gelu", ACTIVATIONS),
        "layers": decoding,
        "encoder_layers": None if layers == decoding else layers,
    }


def to_hf_extra(config: TransformerConfig) -> Values:
    """And back."""
    return {
        "activation_function": hf_activation(config.feedforward),
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.feedforward_width,
        "decoder_ffn_dim": config.feedforward_width,
        "is_encoder_decoder": True,
    }


FAMILY = Family(
    name="marian",
    model_type="marian",
    paper="Junczys-Dowmunt et al. 2018",
    objective="translation",
    shape=SHAPE,
    sizes=SIZES,
    keys={
        "width": ("d_model", 1024),
        "heads": ("encoder_attention_heads", 16),
        "feedforward_width": ("encoder_ffn_dim", 4096),
        "max_positions": ("max_position_embeddings", 1024),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0),
        "scale_embeddings": ("scale_embedding", False),
        "tie_embeddings": ("tie_word_embeddings", True),
        "vocabulary": ("vocab_size", 58101),
    },
    fixed={"share_encoder_decoder_embeddings": True},
    aliases={
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    },
    architectures={"tokens": "MarianMTModel"},
    body="model.",
    names=lambda config: NAMES,
    copies={
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
    dropped=(r"model\.(encoder|decoder)\.embed_positions\.weight",),
    zero=("final_logits_bias",),
    from_hf_extra=from_hf_extra,
    to_hf_extra=to_hf_extra,
)

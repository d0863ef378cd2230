"""T5 (Raffel et al. 2019): an encoder–decoder on text with pieces cut out; RMS norms, buckets of distance, no biases.

Its scores are not divided by √d_k. Version 1.1 has a gated feed-forward and an output of its own.
"""

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.family import ACTIVATIONS, Family, Names, Values, hf_activation, in_each_layer
from regard.models.families.reading import choice, count, flag, whole

SHAPE: Values = {
    "architecture": "encoder_decoder",
    "norm": "rms",
    "norm_placement": "pre",
    "feedforward": "relu",
    "similarity": "dot",
    "positions": "t5",
    "bias": False,
    "scale_embeddings": False,
    "scale_output": True,
}


def _size(layers: int, width: int, heads: int, inner: int, head_width: int | None = None) -> Values:
    sizes = {"layers": layers, "width": width, "heads": heads, "feedforward_width": inner}
    return {**sizes, "head_width": head_width, "vocabulary": 32128}


SIZES = {
    "t5-small": _size(6, 512, 8, 2048),
    "t5-base": _size(12, 768, 12, 3072),
    "t5-large": _size(24, 1024, 16, 4096),
    "t5-3b": _size(24, 1024, 32, 16384, head_width=128),
    "t5-11b": _size(24, 1024, 128, 65536, head_width=128),
}

GATED = {"gelu": "geglu", "gelu_tanh": "geglu_tanh", "silu": "swiglu"}
"""An activation → the feed-forward with a gate of it."""


def _attention(name: str, hf: str) -> dict[str, str]:
    return {f"{name}.{part}": f"{hf}.{part[0]}" for part in ("query", "key", "value", "output")}


def _feedforward(layer: str, *, gated: bool) -> dict[str, str]:
    up = {"feedforward.up": f"{layer}.DenseReluDense.wi"}
    if gated:
        up = {"feedforward.gate": f"{layer}.DenseReluDense.wi_0", "feedforward.up": f"{layer}.DenseReluDense.wi_1"}
    down = {"feedforward.down": f"{layer}.DenseReluDense.wo", "feedforward_residual.norm": f"{layer}.layer_norm"}
    return {**up, **down}


def _names(config: TransformerConfig) -> Names:
    gated = config.feedforward in GATED.values()
    own = {**_attention("self_attention", "layer.0.SelfAttention"), "self_residual.norm": "layer.0.layer_norm"}
    cross = {**_attention("cross_attention", "layer.1.EncDecAttention"), "cross_residual.norm": "layer.1.layer_norm"}
    first = "block.0.layer.0.SelfAttention.relative_attention_bias"
    return {
        "embedding": "shared",
        "encoder_positions.bias.terms": f"encoder.{first}",
        "decoder_positions.bias.terms": f"decoder.{first}",
        **in_each_layer("encoder", "encoder.block", own | _feedforward("layer.1", gated=gated)),
        **in_each_layer("decoder", "decoder.block", own | cross | _feedforward("layer.2", gated=gated)),
        "encoder.norm": "encoder.final_layer_norm",
        "decoder.norm": "decoder.final_layer_norm",
        "output": "lm_head",
    }


def _read_feedforward(hf: Values) -> str:
    """Of `relu` or `gated-gelu`, where GELU is its tanh approximation; two other keys, where they are there, win."""
    said = hf.get("feed_forward_proj", "relu")
    gate, _, activation = str(said).rpartition("-")
    if not isinstance(said, str) or gate not in ("", "gated"):
        raise ConfigError(f"feed_forward_proj = {said!r} is not known here", "use gated-gelu, gated-silu or relu")
    known = {"dense_act_fn": "gelu_new" if said == "gated-gelu" else activation, "is_gated_act": bool(gate)}
    known |= {key: hf[key] for key in known if key in hf}
    name = choice(known, "dense_act_fn", "relu", ACTIVATIONS)
    if not flag(known, "is_gated_act", False):
        return name
    if name not in GATED:
        raise ConfigError(f"feed_forward_proj = {said!r} is not known here", "use gated-gelu, gated-silu or relu")
    return GATED[name]


def _from_hf_extra(hf: Values) -> Values:
    layers, decoding = count(hf, "num_layers", 6), whole(hf, "num_decoder_layers", None)
    width, heads, own = count(hf, "d_model", 512), count(hf, "num_heads", 8), count(hf, "d_kv", 64)
    tied = flag(hf, "tie_word_embeddings", True)
    return {
        "feedforward": _read_feedforward(hf),
        "layers": decoding or layers,
        "encoder_layers": None if decoding in (None, layers) else layers,
        "head_width": None if own * heads == width else own,
        "scale_output": flag(hf, "scale_decoder_outputs", tied),
    }


def _to_hf_extra(config: TransformerConfig) -> Values:
    gated = next((name for name, gate in GATED.items() if gate == config.feedforward), None)
    activation = hf_activation(gated or config.feedforward)
    return {
        "feed_forward_proj": f"gated-{activation.removesuffix('_new')}" if gated else activation,
        "dense_act_fn": activation,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.layers,
        "d_kv": config.head_width,
        "dropout_rate": config.dropout,
        "scale_decoder_outputs": config.scale_output,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


FAMILY = Family(
    name="t5",
    model_type="t5",
    paper="Raffel et al. 2019",
    objective="denoising",
    shape=SHAPE,
    sizes=SIZES,
    keys={
        "width": ("d_model", 512),
        "heads": ("num_heads", 8),
        "feedforward_width": ("d_ff", 2048),
        "epsilon": ("layer_norm_epsilon", 1e-6),
        "dropout": ("dropout_rate", 0.1),
        "attention_dropout": ("dropout_rate", 0.1),
        "relative_buckets": ("relative_attention_num_buckets", 32),
        "relative_distance": ("relative_attention_max_distance", 128),
        "tie_embeddings": ("tie_word_embeddings", True),
        "vocabulary": ("vocab_size", 32128),
    },
    fixed={},
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    architectures={"tokens": "T5ForConditionalGeneration"},
    body="",
    names=_names,
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    dropped=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

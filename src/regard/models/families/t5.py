"""T5 (Raffel et al. 2019): an encoder–decoder on text with pieces cut out; RMS norms, buckets of distance, no biases.

Its scores are not divided by √d_k. Version 1.1 has a gated feed-forward and an output of its own.
"""

from regard.models.config import TransformerConfig
from regard.models.families.family import Family, Names, Values, in_each_layer
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
    "output_scaled": True,
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

FEEDFORWARDS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
"""Their feed_forward_proj → our feedforward."""


def _attention(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.{name}": f"{theirs}.{name[0]}" for name in ("query", "key", "value", "output")}


def _feedforward(layer: str, *, gated: bool) -> dict[str, str]:
    up = {"feedforward.up": f"{layer}.DenseReluDense.wi"}
    if gated:
        up = {"feedforward.gate": f"{layer}.DenseReluDense.wi_0", "feedforward.up": f"{layer}.DenseReluDense.wi_1"}
    down = {"feedforward.down": f"{layer}.DenseReluDense.wo", "feedforward_residual.norm": f"{layer}.layer_norm"}
    return {**up, **down}


def _names(config: TransformerConfig) -> Names:
    gated = config.feedforward != "relu"
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


def _read_odd(theirs: Values) -> Values:
    layers, decoding = count(theirs, "num_layers", 6), whole(theirs, "num_decoder_layers", None)
    width, heads, own = count(theirs, "d_model", 512), count(theirs, "num_heads", 8), count(theirs, "d_kv", 64)
    tied = flag(theirs, "tie_word_embeddings", True)
    return {
        "feedforward": choice(theirs, "feed_forward_proj", "relu", FEEDFORWARDS),
        "layers": decoding or layers,
        "encoder_layers": None if decoding in (None, layers) else layers,
        "head_width": None if own * heads == width else own,
        "output_scaled": flag(theirs, "scale_decoder_outputs", tied),
    }


def _write_odd(config: TransformerConfig) -> Values:
    kind = next((theirs for theirs, ours in FEEDFORWARDS.items() if ours == config.feedforward), "relu")
    return {
        "feed_forward_proj": kind,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.layers,
        "d_kv": config.head_width,
        "dropout_rate": config.dropout,
        "scale_decoder_outputs": config.output_scaled,
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
    architectures={"tokens": "T5ForConditionalGeneration"},
    body="",
    names=_names,
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    dropped=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    from_hf_extra=_read_odd,
    to_hf_extra=_write_odd,
)

"""BART (Lewis et al. 2019): an encoder–decoder that mends spoilt text; the Transformer of 2017 with learnt positions.

Both stacks normalise their embeddings, and both tables of positions begin with two rows that no text reaches. Texts
that are written begin with the token that ends them.
"""

from regard.models.config import TransformerConfig
from regard.models.families import marian
from regard.models.families.family import Family, Names, TensorSlot, Values

SHAPE: Values = {
    "architecture": "encoder_decoder",
    "norm_placement": "post",
    "feedforward": "gelu",
    "positions": "learned",
    "embedding_norm": True,
    "scale_embeddings": False,
    "output_bias": True,
    "init": "normal",
}


def _size(layers: int, width: int, vocabulary: int = 50265) -> Values:
    sizes = {"layers": layers, "width": width, "heads": width // 64, "feedforward_width": 4 * width}
    return {**sizes, "max_positions": 1024, "vocabulary": vocabulary}


SIZES = {
    "bart-base": _size(6, 768),
    "bart-large": _size(12, 1024),
    "bart-large-cnn": _size(12, 1024, vocabulary=50264),
}

NAMES: Names = {
    **marian.NAMES,
    "encoder_positions.absolute": TensorSlot("model.encoder.embed_positions", skip_rows=2),
    "decoder_positions.absolute": TensorSlot("model.decoder.embed_positions", skip_rows=2),
    "embedding_norm": "model.encoder.layernorm_embedding",
    "target_norm": "model.decoder.layernorm_embedding",
}


def _to_hf_extra(config: TransformerConfig) -> Values:
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    return marian.to_hf_extra(config) | ids


FAMILY = Family(
    name="bart",
    model_type="bart",
    paper="Lewis et al. 2019",
    objective="denoising",
    shape=SHAPE,
    sizes=SIZES,
    keys={**marian.FAMILY.keys, "vocabulary": ("vocab_size", 50265)},
    fixed={},
    aliases=marian.FAMILY.aliases,
    architectures={"tokens": "BartForConditionalGeneration"},
    body="model.",
    names=lambda config: NAMES,
    copies=marian.FAMILY.copies,
    zero=marian.FAMILY.zero,
    from_hf_extra=marian.from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

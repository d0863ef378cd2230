"""BERT (Devlin et al. 2018): an encoder that fills in masked words; norms after the sublayers, segments, a pooler."""

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families.family import ACTIVATIONS, Family, Names, Values, hf_activation, in_each_layer
from regard.models.families.reading import choice
from regard.models.network import Head

SHAPE: Values = {
    "architecture": "encoder",
    "norm_placement": "post",
    "epsilon": 1e-12,
    "feedforward": "gelu",
    "positions": "learned",
    "segments": 2,
    "embedding_norm": True,
    "scale_embeddings": False,
    "output_bias": True,
    "head": "masked",
    "init": "normal",
}


def size(layers: int, width: int, vocabulary: int = 30522) -> Values:
    """A BERT of so many layers and so wide; its heads have 64 numbers each."""
    return {"layers": layers, "width": width, "heads": width // 64, "vocabulary": vocabulary}


SIZES = {
    "bert-tiny": size(2, 128),
    "bert-small": size(4, 512),
    "bert-base": size(12, 768),
    "bert-large": size(24, 1024),
    "minilm-l6": size(6, 384) | {"heads": 12, "head": "none", "output_bias": False, "pooled": True},
}

LAYER = {
    "self_attention.query": "attention.self.query",
    "self_attention.key": "attention.self.key",
    "self_attention.value": "attention.self.value",
    "self_attention.output": "attention.output.dense",
    "self_residual.norm": "attention.output.LayerNorm",
    "feedforward.up": "intermediate.dense",
    "feedforward.down": "output.dense",
    "feedforward_residual.norm": "output.LayerNorm",
}


def body(prefix: str) -> Names:
    """The names of all but the head; RoBERTa's are the same but for what they begin with."""
    return {
        "embedding": f"{prefix}embeddings.word_embeddings",
        "encoder_positions.absolute": f"{prefix}embeddings.position_embeddings",
        "segments": f"{prefix}embeddings.token_type_embeddings",
        "embedding_norm": f"{prefix}embeddings.LayerNorm",
        **in_each_layer("encoder", f"{prefix}encoder.layer", LAYER),
        "pooler.linear": f"{prefix}pooler.dense",
    }


def classes(prefix: str) -> dict[Head, str]:
    """Hugging Face's class for each head."""
    endings: dict[Head, str] = {"none": "Model", "masked": "ForMaskedLM"}
    endings |= {"labels": "ForSequenceClassification", "spans": "ForQuestionAnswering"}
    return {head: prefix + ending for head, ending in endings.items()}


HEADS: dict[str, Names] = {
    "none": {},
    "masked": {
        "output.change.linear": "cls.predictions.transform.dense",
        "output.change.norm": "cls.predictions.transform.LayerNorm",
        "output.weight": "cls.predictions.decoder.weight",
        "output.bias": "cls.predictions.bias",
    },
    "labels": {"output": "classifier"},
    "spans": {"output": "qa_outputs"},
}

UNTIED: Names = {"output.bias": "cls.predictions.decoder.bias"}
"""An output of its own has a bias of its own, and the one above is then never read."""

KEYS = {
    "width": ("hidden_size", 768),
    "layers": ("num_hidden_layers", 12),
    "heads": ("num_attention_heads", 12),
    "feedforward_width": ("intermediate_size", 3072),
    "max_positions": ("max_position_embeddings", 512),
    "epsilon": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "segments": ("type_vocab_size", 2),
    "tie_embeddings": ("tie_word_embeddings", True),
    "vocabulary": ("vocab_size", 30522),
}

FIXED = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def from_hf_extra(hf: Values) -> Values:
    """The activation, and a bias on the output where there is one over the vocabulary."""
    masked = "Mask" in str(hf.get("architectures")) or "PreTraining" in str(hf.get("architectures"))
    return {"feedforward": choice(hf, "hidden_act", "gelu", ACTIVATIONS), "output_bias": masked}


def to_hf_extra(config: TransformerConfig) -> Values:
    """The activation; that there are segments."""
    if config.segments < 1:
        raise ConfigError("an encoder without segments is no BERT", "give it a table of segments, all zero")
    return {"hidden_act": hf_activation(config.feedforward)}


def _names(config: TransformerConfig) -> Names:
    own = UNTIED if config.head == "masked" and not config.tie_embeddings else {}
    return {**body("bert."), **HEADS[config.head], **own}


FAMILY = Family(
    name="bert",
    model_type="bert",
    paper="Devlin et al. 2018",
    objective="masked",
    shape=SHAPE,
    sizes=SIZES,
    keys=KEYS,
    fixed=FIXED,
    architectures=classes("Bert"),
    body="bert.",
    names=_names,
    copies={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    dropped=(r"bert\.embeddings\.position_ids", r"cls\.seq_relationship\..*", r"cls\.predictions\.bias"),
    from_hf_extra=from_hf_extra,
    to_hf_extra=to_hf_extra,
)

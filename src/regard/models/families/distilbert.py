"""DistilBERT (Sanh et al. 2019): half of BERT's layers, taught by it, without segments and without a pooler.

A classifier's first vector goes through a linear layer and ReLU, where BERT's goes through tanh.
"""

from regard.models.config import TransformerConfig
from regard.models.families import bert
from regard.models.families.family import ACTIVATIONS, Family, Names, Values, hf_activation, in_each_layer
from regard.models.families.reading import architecture, choice
from regard.models.network import Head

LAYER = {
    "self_attention.query": "attention.q_lin",
    "self_attention.key": "attention.k_lin",
    "self_attention.value": "attention.v_lin",
    "self_attention.output": "attention.out_lin",
    "self_residual.norm": "sa_layer_norm",
    "feedforward.up": "ffn.lin1",
    "feedforward.down": "ffn.lin2",
    "feedforward_residual.norm": "output_layer_norm",
}

BODY: Names = {
    "embedding": "distilbert.embeddings.word_embeddings",
    "encoder_positions.absolute": "distilbert.embeddings.position_embeddings",
    "embedding_norm": "distilbert.embeddings.LayerNorm",
    **in_each_layer("encoder", "distilbert.transformer.layer", LAYER),
}

HEADS: dict[Head, Names] = {
    "none": {},
    "masked": {
        "output.change.linear": "vocab_transform",
        "output.change.norm": "vocab_layer_norm",
        "output.weight": "vocab_projector.weight",
        "output.bias": "vocab_projector.bias",
    },
    "labels": {"pooler.linear": "pre_classifier", "output": "classifier"},
    "spans": {"output": "qa_outputs"},
}

CLASSES = bert.classes("DistilBert")


def _from_hf_extra(hf: Values) -> Values:
    given = architecture(hf)
    inner = {"feedforward": choice(hf, "activation", "gelu", ACTIVATIONS), "output_bias": given == CLASSES["masked"]}
    return inner | ({"pooler": "relu"} if given == CLASSES["labels"] else {})


def _to_hf_extra(config: TransformerConfig) -> Values:
    return {"activation": hf_activation(config.feedforward)}


FAMILY = Family(
    name="distilbert",
    model_type="distilbert",
    paper="Sanh et al. 2019",
    objective="masked",
    shape=bert.SHAPE | {"segments": 0},
    sizes={"distilbert-base": bert.size(6, 768), "distilbert-base-multilingual": bert.size(6, 768, vocabulary=119547)},
    keys={
        "width": ("dim", 768),
        "layers": ("n_layers", 6),
        "heads": ("n_heads", 12),
        "feedforward_width": ("hidden_dim", 3072),
        "max_positions": ("max_position_embeddings", 512),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "tie_embeddings": ("tie_word_embeddings", True),
        "vocabulary": ("vocab_size", 30522),
    },
    fixed={},
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    architectures=CLASSES,
    body="distilbert.",
    names=lambda config: {**BODY, **HEADS[config.head]},
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    dropped=(r"distilbert\.embeddings\.position_ids",),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

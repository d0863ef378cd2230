"""RoBERTa (Liu et al. 2019): BERT without next sentences; its positions begin two rows into their table."""

from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families import bert
from regard.models.families.family import Family, Names, TensorSlot, Values
from regard.models.families.reading import count

UNUSED = 2
"""Rows of the position table before the first, padding's and one below it: never read, so they come back as zeros."""

HEADS: dict[str, Names] = {
    "none": {},
    "masked": {
        "output.change.linear": "lm_head.dense",
        "output.change.norm": "lm_head.layer_norm",
        "output.weight": "lm_head.decoder.weight",
        "output.bias": "lm_head.bias",
    },
    "labels": {"pooler.linear": "classifier.dense", "output": "classifier.out_proj"},
    "spans": {"output": "qa_outputs"},
}


def _names(config: TransformerConfig) -> Names:
    places = {"encoder_positions.absolute": TensorSlot("roberta.embeddings.position_embeddings", skip_rows=UNUSED)}
    own = {"output.bias": "lm_head.decoder.bias"} if config.head == "masked" and not config.tie_embeddings else {}
    return {**bert.body("roberta."), **places, **HEADS[config.head], **own}


def _from_hf_extra(hf: Values) -> Values:
    rows = count(hf, "max_position_embeddings", 514)
    if rows <= UNUSED:
        raise ConfigError(
            f"max_position_embeddings = {rows} leaves no position: the first {UNUSED} are for padding", "copy it again"
        )
    values = bert.from_hf_extra(hf)
    if values["output_bias"] and values["feedforward"] != "gelu":
        raise ConfigError(
            f"hidden_act = {hf['hidden_act']!r} beside a head for masked words, which is gelu in every RoBERTa, "
            "is not known here",
            "use a BERT, or a RoBERTa with hidden_act = 'gelu'",
        )
    return values | {"max_positions": rows - UNUSED}


def _to_hf_extra(config: TransformerConfig) -> Values:
    return bert.to_hf_extra(config) | {"max_position_embeddings": config.max_positions + UNUSED}


FAMILY = Family(
    name="roberta",
    model_type="roberta",
    paper="Liu et al. 2019",
    objective="masked",
    shape=bert.SHAPE | {"segments": 1, "epsilon": 1e-5},
    sizes={
        "roberta-base": bert.size(12, 768, vocabulary=50265),
        "roberta-large": bert.size(24, 1024, vocabulary=50265),
    },
    keys=bert.KEYS,
    fixed=bert.FIXED | {"pad_token_id": UNUSED - 1},
    architectures=bert.classes("Roberta"),
    body="roberta.",
    names=_names,
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    dropped=(r"roberta\.embeddings\.position_ids", r"roberta\.pooler\..*", r"lm_head\.bias"),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

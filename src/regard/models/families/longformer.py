"""Longformer (Beltagy et al. 2020): RoBERTa that reads long documents, by windows and a few global tokens.

Which tokens are global is no part of Hugging Face's config: its classes choose them. A classifier's is the first,
whose vector is pooled; all of a question are, before the first separator; where words are filled in and where there is
no head, none is. A model with others is kept as Regard's.
"""

from typing import Any

from regard.attention.efficient.longformer_layer import LongformerShape
from regard.errors import ConfigError
from regard.models.config import TransformerConfig
from regard.models.families import bert, roberta
from regard.models.families.family import Family, Names, TensorSlot, Values, in_each_layer
from regard.models.families.reading import architecture, count

GLOBAL = {f"self_attention.global_{name}": f"attention.self.{name}_global" for name in ("query", "key", "value")}
UNUSED = roberta.UNUSED
SEPARATOR = 2
"""Its id in every published member."""


def _names(config: TransformerConfig) -> Names:
    places = {"encoder_positions.absolute": TensorSlot("longformer.embeddings.position_embeddings", skip_rows=UNUSED)}
    global_projections = in_each_layer("encoder", "longformer.encoder.layer", GLOBAL)
    own = {"output.bias": "lm_head.decoder.bias"} if config.head == "masked" and not config.tie_embeddings else {}
    return {**bert.body("longformer."), **global_projections, **places, **roberta.HEADS[config.head], **own}


def _chosen(hf: Values) -> Values:
    """The global tokens that Hugging Face's class of this name chooses."""
    name = architecture(hf) or ""
    before = hf.get("sep_token_id", SEPARATOR) if name.endswith("ForQuestionAnswering") else None
    return {"global_tokens": int(name.endswith("ForSequenceClassification")), "global_before": before}


def _from_hf_extra(hf: Values) -> Values:
    layers = count(hf, "num_hidden_layers", 12)
    given: Any = hf.get("attention_window", 512)
    windows = given if isinstance(given, list) else [given] * layers
    if len(windows) != layers or not all(_is_window(one) for one in windows):
        raise ConfigError(
            f"attention_window = {given!r} is no even number above 0 for each of {layers} layers", "copy it again"
        )
    shapes = tuple(LongformerShape(window=one // 2, **_chosen(hf)) for one in windows)
    period = next(size for size in range(1, layers + 1) if all(shapes[at] == shapes[at % size] for at in range(layers)))
    return roberta.FAMILY.from_hf_extra(hf) | {"attention": shapes[0] if period == 1 else shapes[:period]}


def _is_window(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value % 2 == 0


def _to_hf_extra(config: TransformerConfig) -> Values:
    listed = config.mechanisms("encoder")
    shapes = [listed[layer % len(listed)] for layer in range(config.layers)]
    windows = [2 * shape.window for shape in shapes if isinstance(shape, LongformerShape)]
    if len(windows) < len(shapes):
        others = ", ".join(sorted({shape.name for shape in shapes} - {"longformer"}))
        raise ConfigError(f"layers attend by {others}", "convert to a family whose layers do")
    before = {shape.global_before for shape in shapes if isinstance(shape, LongformerShape)}
    separators = [one for one in before if one is not None]
    separator = {"sep_token_id": separators[0]} if separators else {}
    return roberta.FAMILY.to_hf_extra(config) | {"attention_window": windows} | separator


FAMILY = Family(
    name="longformer",
    model_type="longformer",
    paper="Beltagy et al. 2020",
    objective="masked",
    shape=roberta.FAMILY.shape | {"attention": {"name": "longformer", "global_tokens": 0}, "max_positions": 4096},
    sizes={
        "longformer-base-4096": bert.size(12, 768, vocabulary=50265),
        "longformer-large-4096": bert.size(24, 1024, vocabulary=50265),
    },
    keys=bert.KEYS,
    fixed={"pad_token_id": UNUSED - 1},
    architectures=bert.classes("Longformer"),
    body="longformer.",
    names=_names,
    copies={
        "lm_head.decoder.weight": "longformer.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    dropped=(r"longformer\.embeddings\.position_ids", r"longformer\.pooler\..*", r"lm_head\.bias"),
    from_hf_extra=_from_hf_extra,
    to_hf_extra=_to_hf_extra,
)

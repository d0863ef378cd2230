"""Published families of models, each a page of composition over the same parts."""

from regard.models.families import (
    bart,
    bert,
    distilbert,
    gemma2,
    gemma3,
    gpt,
    llama,
    longformer,
    marian,
    mistral,
    opt,
    qwen2,
    qwen3,
    roberta,
    t5,
)
from regard.models.families.family import Family

ENCODERS = (bert, roberta, longformer, distilbert)
DECODERS = (gpt, opt, llama, mistral, qwen2, qwen3, gemma2, gemma3)
FAMILIES: dict[str, Family] = {page.FAMILY.name: page.FAMILY for page in (*ENCODERS, *DECODERS, t5, marian, bart)}

"""Published families of models, each a page of composition over the same parts."""

from regard.models.families import (
    bert,
    gemma2,
    gemma3,
    gpt,
    llama,
    longformer,
    marian,
    mistral,
    qwen2,
    qwen3,
    roberta,
    t5,
)
from regard.models.families.family import Family

FAMILIES: dict[str, Family] = {
    page.FAMILY.name: page.FAMILY
    for page in (bert, roberta, longformer, gpt, t5, llama, marian, mistral, qwen2, qwen3, gemma2, gemma3)
}

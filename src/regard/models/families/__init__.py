"""Published families of models, each a page of composition over the same parts."""

from regard.models.families import bert, gpt, llama, marian, roberta, t5
from regard.models.families.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family for family in (bert.FAMILY, roberta.FAMILY, gpt.FAMILY, t5.FAMILY, llama.FAMILY, marian.FAMILY)
}

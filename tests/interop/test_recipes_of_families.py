"""What the shipped recipes of part five train is something others read."""

import pytest
import torch

from regard.errors import ConfigError
from regard.interop.huggingface import fitting_family
from regard.interop.writing import with_segments
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import read_recipe

FAMILY = {"gpt-shakespeare": "llama", "masked": "bert", "sst": "bert", "squad": "bert", "denoising": "t5"}
LABELS = {"sst": ("bad", "good")}


@pytest.mark.parametrize("name", FAMILY)
def test_a_recipe_of_a_family_can_be_written_for_others(name: str) -> None:
    config = read_recipe(name).model.built_for(613, LABELS.get(name, ()))
    with torch.device("meta"):
        assert fitting_family(with_segments(config.build())).name == FAMILY[name]


@pytest.mark.parametrize(
    ("shape", "said", "nearest"),
    [
        (
            {"architecture": "decoder", "positions": "rotary", "norm": "rms"},
            'llama: it has feedforward = "swiglu", norm_placement = "pre", scale_embeddings = false',
            "llama",
        ),
        (
            {"architecture": "encoder", "positions": "learned", "segments": 2, "head": "masked"},
            "bert: it has embedding_norm = true, scale_embeddings = false, output_bias = true",
            "bert",
        ),
        ({"architecture": "encoder_decoder", "norm": "rms", "positions": "t5", "bias": False}, "t5: it has ", "t5"),
    ],
)
def test_what_others_have_instead_is_said(shape: dict[str, object], said: str, nearest: str) -> None:
    config = TransformerConfig(**{"layers": 1, "width": 16, "heads": 2, "vocabulary": 97, **shape})
    with torch.device("meta"), pytest.raises(ConfigError) as error:
        fitting_family(Transformer(config))
    assert said in error.value.problem
    assert error.value.remedy == f"train with the parts of {nearest}"

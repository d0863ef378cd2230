"""A folder of a family that is not read: the reason first, what is read, and what is built like it."""

import json

import pytest

import regard
from regard.errors import FileError
from regard.interop.huggingface import KIN, LACKING
from regard.models.families import FAMILIES

READ = f"this version reads {', '.join(sorted(family.model_type for family in FAMILIES.values()))}"
NEAREST = {
    "mbart": "bart",
    "albert": "bert",
    "mixtral": "mistral",
    "phi3": "llama",
    "gemma3": "gemma3_text",
    "mt5": "t5",
    "xlm-roberta": "roberta",
    "gpt_neox": "gpt2",
    "vit": None,
    "clip": None,
    "mamba": None,
    "nobody-knows": None,
}


@pytest.mark.parametrize("kind", NEAREST)
def test_the_family_is_the_reason_whatever_else_is_missing(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(FileError) as refused:
        regard.load(tmp_path)
    part = f" (it needs {LACKING[kind]})" if kind in LACKING else ""
    assert refused.value.problem.endswith(f"says model_type = {kind!r}, a family that is not known here{part}")
    kin = NEAREST[kind]
    assert refused.value.remedy == (f"take a {kin} model, which is built much like it: {READ}" if kin else READ)


def test_kin_are_families_that_are_read_and_others_that_are_not():
    known = {family.model_type for family in FAMILIES.values()}
    assert KIN.keys() <= known
    assert known.isdisjoint(kind for kinds in KIN.values() for kind in kinds)
    assert known.isdisjoint(LACKING)


def test_what_no_family_has_is_the_reason_before_a_missing_tokenizer(tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "sliding_window": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileError, match="sliding_window = 4096 changes what each token attends to"):
        regard.load(tmp_path)

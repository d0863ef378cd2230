"""Hugging Face's model folders, both ways: config.json and safetensors.

Weights are read tensor by tensor, so that loading takes their size and one tensor more.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from regard.errors import ConfigError, FileError
from regard.files import read_json, write_json
from regard.interop.names import PLAIN, WeightReader, hf_tensors
from regard.interop.tensors import opened
from regard.models.checkpoint import CONFIG, WEIGHTS, is_own, save_tensors
from regard.models.config import TransformerConfig, transformer_config
from regard.models.families import FAMILIES
from regard.models.families.family import Family
from regard.models.lora import merged_state
from regard.models.network import Network

NO_IDS: Mapping[str, int | None] = MappingProxyType({})
KIN: Mapping[str, tuple[str, ...]] = {
    "bert": ("electra", "albert", "mobilebert", "modernbert", "deberta", "deberta-v2", "mpnet", "ernie"),
    "roberta": ("xlm-roberta", "camembert", "xlm", "flaubert", "roformer", "data2vec-text", "xmod"),
    "gpt2": ("openai-gpt", "gpt_neo", "gptj", "gpt_neox", "gpt_bigcode", "bloom", "codegen", "falcon", "mpt"),
    "llama": ("phi", "phi3", "olmo", "olmo2", "smollm3", "granite", "stablelm", "cohere", "glm"),
    "mistral": ("mixtral", "ministral", "mistral3"),
    "qwen2": ("qwen2_moe", "qwen2_vl", "qwen2_5_vl"),
    "qwen3": ("qwen3_moe", "qwen3_next", "qwen3_vl"),
    "gemma2": ("gemma", "recurrent_gemma"),
    "gemma3_text": ("gemma3", "gemma3n", "gemma3n_text"),
    "bart": ("mbart", "pegasus", "blenderbot", "blenderbot-small", "led", "plbart"),
    "marian": ("m2m_100", "fsmt", "nllb-moe"),
    "t5": ("mt5", "umt5", "longt5", "switch_transformers", "byt5", "t5gemma", "udop"),
}
"""Families that are read, and others that are built much like them."""
LACKING: Mapping[str, str] = MappingProxyType(
    {
        "albert": "layers that share their weights",
        "modernbert": "norms without biases and a first layer without its norm",
        "deberta": "scores of contents and distances apart",
        "deberta-v2": "scores of contents and distances apart",
        "electra": "embeddings narrower than the layers",
        "mobilebert": "layers that narrow and widen",
        "mpnet": "T5's distances in an encoder of BERT's kind",
        "gpt_neox": "attention and feed-forward side by side",
        "gptj": "attention and feed-forward side by side",
        "falcon": "attention and feed-forward side by side",
        "phi": "attention and feed-forward side by side",
        "cohere": "attention and feed-forward side by side",
        "codegen": "attention and feed-forward side by side",
        "gpt_bigcode": "GPT-2 with one key/value head, by names of its own",
        "bloom": "embeddings that are normalised before ALiBi",
        "mpt": "ALiBi with norms without biases",
        "phi3": "queries, keys and values in one matrix, and longrope",
        "olmo2": "norms behind the sublayers alone",
        "mixtral": "experts",
        "qwen2_moe": "experts",
        "qwen3_moe": "experts",
        "switch_transformers": "experts",
        "nllb-moe": "experts",
        "qwen2_vl": "a tower for images",
        "qwen2_5_vl": "a tower for images",
        "qwen3_vl": "a tower for images",
        "gemma3": "a tower for images; of Gemma 3 the text models are read, gemma3_text",
        "qwen3_next": "gated delta layers",
        "recurrent_gemma": "recurrent layers",
        "gemma": "norms before the sublayers alone, with their weights as offsets",
        "mamba": "state-space layers",
        "mamba2": "state-space layers",
        "rwkv": "recurrent layers",
        "mbart": "norms before the sublayers beside normalised embeddings",
        "longt5": "local and transient global attention in an encoder with T5's distances",
        "led": "Longformer's attention beside a decoder",
        "vit": "patches of images",
        "clip": "a tower for images",
    }
)
"""Families that are not read → the part of them that is missing here, where it is known."""
_REMEDY = "give the folder of a trained model, with config.json and model.safetensors"


def is_huggingface(folder: Path) -> bool:
    """Whether a folder has a config.json that is not Regard's."""
    return os.path.isdir(folder) and not is_own(_config(folder))


def family_of(folder: Path) -> Family:
    """The family a folder's config.json names."""
    kind = _config(folder).get("model_type")
    known = {family.model_type: family for family in FAMILIES.values()}
    if kind is None:
        raise FileError(f"{folder / CONFIG} does not say its model_type", _REMEDY)
    if not isinstance(kind, str):
        raise FileError(f"{folder / CONFIG} says model_type = {str(kind)[:80]}, which is no name", _REMEDY)
    if kind not in known:
        read = f"this version reads {', '.join(sorted(known))}"
        kin = next((names for names, kinds in KIN.items() if kind in kinds), None)
        remedy = f"take a {kin} model, which is built much like it: {read}" if kin else read
        part = f" (it needs {LACKING[kind]})" if kind in LACKING else ""
        said = f"model_type = {kind[:80]!r}"
        raise FileError(f"{folder / CONFIG} says {said}, a family that is not known here{part}", remedy)
    return known[kind]


def read_model(folder: Path) -> Network:
    """The model in Hugging Face's folder, on the CPU, in evaluation mode."""
    family = family_of(folder)
    with opened(folder) as tensors:
        config = read_config(folder, tensors.places)
        with torch.device("meta"):
            model = config.build()
        shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
        reader = WeightReader(family, family.names(config), tensors, str(folder))
        for name, tensor in reader.tensors(shapes):
            owner = model.get_submodule(name.rpartition(".")[0])
            owner._parameters[name.rpartition(".")[2]] = torch.nn.Parameter(tensor)
    if len({one.dtype for one in model.parameters()}) > 1:
        model = model.to(_precision(folder) or model.embedding.weight.dtype)
    return model.eval()


def _precision(folder: Path) -> torch.dtype | None:
    """Of weights whose kinds differ, the one kind that config.json wants them in."""
    hf = _config(folder)
    wanted = hf.get("dtype", hf.get("torch_dtype"))
    return next((kind for kind in PLAIN if str(kind) == f"torch.{wanted}"), None)


def read_config(folder: Path, names: Iterable[str] = ()) -> TransformerConfig:
    """What a folder's config.json describes; `names` are those of its tensors, where they are known."""
    try:
        pooled = any(name.endswith("pooler.dense.weight") for name in names)
        return family_of(folder).read(_config(folder), pooled=pooled)
    except ConfigError as error:
        raise FileError(f"{folder / CONFIG} cannot be used: {error.problem}", error.remedy) from error


def write_model(folder: Path, model: Network, family: Family, ids: Mapping[str, int | None] = NO_IDS) -> None:
    """The model as Hugging Face's folder; `ids` are those of special tokens, such as pad_token_id."""
    config = transformer_config(model.config)
    hf = family.write(config) | dict(ids)
    tensors = hf_tensors(family.names(config), merged_state(model))
    if config.outputs == "none":
        tensors = {name.removeprefix(family.body): tensor for name, tensor in tensors.items()}
    write_json(folder / CONFIG, {**hf, "dtype": str(model.embedding.weight.dtype).removeprefix("torch.")})
    save_tensors(folder / WEIGHTS, tensors, {"format": "pt"})


def read_special_token_ids(folder: Path) -> dict[str, int | None]:
    """The ids of special tokens that Hugging Face's config.json names."""
    return {key: value for key, value in _config(folder).items() if key.endswith("_token_id")}


def fitting_family(model: Network, first: str | None = None) -> Family:
    """The family whose publishers could have made this model: `first`, if it is named and could."""
    config = transformer_config(model.config)
    problems, remedies = [], []
    for family in sorted(FAMILIES.values(), key=lambda one: one.name != first):  # stable: the others in their order
        if not family.fits(config):
            continue
        try:
            lacking = family.lacking(config)
        except ConfigError as error:
            problems.append(f"{family.name}: {error.problem}")
            continue
        if not lacking:
            return family
        problems.append(f"{family.name}: it has {', '.join(f'{key} = {json.dumps(lacking[key])}' for key in lacking)}")
        remedies.append((len(lacking), family.name))
    raise ConfigError(
        f"no family that others read is made of these parts ({'; '.join(problems)})",
        f"train with the parts of {min(remedies)[1]}" if remedies else "train a model of one of them",
    )


def _config(folder: Path) -> dict[str, Any]:
    return read_json(folder / CONFIG, _REMEDY)
